"""What a repr prints that nobody asked for is not what the program prints.

Several threads may be shown at once, and the program may replace the streams meanwhile, so none is
simply put back: what is over lets everything through, wherever it is still held.
"""

import _thread
import sys

_ident = _thread.get_ident
_NAMES = ("stdout", "stderr")
_muted = {}  # thread ident → its streams


class Muted(object):
    """A standard stream while a repr runs: silent for that thread, as ever for all others."""

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
    """Until `unmute`, which may come more than once: an interrupt may strike in here."""
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
