"""Chooses the format of a reply: JSON, or text for a language model or a person.

`?format=` decides; else the `Accept` header with its quality values; else JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.refusals import Problem
from debug_relay.supervisor.operations.request import Format

_NAMES: Final[Mapping[str, Format]] = {"json": "json", "text": "text", "markdown": "markdown"}
_TYPES: Final[Mapping[str, Format]] = {
    "application/json": "json",
    "application/*": "json",
    "*/*": "json",
    "text/plain": "text",
    "text/*": "text",
    "text/markdown": "markdown",
}


def wanted(raw_path: str, accept: str | None) -> Format:
    query = dict(parse_qsl(raw_path.partition("?")[2], keep_blank_values=True))
    name = query.get("format")
    if name is None:
        return _accepted(accept)
    if name in _NAMES:
        return _NAMES[name]
    raise RelayError(
        Code.INVALID_PARAMETER,
        f"There is no format {name[:40]!r}",
        "Use format=json, format=text or format=markdown.",
        errors=[Problem("format", "must be json, text or markdown", name)],
    )


def _accepted(accept: str | None) -> Format:
    """The format with the highest quality, of equals the first; JSON if none matches."""
    if accept is None or accept == "*/*":
        return "json"
    best: tuple[float, Format] = (0.0, "json")
    for part in accept.split(","):
        kind, _, parameters = part.partition(";")
        format = _TYPES.get(kind.strip().lower())
        quality = _quality(parameters)
        if format is not None and quality > best[0]:
            best = (quality, format)
    return best[1]


def _quality(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value.strip())
            except ValueError:
                return 0.0
    return 1.0
