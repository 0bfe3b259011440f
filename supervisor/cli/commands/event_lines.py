"""One event as one line: time, session, number, type, and what matters of its body."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from debug_relay.supervisor.cli.client import terminal

_COLOURS = {"stopped": terminal.YELLOW, "terminated": terminal.RED, "output": terminal.DIM}


def line(name: str, event: dict[str, Any]) -> str:
    clock = event["timestamp"].partition("T")[2].rstrip("Z")
    kind = terminal.paint(event["type"], _COLOURS.get(event["type"], ""))
    return terminal.harmless(f"{clock} {name} {event['seq']} ") + f"{kind} {_summary(event)}"


def _summary(event: dict[str, Any]) -> str:
    """The relay's words for the event; the modules for them are imported with the first one."""
    rendering, models, msgspec = _modules()
    found = msgspec.convert(event, models.Event, strict=False)
    return terminal.harmless(rendering.summary(found).replace("\n", "\\n"))


@cache
def _modules() -> tuple[Any, Any, Any]:
    protocol = "debug_relay.protocol"
    return (
        importlib.import_module(f"{protocol}.rendering.events"),
        importlib.import_module(f"{protocol}.models.output_events"),
        importlib.import_module("msgspec"),
    )
