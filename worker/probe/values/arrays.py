"""Renders arrays and tables of numpy and pandas by shape, type and head. We never import them.

The library's code runs here, and none of the program's. Elements of an object array are rendered as
all other values are. An array whose element type the program has written itself is not treated as
an array.
"""

import itertools
import sys

from debug_relay.worker.probe.values.class_facts import full_name, mro, name_of

HEAD, LINES = 5, 3
_ROOTS = ("numpy", "pandas", "pyarrow")
_PLACES = {
    "numpy.ndarray": ("numpy", "ndarray"),
    "pandas.core.frame.DataFrame": ("pandas", "DataFrame"),
    "pandas.core.series.Series": ("pandas", "Series"),
    "pandas.DataFrame": ("pandas", "DataFrame"),
    "pandas.Series": ("pandas", "Series"),
}
_NUMBERS = "biufcSU"
_STAMPS = ("NaTType", "NAType", "Timedelta", "Timestamp")
_ZONES = ("datetime", "zoneinfo", "pytz", "dateutil")


def library_class(kind):
    """`ndarray`, `DataFrame` or `Series`, of libraries that the program has imported."""
    name = _PLACES.get(full_name(kind))
    if name is None:
        return None
    library = sys.modules.get(name[0])
    # A class of the program may only claim to be the library's: compare the class itself.
    return name[1] if library is not None and vars(library).get(name[1]) is kind else None


def is_scalar(value, kind):
    """Whether the value's repr is the library's own and calls no code of the program."""
    name = full_name(kind)
    root = name.partition(".")[0]
    known = vars(sys.modules[root]).get if root in _ROOTS and root in sys.modules else {}.get
    if root == "numpy":
        plain = name not in ("numpy.void", "numpy.object_")
        return plain and known(name_of(kind)) is kind and known("generic") in mro(kind)
    if root != "pandas" or name_of(kind) not in _STAMPS:
        return False
    ours = (known("Timestamp"), known("Timedelta"), type(known("NaT")), type(known("NA")))
    if not any(kind is one for one in ours):
        return False
    return full_name(type(getattr(value, "tzinfo", None))).partition(".")[0] in (
        "NoneType",
        *_ZONES,
    )


def is_known(dtype):
    """Whether a library defines the element type; reading elements of a type that the program has
    written would run the program's code.
    """
    return full_name(type(dtype)).partition(".")[0] in _ROOTS


def length(value):
    """The number of elements or rows; None for an array without dimensions."""
    return value.shape[0] if value.shape else None


# -- as text


def text(view, value, known):
    """The array as text; None if it must be rendered in another way."""
    try:
        if known == "DataFrame":
            return _table(view, value)
        if not is_known(value.dtype):
            return None
        if known == "ndarray":
            first = value.flat[:HEAD]
            head = first.tolist() if value.dtype.kind in _NUMBERS + "O" else list(first)
        else:
            head = value.iloc[:HEAD].tolist()
        words = [view.show(part, 1) for part in head]
        if value.size > len(head):
            view.cut = True
            words.append("\u2026")
        return "%s shape=%r dtype=%s [%s]" % (known, value.shape, value.dtype, ", ".join(words))
    except (AttributeError, TypeError, ValueError, NotImplementedError):
        return None  # another version of the library


def _table(view, value):
    kinds = list(itertools.islice(value.dtypes.items(), view.items))
    if not all(is_known(dtype) for _, dtype in kinds):
        return None
    columns = ["%s: %s" % (view.show(name, 1), dtype) for name, dtype in kinds]
    lines = value.iloc[:LINES, : view.items].values.tolist()
    head = "".join(" %s" % view.show(line, 2) for line in lines)
    more = " \u2026" if value.shape[0] > len(lines) else ""
    view.cut = view.cut or bool(more) or value.shape[1] > len(columns)
    return "DataFrame shape=%r [%s]%s%s" % (value.shape, ", ".join(columns), head, more)


# -- what is inside


def facts(value, known):
    """[(name, value, None)] of an array's facts besides its elements."""
    names = {
        "ndarray": ("shape", "dtype", "nbytes"),
        "DataFrame": ("shape", "index", "columns"),
        "Series": ("shape", "dtype", "index"),
    }[known]
    return [(name, getattr(value, name), None) for name in names]


def columns(value):
    """The number of columns, and a function for a page of them: [(name, column, None)]."""

    def take(start, count):
        names = value.columns[start : start + count].tolist()
        return [(name, value.iloc[:, start + at], None) for at, name in enumerate(names)]

    return value.shape[1], take


def elements(value, known):
    """The number of elements, and a function for a page of them: [(index, element, None)]."""

    def take(start, count):
        part = value[start : start + count]
        if known == "Series":
            part = value.iloc[start : start + count].tolist()
        return [(str(start + at), item, None) for at, item in enumerate(part)]

    return value.shape[0], take
