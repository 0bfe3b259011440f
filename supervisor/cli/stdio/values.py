"""Variables as the protocol shows them: name, value and type, all of them texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

_VALUE_CHARACTERS: Final = 10_000  # One value.
_ALL_CHARACTERS: Final = 1_000_000  # All values of one event.
_CUT: Final = "…"


def shown(variable: dict[str, Any]) -> dict[str, str]:
    return {
        "name": variable["name"],
        "value": cut(variable["value"]),
        "type": variable["type"],
    }


def cut(value: str, most: int = _VALUE_CHARACTERS) -> str:
    return value if len(value) <= most else value[:most] + _CUT


def all_shown(variables: Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    """Without the names that Python itself adds, such as `__name__`."""
    rows, left = [], _ALL_CHARACTERS
    for variable in variables:
        if is_dunder(variable["name"]):
            continue
        row = shown(variable)
        row["value"] = cut(row["value"], left)
        left = max(left - len(row["value"]), 0)
        rows.append(row)
    return rows


def is_dunder(name: str) -> bool:
    return len(name) > 4 and name.startswith("__") and name.endswith("__")
