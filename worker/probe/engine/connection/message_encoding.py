"""What is told is encoded without code of the library that the program has in use as well.

The program's own threads tell of threads and processes that they start. Done by `json.dumps`, that
would be a call of it: a breakpoint in there would stop the program in the middle of the debugger.
"""

import json.encoder
import os
import sys


class Encoder(object):
    """As much of the module `json` as pydevd uses for what it sends: all of it is in C."""

    def __init__(self, make):
        self._make = make

    def dumps(self, value, default=None):
        text = json.encoder.encode_basestring_ascii
        encode = self._make(None, default or _refuse, text, None, ": ", ", ", False, False, True)
        return "".join(encode(value, 0))


def _refuse(value):
    raise TypeError("%s cannot be told as JSON" % type(value).__name__)


def hook(hooks):
    make = json.encoder.c_make_encoder
    if make is None:
        return
    module = sys.modules["_pydevd_bundle.pydevd_net_command"]
    hooks.swap(module, "json", Encoder(make))


def words_of(command):
    """A command line as text, as `os.fsdecode` would make it."""
    return [_word(part) for part in command]


def _word(part):
    part = os.fspath(part)
    if isinstance(part, str):
        return part
    return part.decode(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
