"""Finds files of which the program runs an older version than the one on disk.

It compiles the file and compares the code; no code of the program runs. Times of files do not help:
a file may be touched, or written and loaded by the program itself.
"""

import sys
import types

from debug_relay.worker.probe.engine.engine import real_path
from debug_relay.worker.probe.engine.threads import running_frames

_SOURCE_LOADER = "SourceFileLoader"
_names_of_class = type.__dict__["__dict__"].__get__


def outdated(paths):
    wanted = set(paths)
    running = {}
    modules = _modules(wanted)
    for code in _codes_in_frames():
        path = real_path(code.co_filename)
        if path in wanted:
            running.setdefault(path, []).append(code)
    for path, module in modules.items():
        running.setdefault(path, []).extend(_codes_of(module, path))
    return [path for path in paths if _differs(path, running.get(path), modules.get(path))]


def _differs(path, running, module):
    if not running:
        return False
    # Code from another loader (pytest rewrites assertions) only has the same lines.
    loader = None if module is None else module.__dict__.get("__loader__")
    exact = loader is None or type(loader).__name__ == _SOURCE_LOADER
    try:
        with open(path, "rb") as source:
            text = source.read()
        there = _marks([compile(text, path, "exec", dont_inherit=True)], exact)
    except OSError:
        return False
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    return not _marks(running, exact) <= there


def _marks(codes, exact):
    """Marks that differ for different code; those of nested code objects are included."""
    marks, pending = set(), list(codes)
    while pending:
        code = pending.pop()
        pending.extend(const for const in code.co_consts if isinstance(const, types.CodeType))
        mark = (code.co_name, code.co_firstlineno)
        if exact:
            lines = code.co_linetable if hasattr(code, "co_linetable") else code.co_lnotab
            consts = tuple(_plain(const) for const in code.co_consts)
            mark += (code.co_code, lines, code.co_names, code.co_varnames, consts)
        marks.add(mark)
    return marks


def _plain(const):
    if isinstance(const, types.CodeType):
        return None
    if isinstance(const, frozenset):
        return tuple(sorted(repr(item) for item in const))
    return repr(const)


@running_frames.steady
def _codes_in_frames():
    found = {}
    for frame in list(running_frames.of_all().values()):
        while frame is not None:
            found[id(frame.f_code)] = frame.f_code
            frame = frame.f_back
    return list(found.values())


def _modules(wanted):
    # To resolve the real paths of thousands of files takes seconds beside busy threads. So we
    # compare the file names first: a link usually has the name of its target.
    names, found = set(_name(path) for path in wanted), {}
    for module in list(sys.modules.values()):
        if issubclass(type(module), types.ModuleType):
            path = types.ModuleType.__getattribute__(module, "__dict__").get("__file__")
            if type(path) is str and _name(path) in names and real_path(path) in wanted:
                found[real_path(path)] = module
    return found


def _name(path):
    return path.rpartition("/")[2]


def _codes_of(module, path):
    found = []
    for value in list(module.__dict__.values()):
        found.extend(_codes_in(value))
        if issubclass(type(value), type):
            for member in list(_names_of_class(value).values()):
                found.extend(_codes_in(member))
    return [code for code in found if real_path(code.co_filename) == path]


def _codes_in(value):
    """The code objects of a function and of the functions that it wraps."""
    if type(value) is staticmethod or type(value) is classmethod:
        value = value.__func__
    parts = (value.fget, value.fset, value.fdel) if type(value) is property else (value,)
    for part in parts:
        while type(part) is types.FunctionType:
            yield part.__code__
            part = part.__dict__.get("__wrapped__")
