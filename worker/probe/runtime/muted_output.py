"""Drops the output of a repr that no caller requested: it is not the program's output.

Several threads may be rendered at once, and the program may replace the streams meanwhile. So we
cannot simply put the old stream back: a muted stream whose time is over passes everything on,
wherever it is still referred to.
"""

import _thread
import sys

_ident = _thread.get_ident
_NAMES = ("stdout", "stderr")
_muted = {}  # thread ident → its streams


class Muted(object):
    """A standard stream while a repr runs: silent for that thread, unchanged for all others."""

    def __init__(self, stream):
        self._stream = stream
        self._thread = _ident()

    def write(self, text):
        if _ident() == self._thread:
            return len(text)
        return self._stream.write(text)

    def writelines(self, lines):
        if _ident() != self._thread:
            self._stream.writelines(lines)

    def __getattr__(self, name):
        return getattr(self._stream, name)


def mute():
    """Mute this thread until `unmute`. An interrupt may arrive in here, so `unmute` may be called
    more than once.
    """
    if _ident() in _muted:
        return
    streams = _muted[_ident()] = []
    for name in _NAMES:
        stream = getattr(sys, name, None)
        if stream is not None:
            streams.append(Muted(stream))
            setattr(sys, name, streams[-1])


def unmute():
    streams = _muted.get(_ident())
    if streams is None:
        return
    for stream in streams:
        stream._thread = None
    for name in _NAMES:
        stream = getattr(sys, name, None)
        if is_over(stream):
            while is_over(stream):
                stream = stream._stream
            setattr(sys, name, stream)
    _muted.pop(_ident(), None)


def is_over(stream):
    return type(stream) is Muted and stream._thread is None
