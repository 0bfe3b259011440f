"""The Python expression of each value that IDEs are shown: DAP's `evaluateName`.

IDEs take it to copy a value as an expression, to watch it and to set it. A value has none if no
expression finds it again, such as a member of a set.
"""

from __future__ import annotations

import ast
from typing import Final

# Types whose children are found by index, or by index or key.
_INDEXED: Final = frozenset(("list", "tuple", "deque", "array"))
_SUBSCRIPTED: Final = _INDEXED | {"dict", "OrderedDict", "defaultdict", "Counter"}
_UNORDERED: Final = frozenset(("set", "frozenset", "dict_keys", "dict_values", "dict_items"))
_MOST_CHARACTERS: Final = 1000  # A longer expression is not offered.
_MOST_KNOWN: Final = 100_000  # Values of one stop.


class Expressions:
    def __init__(self) -> None:
        # Reference of a container → its expression and its type; a scope's expression is empty.
        self._known: dict[int, tuple[str, str]] = {}
        self._frames: dict[int, int] = {}  # reference → the number of the frame that has it

    def scope(self, reference: int, frame: int) -> None:
        self.value(reference, "", "")
        self._frames[reference] = frame

    def value(
        self, reference: int, expression: str | None, type: str | None, parent: int | None = None
    ) -> None:
        """Remember a value that can be expanded, a child of `parent`."""
        if reference and expression is not None and len(self._known) < _MOST_KNOWN:
            self._known[reference] = expression, type or ""
            if parent in self._frames:
                self._frames[reference] = self._frames[parent]

    def frame(self, reference: int) -> int | None:
        """The number of the frame that has the value; None if it is not known."""
        return self._frames.get(reference)

    def child(self, reference: int, name: str) -> str | None:
        """The expression of a child of this container."""
        known = self._known.get(reference)
        if known is None:
            return None
        parent, type = known
        if type in _UNORDERED:
            return None
        if type in _INDEXED and name.isdecimal():
            name = str(int(name))  # pydevd pads the indexes of a long list with zeros
        if type in _SUBSCRIPTED:
            made = f"{parent}[{name}]" if _is_literal(name) else None
        elif not name.isidentifier():
            made = None
        else:
            made = f"{parent}.{name}" if parent else name
        return made if made is not None and len(made) <= _MOST_CHARACTERS else None

    def clear(self) -> None:
        self._known.clear()
        self._frames.clear()


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return True
