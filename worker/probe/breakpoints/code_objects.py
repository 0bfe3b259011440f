"""Reads code objects: where their bodies begin, which ones are inside them, and their names."""

import dis
import gc
import sys
import types

from debug_relay.worker.probe.engine.threads import running_frames

# Instructions before the first line of a body, of all versions of Python.
_PROLOGUE = {"COPY_FREE_VARS", "MAKE_CELL", "RETURN_GENERATOR", "RESUME", "GEN_START"}
_PROLOGUE.add("CACHE")  # after RESUME from 3.15 on
FUNCTION = 0x1  # CO_OPTIMIZED, which a class body does not have
_TRANSPARENT = "<generic parameters of "  # from 3.12 on, code between `def f[T]` and its function
_HAS_NAMES = sys.version_info >= (3, 11)  # co_qualname


class Body(object):
    """The place where the body of a function begins: with this line, if one is given."""

    def __init__(self, code, line=None):
        text = code.co_code
        offset, after = 0, None
        while offset < len(text):
            name = dis.opname[text[offset]]
            if name not in _PROLOGUE and not (name == "POP_TOP" and after == "RETURN_GENERATOR"):
                break
            offset, after = offset + 2, name
        if line is not None:  # code without a line has none, too
            starts = [start for start, at in dis.findlinestarts(code) if at == line]
            offset = max([offset] + starts[:1])
        self.offset = offset
        self.line = code.co_firstlineno
        for start, line in dis.findlinestarts(code):
            if start > offset:
                break
            if line is not None:
                self.line = line
        # If `while` is the first statement, the loop may come back to the very beginning.
        self.loops = offset in dis.findlabels(text)


def inside(code, prefix):
    """(name, code) of all functions that are defined in `code`; names as `plain` writes them."""
    pending = [(prefix, code)]
    while pending:
        prefix, code = pending.pop()
        for found in code.co_consts:
            if type(found) is types.CodeType:
                if found.co_name.startswith(_TRANSPARENT):
                    pending.append((prefix, found))
                    continue
                name = prefix + found.co_name
                if found.co_flags & FUNCTION:
                    yield name, found
                pending.append((name + ".", found))


def plain(name):
    """The name without `<locals>`: `f.<locals>.g` becomes `f.g`."""
    return name.replace(".<locals>", "")


def alive():
    """(name, code, globals) of every existing function, however it is wrapped or hidden."""
    seen = set()
    # We use the garbage collector's list, because a walk over modules and classes would miss
    # functions that a decorator keeps in a closure.
    for value in gc.get_objects():
        if type(value) is not types.FunctionType:
            continue
        code = value.__code__
        if id(code) in seen:
            continue
        seen.add(id(code))
        if _HAS_NAMES:
            name = code.co_qualname
        else:
            name = value.__qualname__
            if name.rpartition(".")[2] != code.co_name:
                continue  # functools.wraps has given it another function's name
        yield plain(name), code, value.__globals__


@running_frames.steady
def being_loaded():
    """(code, globals) of modules that are being imported: not all their functions exist yet."""
    found = {}
    for frame in list(running_frames.of_all().values()):
        while frame is not None:
            if frame.f_code.co_name == "<module>":
                found[id(frame.f_code)] = (frame.f_code, frame.f_globals)
            frame = frame.f_back
    return list(found.values())
