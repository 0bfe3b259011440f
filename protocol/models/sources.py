"""Modules that a program has loaded, and lines of its source."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from debug_relay.protocol.models.fields import (
    FrameId,
    Limit,
    Line,
    Offset,
    Result,
    SessionParams,
    SourcePath,
    ThreadId,
)


class Modules(SessionParams, kw_only=True):
    """The modules that the program has loaded; with `thread_id`, those of that thread's process."""

    thread_id: ThreadId | None = None
    offset: Offset = 0
    limit: Limit = 100


class Module(Result, kw_only=True):
    name: str
    path: str | None = None
    is_user_code: bool


class ModuleList(Result, kw_only=True):
    items: list[Module]
    total: int
    offset: int
    limit: int
    has_more: bool


TokenKind = Literal["keyword", "string", "number", "comment", "definition", "builtin", "decorator"]


class SourceToken(Result, kw_only=True):
    """A part of a line that a page may colour; characters count from 0."""

    start: int
    end: int
    kind: TokenKind


class GetSource(SessionParams, kw_only=True):
    """Source lines, of a file or of a frame."""

    path: SourcePath | None = None
    frame_id: FrameId | None = None
    thread_id: ThreadId | None = None
    start: Line | None = None
    end: Line | None = None
    tokens: Annotated[bool, Meta(description="Also what a page may colour in each line.")] = False


class SourceText(Result, kw_only=True):
    path: str
    start: int
    end: int
    total_lines: int
    lines: list[str]
    tokens: Annotated[
        list[list[SourceToken]] | None,
        Meta(description="For each line: what a page may colour in it."),
    ] = None
    decompiled: Annotated[
        bool,
        Meta(description="Rebuilt from byte code because there is no text; its lines are a guess."),
    ] = False
