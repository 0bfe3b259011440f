"""Renders any value as a short text, bounded in size, nodes, depth and time.

It walks builtin containers (exact types only) by the slots of their base classes, and reads a class
by `type`'s own descriptors. So `safe` runs no code of the program. `full` also calls `repr()` on
leaves whose class has one of its own.
"""

import base64
import collections
import itertools
import sys
import time
import types

from debug_relay.worker.probe.runtime.deferred_signals import Interrupted, hold
from debug_relay.worker.probe.runtime.muted_output import mute
from debug_relay.worker.probe.values import arrays, ctypes_data, stdlib_states
from debug_relay.worker.probe.values.builtin_kinds import BY_TYPE, VIEWS, mapped
from debug_relay.worker.probe.values.class_facts import (
    attributes,
    enum_member,
    full_name,
    is_of_c,
    is_plain_c,
    keeps_order,
    key_of,
    name_of,
    namedtuple_fields,
    own_repr,
    printable,
    shown_fields,
)

_now = time.monotonic
_maxlen = collections.deque.__dict__["maxlen"].__get__
_factory = collections.defaultdict.__dict__["default_factory"].__get__

ATOMS = frozenset((int, float, complex, bool, type(None), type(Ellipsis), type(NotImplemented)))
SMALL = frozenset((float, bool, type(None)))  # types whose text is always short
TEXTS = frozenset((str, bytes, bytearray))
UNIMPORTED = frozenset(filter(None, [getattr(types, "LazyImportType", None)]))  # from 3.15 on
LEAVES = ATOMS | TEXTS | UNIMPORTED
BRACKETS = {list: "[]", tuple: "()", set: "{}", frozenset: "{}", collections.deque: "[]"}
MAPPINGS = frozenset((dict, collections.OrderedDict, collections.defaultdict, collections.Counter))
BASES = (collections.OrderedDict, dict, list, tuple, set, frozenset, collections.deque)
ENUMS = ("enum.EnumMeta", "enum.EnumType")
ELEMENT = "xml.etree.ElementTree.Element"
BASE64_BYTES = 3000  # Bytes of one value that are shown as base64.
LABEL = 200  # Characters of a key or label.
FLOOD = 400000  # Characters of all values together from which on each is short.
INT_BITS = 8000  # Bits of an integer that is shown in digits.
MOST = sys.maxsize


OBJECTS = 2  # Levels of objects inside each other that are shown by their attributes.
OBJECT_ROOM = 400  # Characters that a text with such an object may take further.


class View(object):
    """How values are rendered, and what is left of the time and room for them."""

    def __init__(
        self,
        mode="full",
        width=200,
        nodes=100,
        depth=4,
        items=20,
        seconds=0.2,
        total=4000,
        quiet=True,
        slow=None,
        outline=False,
    ):
        self.mode, self.width, self.nodes = mode, width, nodes
        self.depth, self.items = depth, items
        self.total = total  # nodes of all values together
        self.until = _now() + seconds
        self.late = False  # the time is up: no more code of the program is run
        # Whether the last text was rendered without the class's repr, for lack of time.
        self.lacks_repr = False
        self.quiet = quiet  # output of a repr that no caller requested is dropped
        self.slow = set() if slow is None else slow
        self.spent = 0
        self.outline = outline  # types and sizes only

    # -- a variable

    def row(self, name, value, path=(), step=None):
        """The row of one variable. It raises only if it is interrupted twice.

        `path` names the values around it: [(id, step)], the outermost first; `step` leads from the
        last of them to this value.
        """
        step = name if step is None else step
        try:
            return self._row(name, value, path, step)
        except BaseException as error:
            if not (hold(error) or isinstance(error, (Interrupted, KeyboardInterrupt))):
                raise
            self.late = True
            return self._row(name, value, path, step)

    def _row(self, name, value, path, step):
        kind = type(value)
        exact = key_of(kind)
        if self.outline:
            row = {"name": printable(name), "type": name_of(kind), "value": ""}
            return sized(row, value, kind, exact)
        if exact in SMALL or (kind is int and value.bit_length() < 64):
            return {"name": printable(name), "type": kind.__name__, "value": repr(value)}
        row = {"name": printable(name), "type": name_of(kind)}
        row["value"] = self.text(value, step, path)
        if self.cut:
            row["truncated"] = True
        if self.circular:
            row["circular"] = True
        if exact in TEXTS and kind is not str and self.spent < FLOOD:
            self.spent += BASE64_BYTES
            row["base64"] = base64.b64encode(bytes(value[:BASE64_BYTES])).decode()
        return sized(row, value, kind, exact)

    def text(self, value, name="it", path=()):
        """The value as text; sets `cut` and `circular`."""
        self.left = given = min(self.nodes, max(self.total, 8))
        self.room = self.width * 2
        self.objects = 0
        self.cut = self.circular = self.lacks_repr = False
        self.path = list(path)
        try:
            text = self.inside(value, name, self.depth + 1)
        except (Interrupted, KeyboardInterrupt):
            raise
        except BaseException as error:
            hold(error)
            self.cut = True
            text = "<%s: not shown, %s>" % (name_of(type(value)), name_of(type(error)))
        self.total -= given - self.left
        width = self.width if self.spent < FLOOD else min(self.width, 80)
        if len(text) > width:
            self.cut = True
            text = text[: width - 1] + "\u2026"
        self.spent += len(text)
        return clean(text)

    def show(self, value, depth):
        self.left -= 1
        if self.left < 0 or self.room < 0:
            self.cut = True
            return "\u2026"
        kind = type(value)
        exact = key_of(kind)
        if exact in ATOMS:
            text = self.atom(value, kind)
        elif exact in TEXTS:
            text = self.quoted(value)
        elif exact in BRACKETS:
            text = self.sequence(value, kind, depth)
        elif exact in MAPPINGS:
            text = self.mapping(value, kind, depth)
        else:
            text = self.other(value, kind, depth)
        self.room -= len(text)
        return text

    def atom(self, value, kind):
        if kind is int and value.bit_length() > INT_BITS:
            self.cut = True
            return "<int of %d bits>" % value.bit_length()
        return repr(value)

    def quoted(self, value):
        if len(value) <= self.width:
            return repr(value)
        self.cut = True
        return repr(value[: self.width]) + "\u2026"

    def label(self, key):
        """A key as the name of its entry; a key always gets the same name."""
        bounds = self.width, self.nodes, self.depth, self.items
        self.width, self.nodes, self.depth, self.items = LABEL, 100, 4, 20
        try:
            return self.text(key)
        except Interrupted:
            self.late = True
            return self.text(key)
        finally:
            self.width, self.nodes, self.depth, self.items = bounds

    # -- containers

    def inside(self, value, step, depth):
        """A member as text, unless it is one of the values around it."""
        this = id(value)
        for at, (outer, _) in enumerate(self.path):
            if outer == this and key_of(type(value)) not in LEAVES:
                self.circular = True
                return "<circular: %s>" % "".join(part for _, part in self.path[: at + 1])[:100]
        self.path.append((id(value), step))
        try:
            return self.show(value, depth - 1)
        finally:
            self.path.pop()

    def members(self, parts, size, depth, render):
        """Render as many of `parts` as there is room for, and the number of the others."""
        shown = []
        try:
            for part in itertools.islice(parts, self.items):
                if self.left <= 0 or self.room <= 0:
                    break
                shown.append(render(part))
        except RuntimeError:  # another thread changed it while we read it
            shown.append("<changed while it was read>")
        if size > len(shown):
            self.cut = True
            shown.append("\u2026 %d more" % (size - len(shown)))
        return ", ".join(shown)

    def sequence(self, value, kind, depth):
        size = kind.__len__(value)
        opening, closing = BRACKETS[kind]
        if not size:
            return opening + closing if kind in (list, tuple) else kind.__name__ + "()"
        if not depth:
            self.cut = True
            return "%s\u2026 %d%s" % (opening, size, closing)
        numbers = itertools.count()
        body = self.members(
            kind.__iter__(value),
            size,
            depth,
            lambda part: self.inside(part, "[%d]" % next(numbers), depth),
        )
        text = opening + body + ("," if kind is tuple and size == 1 else "") + closing
        if kind is collections.deque and _maxlen(value) is not None:
            text += ", maxlen=%d" % _maxlen(value)
        return text if kind in (list, tuple, set) else "%s(%s)" % (kind.__name__, text)

    def mapping(self, value, kind, depth):
        size = dict.__len__(value)
        if size and not depth:
            self.cut = True
            return "{\u2026 %d}" % size

        def pair(item):
            # Keys are not looked up: that would run their own __hash__ and __eq__.
            key = self.show(item[0], depth - 1)
            return "%s: %s" % (key, self.inside(item[1], "[%s]" % key, depth))

        items = dict.items(value)
        if kind is collections.OrderedDict and keeps_order(value):
            items = ((key, dict.__getitem__(value, key)) for key in kind.__iter__(value))
        text = "{%s}" % self.members(items, size, depth, pair)
        if kind is collections.defaultdict:
            text = "%s, %s" % (self.inside(_factory(value), ".default_factory", depth), text)
        return text if kind is dict else "%s(%s)" % (kind.__name__, text)

    def named(self, title, pairs, size, depth, shape="%s(%s)"):
        if not depth:
            self.cut = True
            return shape % (title, "\u2026")
        body = self.members(
            pairs,
            size,
            depth,
            lambda pair: "%s=%s" % (printable(pair[0]), self.inside(pair[1], "." + pair[0], depth)),
        )
        return shape % (title, body)

    def pointing(self, title, pairs, size, depth, shape="%s(%s)"):
        """An object by its attributes. Objects point on without end: what lies deeper, and what has
        no room, is opened by the reference of the value.
        """
        if self.objects >= OBJECTS:
            self.cut = True
            return shape % (title, "\u2026")
        self.objects += 1
        self.room = min(self.room, OBJECT_ROOM)
        try:
            return self.named(title, pairs, size, depth, shape)
        finally:
            self.objects -= 1

    # -- everything else

    def other(self, value, kind, depth):
        render = BY_TYPE.get(key_of(kind))
        if render is not None:
            return render(self, value, depth)
        if issubclass(kind, type):
            return self.a_class(value, kind)
        library = arrays.library_class(kind)
        if library is not None:
            text = arrays.text(self, value, library)
            if text is not None:
                return text
        if is_plain_c(value, kind) or arrays.is_scalar(value, kind):
            return repr(value)
        if self.mode == "safe" or own_repr(kind) is None:
            text = stdlib_states.text_of(self, value, kind, depth)
            if text is not None:
                return text
        member = enum_member(value, kind)
        if member is not None:
            return "<%s.%s: %s>" % (name_of(kind), member[0], self.inside(member[1], "", depth))
        sort = ctypes_data.sort_of(kind)
        # The repr of a char pointer shows only the address of its text.
        renders_itself = sort == ctypes_data.TEXT and full_name(kind).startswith("ctypes.")
        if self.mode == "full" and own_repr(kind) is not None and not renders_itself:
            text = self.repr_of(value, kind)
            if text is not None:
                return text
        text = sort and ctypes_data.text(self, value, kind, sort, depth)
        if text:
            return text
        if issubclass(kind, BaseException):
            args = BaseException.args.__get__(value)
            shown = self.members(
                args, len(args), depth, lambda arg: self.inside(arg, ".args", depth)
            )
            return "%s(%s)" % (name_of(kind), shown)
        fields = namedtuple_fields(kind)
        if fields is not None:
            return self.named(name_of(kind), zip(fields, tuple.__iter__(value)), len(fields), depth)
        fields = shown_fields(value, kind)
        if fields is not None:
            return self.pointing(name_of(kind), fields, len(fields), depth)
        for base in BASES:
            if issubclass(kind, base):
                inner = self.mapping if base in MAPPINGS else self.sequence
                return "<%s %s>" % (full_name(kind), inner(value, base, depth))
        for base in (str, bytes, bytearray):
            if issubclass(kind, base):
                plain = base.__getitem__(value, slice(0, self.width + 1))
                return "<%s %s>" % (full_name(kind), self.quoted(plain))
        pairs = attributes(value, kind)
        if not pairs:
            return "<%s>" % full_name(kind)
        return self.pointing(full_name(kind), pairs, len(pairs), depth, "<%s %s>")

    def a_class(self, value, kind):
        if self.mode == "full" and own_repr(kind, type.__repr__) and full_name(kind) not in ENUMS:
            text = self.repr_of(value, kind)
            if text is not None:
                return text
        return "<class '%s'>" % full_name(value)

    def repr_of(self, value, kind):
        """The value's own repr, or a note of what went wrong with it. None if the time is up: the
        value is then rendered as if its class had no repr.
        """
        if id(kind) in self.slow:
            self.cut = self.lacks_repr = True
            return "<%s: repr took too long>" % full_name(kind)
        if self.late or _now() > self.until:
            self.late = self.cut = self.lacks_repr = True
            return None
        try:
            if self.quiet:
                mute()
            text = str.__getitem__(repr(value), slice(0, self.width + 1))
            return text
        except Interrupted:
            self.late = self.cut = self.lacks_repr = True
            self.slow.add(id(kind))
            return "<%s: repr took too long>" % full_name(kind)
        except BaseException as error:
            self.cut = True
            if hold(error):
                return "<%s: repr was interrupted>" % full_name(kind)
            return "<%s: repr raised %s>" % (full_name(kind), name_of(type(error)))


def sized(row, value, kind, exact):
    """Add the value's length to the row, if it has one."""
    if exact in TEXTS:
        row["length"] = len(value)
        return row
    try:
        row.update(extent(value, kind))
    except Exception:
        row["truncated"] = True  # its length is unknown: it has been closed, for example
    return row


def extent(value, kind):
    """The length of a container and whether it is indexed; `more`: it may have attributes, too."""
    exact = key_of(kind)
    if exact in BRACKETS or exact in MAPPINGS:
        return {"length": len(value), "indexed": exact in BRACKETS, "more": False}
    for base in BASES:
        if issubclass(kind, base):
            size = base.__len__(value)
            found = {"length": size, "indexed": base in BRACKETS, "more": True}
            if namedtuple_fields(kind) is not None:
                found.update(indexed=False)
            return found
    if kind is types.MappingProxyType:
        behind = mapped(value)
        return extent(behind, type(behind))
    if kind is range:
        size = range_size(value)
        return {"length": size, "indexed": True, "more": False} if size <= MOST else {}
    if exact in VIEWS or (full_name(kind) == "array.array" and is_of_c(kind)):
        return {"length": len(value), "indexed": True, "more": False}
    if kind is memoryview:
        size = viewed_size(value)
        return {} if size is None else {"length": size, "indexed": True, "more": True}
    if ctypes_data.sort_of(kind) == ctypes_data.ARRAY:
        return {"length": ctypes_data.length(value), "indexed": True, "more": False}
    if full_name(kind) == ELEMENT and is_of_c(kind):
        return {"length": len(value), "indexed": True, "more": True}
    library = arrays.library_class(kind)
    size = None if library is None else arrays.length(value)
    return {} if size is None else {"length": size, "indexed": library != "DataFrame", "more": True}


def viewed_size(value):
    """The number of items of a view of memory; None if it is not one row of single items."""
    try:
        return len(value) if value.ndim == 1 and len(value.format.lstrip("@")) == 1 else None
    except ValueError:
        return None  # released


def range_size(value):
    """The length of a range; `len()` fails for one that is longer than a machine word can count."""
    gap = value.stop - value.start
    return max(0, -(-gap // value.step))


def clean(text):
    """The text without lone surrogates, which no JSON reader accepts."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
