"""Renders types that hold no data of the program: functions, modules, ranges and so on.

Each function gets the view, for values inside, and a value of exactly its type.
"""

import gc
import io
import opcode
import os
import sys
import types

from debug_relay.worker.probe.values.class_facts import full_name, name_of

COPIED_BYTES = 1 << 24  # Bytes of a collection that is copied before it is shown.
FRAME_NAMES = (lambda: type(sys._getframe().f_locals))()  # not a dict from 3.13 on
VIEWS = frozenset((type({}.keys()), type({}.values()), type({}.items())))


def _place(code, line=None):
    return "%s:%d" % (os.path.basename(code.co_filename), line or code.co_firstlineno)


def _signature(function):
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names = list(code.co_varnames[:count])
    if code.co_flags & 4:
        names.insert(code.co_argcount, "*" + code.co_varnames[count])
    elif code.co_kwonlyargcount:
        names.insert(code.co_argcount, "*")
    if code.co_flags & 8:
        names.append("**" + code.co_varnames[count + bool(code.co_flags & 4)])
    return "%s(%s)" % (function.__qualname__, ", ".join(names))


def _traceback(view, value, depth):
    code = value.tb_frame.f_code
    return "<traceback of %s at %s>" % (code.co_name, _place(code, value.tb_lineno))


def _in_memory(view, value, depth):
    """A file in memory. Its content is read in one call, because other threads may write to it."""
    name = full_name(type(value))
    if value.closed:
        return "<%s, closed>" % name
    if sys.getsizeof(value) > COPIED_BYTES:
        return "<%s of %d bytes>" % (name, sys.getsizeof(value))
    inside = value.getvalue()
    return "<%s of %d at %d: %s>" % (name, len(inside), value.tell(), view.quoted(inside))


def _frame_names(view, value, depth):
    return "<frame's names %s>" % view.inside(dict(value), "", depth + 1)


def _function(view, value, depth):
    return "<function %s at %s>" % (_signature(value), _place(value.__code__))


def _method(view, value, depth):
    inner = value.__func__
    name = _signature(inner) if type(inner) is types.FunctionType else name_of(type(inner))
    return "<bound method %s of %s>" % (name, full_name(type(value.__self__)))


def _builtin(view, value, depth):
    owner = value.__self__
    if owner is None or type(owner) is types.ModuleType:
        return "<built-in function %s>" % value.__name__
    return "<built-in method %s of %s>" % (value.__name__, full_name(type(owner)))


def _module(view, value, depth):
    name = types.ModuleType.__getattribute__(value, "__dict__").get("__name__")
    return "<module %s>" % (repr(name[:200]) if type(name) is str else "")


def _has_begun(frame):
    """Whether the generator has begun. From 3.11 on a fresh one is already behind the instruction
    that made it.
    """
    at = frame.f_lasti
    return at >= 0 and frame.f_code.co_code[at] != opcode.opmap.get("RETURN_GENERATOR")


def _generator(kind, prefix):
    def show(view, value, depth):
        frame = getattr(value, prefix + "_frame")
        code = getattr(value, prefix + "_code")
        if frame is None:
            state = "finished"
        elif getattr(value, prefix + "_running"):
            state = "running"
        else:
            begun = getattr(value, prefix + "_suspended", _has_begun(frame))
            state = "suspended" if begun else "not started"
        return "<%s %s at %s, %s>" % (
            kind,
            value.__qualname__,
            _place(code, frame and frame.f_lineno),
            state,
        )

    return show


def _range(view, value, depth):
    parts = [value.start, value.stop] + ([value.step] if value.step != 1 else [])
    return "range(%s)" % ", ".join(view.atom(part, int) for part in parts)


def _slice(view, value, depth):
    parts = (value.start, value.stop, value.step)
    return "slice(%s)" % ", ".join(view.inside(part, "", depth) for part in parts)


def _cell(view, value, depth):
    try:
        return "<cell %s>" % view.inside(value.cell_contents, ".cell_contents", depth)
    except ValueError:
        return "<cell, empty>"


def mapped(proxy):
    """The mapping behind a `mappingproxy`. The proxy's own methods would call the mapping's, which
    may be the program's code.
    """
    found = gc.get_referents(proxy)
    return found[0] if found else None


def _proxy(view, value, depth):
    return "mappingproxy(%s)" % view.inside(mapped(value), "", depth + 1)


def _memory(view, value, depth):
    try:
        size = value.nbytes
    except ValueError:
        return "<memory, released>"
    if value.ndim != 1 or not value.c_contiguous:
        return "<memory of %d bytes>" % size
    return "<memory of %d bytes: %s>" % (size, view.quoted(value[: view.width].tobytes()))


def _of_dict(view, value, depth):
    name = type(value).__name__
    if depth < 1:
        return "%s(\u2026 %d)" % (name, len(value))
    body = view.members(iter(value), len(value), depth, lambda part: view.inside(part, "", depth))
    return "%s([%s])" % (name, body)


BY_TYPE = {
    types.FunctionType: _function,
    types.MethodType: _method,
    types.BuiltinFunctionType: _builtin,
    types.ModuleType: _module,
    types.GeneratorType: _generator("generator", "gi"),
    types.CoroutineType: _generator("coroutine", "cr"),
    types.AsyncGeneratorType: _generator("async generator", "ag"),
    range: _range,
    slice: _slice,
    memoryview: _memory,
    types.MappingProxyType: _proxy,
    types.CellType: _cell,
    types.TracebackType: _traceback,
    io.BytesIO: _in_memory,
    io.StringIO: _in_memory,
    classmethod: lambda view, value, depth: "<classmethod>",
    staticmethod: lambda view, value, depth: "<staticmethod>",
    property: lambda view, value, depth: "<property>",
    object: lambda view, value, depth: "<object>",
    types.CodeType: lambda view, value, depth: "<code %s at %s>" % (value.co_name, _place(value)),
}
if FRAME_NAMES is not dict:
    BY_TYPE[FRAME_NAMES] = _frame_names
BY_TYPE.update((kind, _of_dict) for kind in VIEWS)
