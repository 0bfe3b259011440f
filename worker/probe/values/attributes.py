"""Lists an object's members: its own attributes, properties (which are not run), its class's data.

As in `class_facts`, classes are read by `type`'s own descriptors, so no code of the program runs.
"""

import threading
import types
import weakref

from debug_relay.worker.probe.values.class_facts import (
    full_name,
    is_of_debugger,
    is_python,
    key_of,
    lookup,
    mro,
    names_in,
    without_debugger,
)

_SLOT = types.MemberDescriptorType
_GETSET = types.GetSetDescriptorType
_LOCAL, _NO_INIT = threading.local, object.__dict__["__init__"]
_PROPERTIES = ("property", "functools.cached_property")
# Classes in C whose attributes are plain data: to read one runs nothing and costs nothing.
_PLAIN = frozenset(
    ("builtins", "array", "collections", "datetime", "decimal", "functools", "itertools", "re",
     "_thread", "threading", "weakref", "_contextvars", "_asyncio", "xml")
)  # fmt: skip
_SPECIALS = (
    "__self__", "__func__", "__defaults__", "__kwdefaults__", "__closure__", "__cause__",
    "__context__",
)  # fmt: skip
_ROUTINES = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    classmethod,
    staticmethod,
)
_DESCRIPTORS = (*_ROUTINES, _SLOT, _GETSET)
PROPERTY, CLASS = "property", "class"
SORTED_MOST = 10000  # Attributes of one object that are sorted.


class Lazy(object):
    """A property; its value is read when a caller opens it."""

    def __init__(self, owner, name):
        self.owner, self.name = owner, name


class OfClass(object):
    """The data that an object's class holds for all of its instances."""

    def __init__(self, owner):
        self.owner = owner


def rank(pair):
    """Plain names first, then those with underscores."""
    name = pair[0]
    if name[:2] == "__":
        return (3 if name[-2:] == "__" else 2, name)
    return (1 if name[:1] == "_" else 0, name)


def in_order(pairs):
    return pairs if len(pairs) > SORTED_MOST else sorted(pairs, key=rank)


def is_special(name):
    return name[:2] == "__" and name[-2:] == "__"


def own(value, kind):
    """The object's `__dict__`, if it really is a dict; otherwise an empty one."""
    if issubclass(kind, _LOCAL) and (kind is _LOCAL or lookup(kind, "__init__") is _NO_INIT):
        return _LOCAL.__getattribute__(value, "__dict__")  # this thread's
    held = lookup(kind, "__dict__")
    if type(held) is not _GETSET and type(held) is not _SLOT:
        return {}
    try:
        found = held.__get__(value)
    except (AttributeError, TypeError):
        return {}
    return found if type(found) is dict else {}


def members(value, kind):
    """[(name, value, its sort)] of all members; the value of a property is `Lazy`."""
    if issubclass(kind, type):
        return in_order(_of_a_class(value))
    is_module = issubclass(kind, types.ModuleType)
    found = {}
    if issubclass(kind, weakref.ref):
        target = weakref.ref.__call__(value)
        found["()"] = ("()", target, None if target is not None else _ABSENT)
    for name, held in without_debugger(kind, list(own(value, kind).items())):
        if type(name) is str and not (is_module and is_special(name)):
            found[name] = (name, held, None)
    has_class_data = False
    for base in () if is_module else mro(kind):
        if base is object:
            continue
        for name, held in list(names_in(base).items()):
            if type(name) is not str or (is_special(name) and name not in _SPECIALS):
                continue
            if name in found and not _is_property(held):
                continue
            what = _descriptor(value, kind, base, name, held)
            if what is not None:
                found[name] = what
            elif not has_class_data and is_python(base):
                has_class_data = _is_data(held)
    pairs = in_order([pair for pair in found.values() if pair[2] is not _ABSENT])
    if has_class_data:
        pairs.append(("class attributes", OfClass(value), CLASS))
    return pairs


_ABSENT = object()


def _descriptor(value, kind, base, name, held):
    """The row for a descriptor of an instance's attribute; None for the class's own data."""
    how = type(held)
    if lookup(kind, name) is not held:
        return None  # a subclass overrides it
    if how is _SLOT or (how is _GETSET and names_module(base) in _PLAIN):
        try:
            read = held.__get__(value)
        except Exception:
            return (name, None, _ABSENT)  # not set
        if (is_special(name) and read is None) or (name == "f_trace" and is_of_debugger(read)):
            return (name, None, _ABSENT)
        return (name, read, None)
    if how is _GETSET or _is_property(held):
        return (name, Lazy(value, name), PROPERTY)
    if key_of(how) in _ROUTINES or lookup(how, "__get__") is None or issubclass(how, type):
        return None
    if not is_python(how) or lookup(how, "__call__") is not None:
        return None  # a method, for example a compiled one
    return (name, Lazy(value, name), PROPERTY)


def names_module(base):
    return full_name(base).rpartition(".")[0].partition(".")[0] or "builtins"


def _is_property(held):
    how = type(held)
    return how is property or (full_name(how) in _PROPERTIES) or issubclass(how, property)


def _is_data(held):
    how = type(held)
    return key_of(how) not in _DESCRIPTORS and lookup(how, "__get__") is None


def class_data(owner):
    """[(name, value, None)] of the data of the owner's class and its bases, the nearest first."""
    found = {}
    kind = type(owner)
    for base in mro(owner)[1:] if issubclass(kind, type) else mro(kind):
        if base is object or not is_python(base):
            continue
        for name, held in list(names_in(base).items()):
            if type(name) is str and not is_special(name) and name not in found:
                found[name] = (name, held, None)
    return in_order([row for row in found.values() if _is_data(row[1]) and row[0] != "_abc_impl"])


def _of_a_class(value):
    pairs = [
        (name, held, None)
        for name, held in list(names_in(value).items())
        if type(name) is str and not is_special(name) and name != "_abc_impl"
    ]
    if any(base is not object and is_python(base) for base in mro(value)[1:]):
        pairs.append(("class attributes", OfClass(value), CLASS))
    return pairs
