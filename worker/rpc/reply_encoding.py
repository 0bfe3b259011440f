"""Replies as bytes, in the format that was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.models import inspection
from debug_relay.protocol.rendering import text
from debug_relay.protocol.rendering.results import picture
from debug_relay.protocol.rendering.stop import excerpt_lines
from debug_relay.protocol.wire.envelope import encode_json, error_body
from debug_relay.worker.session.session import Session
from debug_relay.worker.source.excerpts import excerpt

_JSON: Final = "application/json"
_AROUND: Final = 2


async def written(session: Session, format: str, answer: Any) -> tuple[bytes, str]:
    """The body and its content type."""
    if format not in text.CONTENT_TYPES:
        return encode_json(answer), _JSON
    lines = list(picture(answer))
    if isinstance(answer, inspection.Stack) and answer.frames:
        lines += await _top(session, answer.frames[0])
    return text.written(lines, format), text.CONTENT_TYPES[format]


def refused(format: str, error: RelayError) -> tuple[bytes, str]:
    if format in text.CONTENT_TYPES:
        return text.written(text.failure(error), format), text.CONTENT_TYPES[format]
    return error_body(error), _JSON


async def _top(session: Session, frame: inspection.Frame) -> Iterator[text.Line]:
    """A stack in words shows the line it stands on."""
    lines = await session.sources.lines(frame.source.path)
    shown = excerpt(frame.source.path, lines, frame.line, _AROUND) if lines else None
    return excerpt_lines(shown.lines) if shown is not None else iter(())
