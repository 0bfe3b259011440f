"""One event as one line: time, session, number, type, and what matters of its body."""

from __future__ import annotations

from typing import Any

from debug_relay.supervisor.cli.client import terminal

_TEXT_CHARACTERS = 200  # One value in a line of an event.
_COLOURS = {"stopped": terminal.YELLOW, "terminated": terminal.RED, "output": terminal.DIM}
_NOISE = ("pid", "description", "preserve_focus_hint", "all_threads_stopped", "is_child")


def line(name: str, event: dict[str, Any]) -> str:
    body = event.get("body") or {}
    kind = event["type"]
    say = {"stopped": _stopped, "terminated": _terminated, "breakpoint": _breakpoint}.get(kind)
    words = say(body) if say else _plain(body)
    clock = event["timestamp"].partition("T")[2].rstrip("Z")
    shown = terminal.paint(kind, _COLOURS.get(kind, ""))
    return f"{clock} {name} {event['seq']} {shown} {words}".rstrip()


def _stopped(body: dict[str, Any]) -> str:
    words = [str(body.get("reason", "")), _place(body.get("current_location"))]
    words += [f"stop {body['stop_id']}"] if body.get("stop_id") else []
    words += (
        [f"hit {','.join(body['hit_breakpoint_ids'])}"] if body.get("hit_breakpoint_ids") else []
    )
    words += [f"thread {body['thread_id']}"] if body.get("thread_id", 1) != 1 else []
    words += [_text(body["text"])] if body.get("text") else []
    words += [f"by {body['caller']}"] if body.get("caller") else []
    return "  ".join(word for word in words if word)


def _terminated(body: dict[str, Any]) -> str:
    how = [f"exit code {body['exit_code']}"] if body.get("exit_code") is not None else []
    how += [str(body[key]) for key in ("signal", "end_reason") if body.get(key)]
    return ", ".join(how) or _plain(body)


def _breakpoint(body: dict[str, Any]) -> str:
    point = body.get("breakpoint") or {}
    path = (point.get("source") or {}).get("path", "")
    place = f"{path}:{point['line']}" if path and point.get("line") else point.get("function") or ""
    state = "" if point.get("verified", True) else "not verified"
    words = [str(body.get("reason", "")), str(point.get("id", "")), place, state]
    return "  ".join(word for word in words if word)


def _place(location: Any) -> str:
    if not isinstance(location, dict):
        return str(location or "")
    return f"{location['path']}:{location['line']} in {location['function']}"


def _plain(body: dict[str, Any]) -> str:
    return " ".join(
        f"{key}={_text(value)}"
        for key, value in body.items()
        if key not in _NOISE and value not in (None, "", [], {})
    )


def _text(value: Any) -> str:
    text = terminal.harmless(str(value).replace("\n", "\\n"))
    return text if len(text) <= _TEXT_CHARACTERS else text[:_TEXT_CHARACTERS] + "…"
