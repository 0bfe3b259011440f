"""Lists a value's children in pages: elements, entries, attributes, columns.

Containers are read by the slots of their base classes, and late pages from the end, so that a
million entries cost no more than ten and no code of the program runs.
"""

import collections
import gc
import itertools
import types

from debug_relay.worker.probe.values import arrays, ctypes_data
from debug_relay.worker.probe.values.attributes import (
    CLASS,
    OfClass,
    class_data,
    is_special,
    members,
)
from debug_relay.worker.probe.values.builtin_kinds import BY_TYPE, FRAME_NAMES, mapped
from debug_relay.worker.probe.values.class_facts import (
    Debugger,
    full_name,
    is_of_c,
    keeps_order,
    key_of,
    lookup,
    namedtuple_fields,
)
from debug_relay.worker.probe.values.rendering import (
    BASES,
    ELEMENT,
    MAPPINGS,
    MOST,
    VIEWS,
    extent,
    range_size,
    viewed_size,
)

INDEXED, NAMED = "indexed", "named"
HELD_MOST = 100  # Objects that an opaque object holds and that are shown.


class Part(object):
    """Children of one kind: their number, and a function for a page of them.

    `take(start, count)` returns [(name or key, value, its sort)].
    """

    def __init__(self, kind, size, take, keyed=False):
        self.kind, self.size, self.take, self.keyed = kind, size, take, keyed


def rows(kind, pairs):
    return Part(kind, len(pairs), lambda start, count: pairs[start : start + count])


def parts(value):
    kind = type(value)
    if kind is OfClass:
        return [rows(NAMED, class_data(value.owner))]
    if kind is FRAME_NAMES and kind is not dict:
        return [mapping(dict(value), dict)]
    if kind is types.MappingProxyType:
        return parts(mapped(value))
    found = elements(value, kind)
    if found and not extent(value, kind).get("more"):
        return found
    known = arrays.library_class(kind)
    if known is not None:
        return found + [rows(NAMED, arrays.facts(value, known))]
    named = members(value, kind)
    sort = ctypes_data.sort_of(kind)
    if sort is not None:
        return found + [rows(NAMED, c_members(value, kind, sort, named))]
    fields = namedtuple_fields(kind)
    if fields is not None:
        # Fields are listed by name and not again by index.
        found = [rows(NAMED, [(*pair, None) for pair in zip(fields, tuple.__iter__(value))])]
        named = [row for row in named if row[0] not in fields and row[0] != "class attributes"]
    if not found and not named and is_of_c(kind):
        named = held_inside(value)
    return found + ([rows(NAMED, named)] if named else [])


def c_members(value, kind, sort, named):
    data = ctypes_data.inside(value, kind, sort)
    besides = [
        row
        for row in named
        if row[2] != CLASS and not ctypes_data.is_own(row[0], lookup(kind, row[0]))
    ]
    return [(name, held, None) for name, held in data] + besides


def held_inside(value):
    """The objects that an object in C refers to and does not reveal: an iterator's list, for
    example, or a queue's entries. The garbage collector knows them.
    """
    if key_of(type(value)) in BY_TYPE or lookup(type(value), "__get__") is not None:
        return []  # a function or another descriptor holds no data
    found = [one for one in gc.get_referents(value) if one is not None and one is not type(value)]
    return [("(holds %d)" % at, one, None) for at, one in enumerate(found[:HELD_MOST])]


def elements(value, kind):
    for base in BASES:
        if issubclass(kind, base):
            return [mapping(value, base) if base in MAPPINGS else sequence(value, base)]
    if key_of(kind) in VIEWS:
        return [numbered(len(value), lambda: iter(value))]
    if kind is range:
        return [sliced(min(range_size(value), MOST), value)]
    if full_name(kind) in ("array.array", ELEMENT) and is_of_c(kind):
        return [sliced(len(value), value)]
    if kind is memoryview and viewed_size(value) is not None:
        return [sliced(len(value), value)]
    if ctypes_data.sort_of(kind) == ctypes_data.ARRAY:
        size = ctypes_data.length(value)
        return [Part(INDEXED, size, lambda start, count: ctypes_data.elements(value, start, count))]
    if full_name(kind) in ("Context", "_contextvars.Context") and is_of_c(kind):
        return [mapping(dict(value.items()), dict)]
    known = arrays.library_class(kind)
    if known == "DataFrame":
        return [Part(NAMED, *arrays.columns(value), keyed=True)]
    if known is not None and arrays.length(value) is not None and arrays.is_known(value.dtype):
        return [Part(INDEXED, *arrays.elements(value, known))]
    return []


def sliced(size, value):
    def take(start, count):
        part = value[start : start + count]
        return [(str(start + at), item, None) for at, item in enumerate(part)]

    return Part(INDEXED, size, take)


def numbered(size, forward, backward=None):
    def take(start, count):
        items = window(size, start, count, forward, backward)
        return [(str(start + at), item, None) for at, item in enumerate(items)]

    return Part(INDEXED, size, take)


def sequence(value, base):
    size = base.__len__(value)
    if base is list or base is tuple:

        def take(start, count):
            part = base.__getitem__(value, slice(start, start + count))
            return [(str(start + at), item, None) for at, item in enumerate(part)]

        return Part(INDEXED, size, take)
    backward = getattr(base, "__reversed__", None)
    return numbered(size, lambda: base.__iter__(value), backward and (lambda: backward(value)))


def mapping(value, base):
    """The entries of a mapping. The key itself is the name, and it is looked up nowhere."""
    size = dict.__len__(value)
    if base is collections.OrderedDict and keeps_order(value):

        def take(start, count):
            keys = window(
                size,
                start,
                count,
                lambda: base.__iter__(value),
                lambda: base.__reversed__(value),
            )
            return [(key, dict.__getitem__(value, key), None) for key in keys]

        return Part(NAMED, size, take, keyed=True)

    def take_entries(start, count):
        items = dict.items(value)
        entries = window(size, start, count, lambda: iter(items), lambda: items.__reversed__())
        return [(key, item, None) for key, item in entries]

    return Part(NAMED, size, take_entries, keyed=True)


def window(size, start, count, forward, backward=None):
    """A page of an iteration, taken from the nearer end."""
    end = min(start + count, size)
    if start >= end:
        return []
    if backward is None or start <= size - end:
        return list(itertools.islice(forward(), start, end))
    return list(itertools.islice(backward(), size - end, size - start))[::-1]


# -- a frame's names

_CELL = "__class__"  # a name in each method that calls `super()`
_OPTIMIZED = 1


def names_of(frame, of_module=False):
    """[(name, value)] of the variables of a frame, or of its module, in their own order."""
    values = frame.f_globals if of_module else frame.f_locals
    if issubclass(type(values), dict):
        items = list(dict.items(values))
    else:
        items = [(name, values[name]) for name in list(values)]
    hidden = Debugger.variables
    pairs = [pair for pair in items if type(pair[0]) is str and pair[0] not in hidden]
    if of_module or not frame.f_code.co_flags & _OPTIMIZED:
        return [pair for pair in pairs if not is_special(pair[0])]
    return [pair for pair in pairs if pair[0] != _CELL]
