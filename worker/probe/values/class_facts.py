"""Reads the facts of a class without running its code: names, attributes, fields, its repr.

All of it uses `type`'s own descriptors. A metaclass may run its own code for any attribute, and an
object may have a `__class__`, `__dict__` or `__module__` that is a property.
"""

import collections
import threading
import types

names_in = type.__dict__["__dict__"].__get__
_mro = type.__dict__["__mro__"].__get__
_title = type.__dict__["__name__"].__get__
qualname = type.__dict__["__qualname__"].__get__
_module = type.__dict__["__module__"].__get__
_flags = type.__dict__["__flags__"].__get__
_HEAP = 1 << 9
_PLAIN = ("datetime.date", "datetime.timedelta", "datetime.timezone", "decimal.Decimal")
_SLOT = types.MemberDescriptorType
_GETSET = types.GetSetDescriptorType
_NAMEDTUPLE = collections.namedtuple("_NAMEDTUPLE", "a").__repr__.__code__
ATTRIBUTES = 100  # Attributes of one object in a short rendering.
_EASY = frozenset((str, int, bool, float, bytes, type(None)))
_ORDER_MOST = 20000  # Entries of an OrderedDict whose order is read.


class Debugger(object):
    """The names that the debugger leaves in the program's values; they are never shown. The engine
    sets them once (`engine.engine.hide_debugger`).
    """

    variables = frozenset()  # names in a frame
    thread_attributes = frozenset()
    shared_attribute = None  # a thread's attribute that the program may have under the same name
    modules = ("debug_relay.worker.",)  # the beginnings of its modules' names


class Foreign(object):
    """Stands for a class with a metaclass other than `type`: none of our tables has it."""


def mro(kind):
    """The class and its bases; some classes in C are never initialised and have no bases."""
    return _mro(kind) or (object,)


def key_of(kind):
    """The key of a class in our tables. A metaclass may have its own `__hash__` and `__eq__`, so
    its classes are never looked up.
    """
    return kind if type(kind) is type else Foreign


def lookup(kind, name):
    """The attribute that the class or the first of its bases has under this name."""
    for base in mro(kind):
        names = names_in(base)
        if name in names:
            return names[name]
    return None


def printable(text):
    """The text in one line, without control characters and lone surrogates, fit to be a name."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def name_of(kind):
    return printable(_title(kind))


def full_name(kind):
    """`module.Qualified`; without a module for builtins."""
    module = names_in(kind).get("__module__") if is_python(kind) else _module(kind)
    if type(module) is not str or module == "builtins":
        return printable(qualname(kind))
    return printable("%s.%s" % (module, qualname(kind)))


def own_repr(kind, default=object.__repr__):
    """The class's own `__repr__`; None if we render such values ourselves."""
    found = lookup(kind, "__repr__")
    if found is default or found is BaseException.__repr__:
        return None
    if type(found) is types.FunctionType and (found.__code__ is _NAMEDTUPLE or _generated(found)):
        return None
    if type(found) is types.WrapperDescriptorType and found.__objclass__ in (
        dict, list, tuple, set, frozenset, str, bytes, bytearray, collections.deque,
    ):  # fmt: skip
        return None  # a subclass without a repr of its own is rendered by its base
    return found


def _generated(function):
    """Whether `dataclass` has generated the function."""
    inner = function.__dict__.get("__wrapped__")
    path = function.__code__.co_filename
    # `reprlib` wraps functions of programs as well; a generated one is in no file.
    return (
        path.endswith(("dataclasses.py", "reprlib.py"))
        and type(inner) is types.FunctionType
        and inner.__code__.co_filename == "<string>"
    )


def namedtuple_fields(kind):
    fields = lookup(kind, "_fields")
    if not issubclass(kind, tuple) or type(fields) is not tuple:
        return None
    return fields if all(type(field) is str for field in fields) else None


def shown_fields(value, kind):
    """The fields of a dataclass that its repr would show, with their values."""
    fields = lookup(kind, "__dataclass_fields__")
    if type(fields) is not dict:
        return None
    known = dict(attributes(value, kind))
    hidden = {name for name, field in fields.items() if getattr(field, "repr", True) is False}
    return [(name, known[name]) for name in fields if name in known and name not in hidden]


def attributes(value, kind):
    """Name and value of the object's own attributes; no property runs."""
    pairs = []
    own = lookup(kind, "__dict__")
    if type(own) is _GETSET:
        held = own.__get__(value)
        if type(held) is dict:
            # Read in one call, so that no other thread can change it meanwhile.
            held = without_debugger(kind, list(dict.items(held))[:ATTRIBUTES])
            pairs = [pair for pair in held if type(pair[0]) is str]
    for base in mro(kind):
        names = names_in(base)
        for name, slot in list(names.items()) if "__slots__" in names else ():
            if type(slot) is _SLOT and not name.startswith("__"):
                try:
                    pairs.append((name, slot.__get__(value)))
                except AttributeError:
                    continue  # not set
    return pairs


def without_debugger(kind, pairs):
    """A thread's attributes without those that the debugger keeps in it."""
    if not issubclass(kind, threading.Thread):
        return pairs
    return [pair for pair in pairs if not _is_debuggers(*pair)]


def _is_debuggers(name, value):
    if name == Debugger.shared_attribute:
        return is_of_debugger(value)
    return name in Debugger.thread_attributes


def is_of_debugger(value):
    """Whether the value is an object of the debugger, or a method of one."""
    if type(value) is types.MethodType:
        value = value.__self__
    return full_name(type(value)).startswith(Debugger.modules)


def is_python(base):
    """Whether the class was written in Python. Classes in C have too many members to list."""
    return bool(_flags(base) & _HEAP)


def is_of_c(kind):
    """Whether no base of the class was written in Python: such a base would have one of the two."""
    return lookup(kind, "__dict__") is None and lookup(kind, "__slots__") is None


def is_plain_c(value, kind):
    """Whether the value's repr is C code that calls no code of the program."""
    name = full_name(kind)
    if name not in _PLAIN and name not in ("datetime.datetime", "datetime.time", "re.Pattern"):
        return False
    found = lookup(kind, "__repr__")
    if type(found) is not types.WrapperDescriptorType or found.__objclass__ is not kind:
        return False
    zone = getattr(value, "tzinfo", None)
    return zone is None or full_name(type(zone)) == "datetime.timezone"


def enum_member(value, kind):
    """(name, value) of a member of an enumeration without a repr of its own."""
    found = lookup(kind, "__repr__")
    if type(found) is not types.FunctionType or found.__module__ != "enum":
        return None
    known = dict(attributes(value, kind))
    if type(known.get("_name_")) is not str or "_value_" not in known:
        return None
    return known["_name_"], known["_value_"]


def keeps_order(value):
    """Whether we may read the order of an `OrderedDict`, which only its own iterator knows.

    That iterator hashes every key, so the keys must be builtins and not too many. Without it the
    effect of `move_to_end` is not visible.
    """
    return dict.__len__(value) <= _ORDER_MOST and all(
        key_of(type(key)) in _EASY for key in dict.keys(value)
    )
