"""Places as a person writes them: `FILE:LINE`, `FILE:TEXT`, or a function."""

from __future__ import annotations

import os
import re
from typing import Any

from debug_relay.supervisor.cli.client.address import Misused

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def breakpoint_at(text: str) -> dict[str, Any]:
    """The breakpoint's fields; a relative file lies below the working directory."""
    file, colon, rest = text.rpartition(":")
    if colon and file and rest.isdigit():
        return {"file": os.path.abspath(os.path.expanduser(file)), "line": int(rest)}
    file, colon, rest = text.partition(":")
    if colon and file and rest:
        return {"file": os.path.abspath(os.path.expanduser(file)), "text": rest.strip()}
    if _FUNCTION.fullmatch(text) and not text.endswith(".py"):
        return {"function": text}
    raise Misused(f"{text!r} is no place; give FILE:LINE, FILE:TEXT of the line, or a FUNCTION")


def is_place(text: str) -> bool:
    """Whether it is more than a plain name, which may be a session's."""
    return ":" in text
