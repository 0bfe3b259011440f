"""The Python expression of each value that IDEs are shown: DAP's `evaluateName`.

IDEs take it to copy a value as an expression, to watch it and to set it. A value has none if no
expression finds it again, such as a member of a set.
"""

from __future__ import annotations

import ast
from typing import Final

# Types whose children are found by index or key.
_SUBSCRIPTED: Final = frozenset(
    ("list", "tuple", "dict", "OrderedDict", "defaultdict", "Counter", "deque", "array")
)
_UNORDERED: Final = frozenset(("set", "frozenset", "dict_keys", "dict_values", "dict_items"))
_MOST_CHARACTERS: Final = 1000  # A longer expression is not offered.
_MOST_KNOWN: Final = 100_000  # Values of one stop.


class Expressions:
    def __init__(self) -> None:
        # Reference of a container → its expression and its type; a scope's expression is empty.
        self._known: dict[int, tuple[str, str]] = {}

    def scope(self, reference: int) -> None:
        self.value(reference, "", "")

    def value(self, reference: int, expression: str | None, type: str | None) -> None:
        """Remember a value that can be expanded."""
        if reference and expression is not None and len(self._known) < _MOST_KNOWN:
            self._known[reference] = expression, type or ""

    def child(self, reference: int, name: str) -> str | None:
        """The expression of a child of this container."""
        known = self._known.get(reference)
        if known is None:
            return None
        parent, type = known
        if type in _UNORDERED:
            return None
        if type in _SUBSCRIPTED:
            made = f"{parent}[{name}]" if _is_literal(name) else None
        elif not name.isidentifier():
            made = None
        else:
            made = f"{parent}.{name}" if parent else name
        return made if made is not None and len(made) <= _MOST_CHARACTERS else None

    def clear(self) -> None:
        self._known.clear()


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return True
