"""Finds the `with` blocks that a frame is in, and the objects that they have entered.

The blocks come from the byte code. A name in it says which object was entered only until somebody
assigns to that name. The interpreter keeps the object's `__exit__` on the frame's stack, which
Python does not show, so we read it there. An address is compared and never followed as an object:
the thread may run on meanwhile. The kernel does the reading, and refuses a bad address. We call it
without giving the interpreter away: a busy thread would keep that for 5 ms each time. The layouts
are tried on a frame of our own first.
"""

import ctypes
import dis
import os
import sys
import types

CODE_BYTES = 1 << 16  # Bytes of the longest function that is read.
ARGUMENTS = 60  # Instructions between a method and its call: the arguments.
_HAS_TABLE = sys.version_info >= (3, 11)  # of exceptions; before, blocks are instructions
_KEEPS_SELF = sys.version_info >= (3, 14)  # beside the function, on the stack
_POINTER = ctypes.sizeof(ctypes.c_void_p)
_FRAME = 24  # offset of the interpreter's frame in the frame object, from 3.11 on
_LOCALS = 80 if _KEEPS_SELF else 72  # offset of the locals in the interpreter's frame
_SELF = 24  # offset of `__self__` in a bound method, and in one of a class in C
_TYPE = 8  # offset of the type in an object
_BLOCK = 12  # bytes of a block up to 3.10: type, handler, level of the stack
_BLOCKS = 20  # blocks of a frame up to 3.10; they lie before its locals
_COUNT = 8  # bytes from the number of blocks to the first
_TAGS = 7  # bits of a pointer that are no address, from 3.14 on
_getpid = os.getpid
_readv = getattr(ctypes.PyDLL(None), "process_vm_readv", lambda *ignored: -1)
_METHODS = (id(types.MethodType), id(types.BuiltinMethodType))


class Block(object):
    """A `with` block: the index of the instruction that enters it, and its spans of offsets.

    `place` is the depth of the stack in it; up to 3.10 it is the offset of its handler.
    """

    def __init__(self, entry, spans, place):
        self.entry, self.spans, self.place = entry, spans, place

    def is_around(self, offset):
        return any(start <= offset < end for start, end in self.spans)


def read(code):
    """(instructions, blocks) of code; none of code that is too long."""
    if len(code.co_code) > CODE_BYTES:
        return [], []
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    return steps, _blocks_of_table(code, steps) if _HAS_TABLE else _blocks_of_code(steps)


def _blocks_of_code(steps):
    """Up to 3.10 an instruction begins the block and names its end."""
    found = []
    for index, step in enumerate(steps):
        if step.opname in ("SETUP_WITH", "SETUP_ASYNC_WITH"):
            entry = index
            if step.opname == "SETUP_ASYNC_WITH":
                entry = _before(steps, index, "BEFORE_ASYNC_WITH")
            if entry is not None:
                found.append(Block(entry, [(step.offset + 2, step.argval)], step.argval))
    return found


def _blocks_of_table(code, steps):
    """From 3.11 on a table says which instructions are covered by which handler, the innermost
    only: a handler's own instructions are covered by the next one."""
    try:
        table = list(dis._parse_exception_table(code))
    except (AttributeError, ValueError, IndexError, StopIteration):
        return []
    index_of = {step.offset: index for index, step in enumerate(steps)}
    handlers, depths = {}, {}  # offset of a handler of `with` → its direct spans, its depth
    for entry in table:
        at = index_of.get(entry.target)
        if at is None or at + 1 >= len(steps):
            continue
        if steps[at + 1].opname == "WITH_EXCEPT_START":
            handlers.setdefault(entry.target, []).append((entry.start, entry.end))
            depths[entry.target] = entry.depth
    found = []
    for target, spans in sorted(handlers.items(), key=lambda one: min(one[1])):
        first = index_of.get(min(spans)[0])
        entry = None if first is None else _entry_before(steps, first)
        if entry is not None:
            spans = _with_nested(table, target, spans)
            found.append(Block(entry, spans, depths[target]))
    return found


def _with_nested(table, target, spans):
    """The spans with those of blocks inside: their handlers lie in these spans."""
    spans, pending = list(spans), [target]
    seen = {target}
    while pending:
        outer = pending.pop()
        for entry in table:
            if entry.target in seen:
                continue
            covered = [one for one in table if one.start <= entry.target < one.end]
            if any(one.target == outer for one in covered):
                seen.add(entry.target)
                pending.append(entry.target)
                spans += [(e.start, e.end) for e in table if e.target == entry.target]
    return spans


def _entry_before(steps, first):
    for index in range(first - 1, max(-1, first - ARGUMENTS), -1):
        if steps[index].opname in ("BEFORE_WITH", "BEFORE_ASYNC_WITH"):
            return index
        if steps[index].opname == "LOAD_SPECIAL" and "exit__" in steps[index].argrepr:
            return index
    return None


def _before(steps, index, name):
    for at in range(index - 1, max(-1, index - ARGUMENTS), -1):
        if steps[at].opname == name:
            return at
    return None


# -- the objects


def entered(frame, block):
    """The address of the object that the block has entered; 0 if it has left it, None if that
    cannot be read.
    """
    return _from_memory(frame, block.place) if _WORKS else None


def _from_memory(frame, place):
    code = frame.f_code
    names = code.co_varnames + code.co_cellvars + code.co_freevars
    if _HAS_TABLE:
        start, known = _word(id(frame) + _FRAME) + _LOCALS, len(set(names))
    else:
        start, known = id(frame) + type(frame).__basicsize__ - _POINTER, len(names)
        place = _level(start - _BLOCK * _BLOCKS, place)
    if not 0 < place <= code.co_stacksize:
        return 0
    stack = start + known * _POINTER
    last = _word(stack + (place - 1) * _POINTER) & ~_TAGS
    if _KEEPS_SELF and last:
        return last
    if _KEEPS_SELF:
        last = _word(stack + (place - 2) * _POINTER) & ~_TAGS
    return _word(last + _SELF) if _word(last + _TYPE) in _METHODS else 0


def pushed(frame):
    """The exception that the interpreter has put on the frame's stack, for the handler that begins
    with the present instruction. Only for a frame of this thread, from 3.11 on.
    """
    if not _WORKS:
        return None
    for entry in dis._parse_exception_table(frame.f_code):
        if entry.target == frame.f_lasti:
            names = frame.f_code.co_varnames + frame.f_code.co_cellvars + frame.f_code.co_freevars
            stack = _word(id(frame) + _FRAME) + _LOCALS + len(set(names)) * _POINTER
            address = _word(stack + (entry.depth + bool(entry.lasti)) * _POINTER) & ~_TAGS
            if _word(address + _TYPE) in {id(kind) for kind in _exceptions()}:
                return ctypes.cast(address, ctypes.py_object).value
    return None


def _exceptions():
    known, left = [], [BaseException]
    while left:
        known.append(left.pop())
        left += type.__subclasses__(known[-1])
    return known


def _level(start, handler):
    """The level of the stack that the frame has noted beside this handler; 0 if it has none."""
    if sys.version_info >= (3, 10):
        handler //= 2  # it counts instructions
    count = int.from_bytes(_read(start - _COUNT, 4), sys.byteorder)
    noted = _read(start, _BLOCK * min(count, _BLOCKS))
    for at in range(0, len(noted) - _BLOCK + 1, _BLOCK):
        if int.from_bytes(noted[at + 4 : at + 8], sys.byteorder) == handler:
            return int.from_bytes(noted[at + 8 : at + 12], sys.byteorder)
    return 0


def _word(address):
    return int.from_bytes(_read(address, _POINTER), sys.byteorder)


class _Span(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("size", ctypes.c_size_t)]


def _read(address, count):
    """Bytes of this process's memory; none if it is not mapped."""
    found = ctypes.create_string_buffer(count)
    here, there = _Span(ctypes.addressof(found), count), _Span(address, count)
    got = _readv(_getpid(), ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    return found.raw if got == count else b""


class _Entered(object):
    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def _works():
    """Whether it reads a frame of our own as it is."""
    if _POINTER != 8 or hasattr(sys, "gettotalrefcount"):
        return False

    def tried(one, two, *rest):
        inner = lambda: one  # noqa: E731  a cell among the locals
        with one as first, two as second:
            one = two = rest = None
            with _Entered() as third:
                frame = sys._getframe()
                _, blocks = read(frame.f_code)
                found = [_from_memory(frame, block.place) for block in blocks]
        return inner() is rest and found == [id(first), id(second), id(third)]

    try:
        return tried(_Entered(), _Entered(), 1)
    except Exception:
        return False


_WORKS = _works()
