"""Encodes messages without the Python code of the standard library, which the program uses too.

The program's own threads report threads and processes that they start. If they called `json.dumps`
for that, a breakpoint in it would stop the program in the middle of the debugger.
"""

import json.encoder
import os
import sys


class Encoder(object):
    """Replaces the module `json` where pydevd encodes messages; runs only C code."""

    def __init__(self, make):
        self._make = make

    def dumps(self, value, default=None):
        text = json.encoder.encode_basestring_ascii
        encode = self._make(None, default or _refuse, text, None, ": ", ", ", False, False, True)
        return "".join(encode(value, 0))


def _refuse(value):
    raise TypeError("%s cannot be encoded as JSON" % type(value).__name__)


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
