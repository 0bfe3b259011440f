"""Reads data of `ctypes`: structures by field, arrays by element, pointers with their target.

It uses the descriptors of ctypes itself, so no code of the program runs. It follows an address only
if the kernel can read memory there: a stray pointer would end the program.
"""

import os
import sys

from debug_relay.worker.probe.values.class_facts import full_name, lookup, mro, name_of, names_in

STRUCTURE, ARRAY, POINTER, TEXT, SIMPLE = "structure", "array", "pointer", "text", "simple"
_SORTS = (
    ("Structure", STRUCTURE), ("Union", STRUCTURE), ("Array", ARRAY), ("_Pointer", POINTER),
    ("_SimpleCData", SIMPLE),
)  # fmt: skip
_TEXTS = {"z": 1, "Z": 4}  # C strings, by the width of their characters
_BUFFERS = {"c": 1, "u": 4}
_MOST = 4096  # Characters of a C text, which may have no end.
_FIELDS = ("_ctypes.CField", "ctypes.CField")  # the second from 3.14 on
_OWN = ("contents", "raw", "value", "_objects", "_b_base_", "_b_needsfree_")
_open, _pread, _close = os.open, os.pread, os.close


def sort_of(kind):
    """The sort of C data that the class describes; None for all other classes."""
    library = None if type(kind) is type else sys.modules.get("_ctypes")
    if library is None:
        return None
    bases, known = mro(kind), vars(library)
    for name, sort in _SORTS:
        base = known.get(name)
        if any(one is base for one in bases):
            return TEXT if sort == SIMPLE and lookup(kind, "_type_") in _TEXTS else sort
    return None


def text(view, value, kind, sort, depth):
    """The value as text; None if the repr of ctypes itself is enough."""
    if sort == STRUCTURE:
        found = fields(value, kind)
        return view.named(name_of(kind), found, len(found), depth)
    if sort == ARRAY:
        return _array_text(view, value, kind, depth)
    if sort == POINTER:
        target = pointed(value)
        if not _address(value):
            return "<%s: null>" % name_of(kind)
        where = "<%s to 0x%x" % (name_of(kind), _address(value))
        if not target:
            return where + ", not readable>"
        return "%s: %s>" % (
            where,
            view.inside(target[0], ".contents", depth) if depth else "\u2026",
        )
    if sort == TEXT:
        found = pointed(value)
        if found:
            return "%s(%s)" % (name_of(kind), view.quoted(found[0]))
        address = _address(value)
        return "%s(%s)" % (name_of(kind), "0x%x, not readable" % address if address else "None")
    return None


def _array_text(view, value, kind, depth):
    size = length(value)
    if _letter(kind) in _BUFFERS:
        width = _BUFFERS[_letter(kind)]
        raw = bytes(memoryview(value).cast("B")[: (view.width + 1) * width])
        return "<%s %s>" % (name_of(kind), view.quoted(raw if width == 1 else _wide(raw)))
    if size and not depth:
        view.cut = True
        return "<%s [\u2026 %d]>" % (name_of(kind), size)
    numbered = ((at, element(value, kind, at)) for at in range(size))
    body = view.members(
        numbered, size, depth, lambda pair: view.inside(pair[1], "[%d]" % pair[0], depth)
    )
    return "<%s [%s]>" % (name_of(kind), body)


def length(value):
    return sys.modules["_ctypes"].Array.__len__(value)


def element(value, kind, at):
    held = lookup(kind, "_type_")
    if _is_text(held):
        return held.from_buffer(value, at * sys.modules["_ctypes"].sizeof(held))
    return sys.modules["_ctypes"].Array.__getitem__(value, at)


def elements(value, start, count):
    kind = type(value)
    return [
        (str(at), element(value, kind, at), None)
        for at in range(start, min(start + count, length(value)))
    ]


def fields(value, kind):
    """[(name, value)] of the fields of a structure or union, those of its bases first."""
    found = []
    for base in reversed(mro(kind)):
        declared = names_in(base).get("_fields_") or ()
        for entry in declared if type(declared) in (list, tuple) else ():
            name, held = entry[0], lookup(kind, entry[0])
            if type(name) is not str or full_name(type(held)) not in _FIELDS:
                continue
            if _is_text(entry[1]):
                found.append((name, entry[1].from_buffer(value, held.offset)))
            else:
                found.append((name, held.__get__(value)))
    return found


def pointed(value):
    """[the target of a pointer], or an empty list if it cannot be read."""
    kind, address = type(value), _address(value)
    if not address:
        return []
    if sort_of(kind) == TEXT:
        width = _TEXTS[lookup(kind, "_type_")]
        found = _until_zero(address, width)
        return [] if found is None else [found if width == 1 else _wide(found)]
    size = sys.modules["_ctypes"].sizeof(lookup(kind, "_type_"))
    if len(_read(address, size)) < size:
        return []
    return [lookup(kind, "contents").__get__(value)]


def inside(value, kind, sort):
    """[(name, value)] of the value's parts besides elements."""
    if sort == STRUCTURE:
        return fields(value, kind)
    if sort == ARRAY:
        return []
    if sort == POINTER:
        return [("contents", target) for target in pointed(value)]
    if sort == TEXT:
        return [("value", target) for target in pointed(value)]
    try:
        return [("value", lookup(kind, "value").__get__(value))]
    except Exception:
        return []  # an empty py_object


def is_own(name, held):
    """Whether an attribute is one by which ctypes itself keeps or shows the data."""
    return name in _OWN or full_name(type(held)) in _FIELDS


def _letter(kind):
    held = lookup(kind, "_type_")
    return lookup(held, "_type_") if issubclass(type(held), type) else None


def _is_text(held):
    """Whether ctypes makes a string of the target when it reads such a value, wherever that
    points.
    """
    if not issubclass(type(held), type) or sort_of(held) != TEXT:
        return False
    return name_of(mro(held)[1]) == "_SimpleCData"


def _address(value):
    return int.from_bytes(bytes(memoryview(value).cast("B")), sys.byteorder)


def _wide(raw):
    raw = raw[: len(raw) // 4 * 4]
    return raw.decode("utf-32-le" if sys.byteorder == "little" else "utf-32-be", "replace")


def _until_zero(address, width):
    found = b""
    while len(found) < _MOST * width:
        # Read only to the end of a page: the next one may not be mapped.
        part = _read(address + len(found), 4096 - (address + len(found)) % 4096)
        if not part:
            return None
        found += part
        for at in range(0, len(found) - width + 1, width):
            if not any(found[at : at + width]):
                return found[:at]
    return found[: _MOST * width]


def _read(address, count):
    """Bytes of this process's memory; fewer if some of it is not mapped."""
    try:
        memory = _open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return _pread(memory, count, address)
    except (OSError, OverflowError, ValueError):
        return b""
    finally:
        _close(memory)
