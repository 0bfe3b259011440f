"""Text of breakpoints and exception filters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from debug_relay.protocol.models import breakpoints
from debug_relay.protocol.models.fields import Count, Deleted
from debug_relay.protocol.rendering.text import Line, plural, short

_NOT_KEPT = "warning: the change is not on disk"


def breakpoint(point: breakpoints.Breakpoint) -> str:
    place = f"{point.source['path']}:{point.line}" if point.source else ""
    where = f"{point.function} {place}".strip() if point.function else place
    if point.watch is not None:
        scope = point.scope
        code = scope.function or ", ".join(scope.files) if scope is not None else ""
        where = f"watch {short(point.watch, 80)} in {short(code, 200)}"
    marks = [f"of {point.owner}"] if point.owner else []
    marks += [f"if {point.condition}"] if point.condition else []
    marks += [f"hits {point.hit_condition}"] if point.hit_condition else []
    marks += [f"log {point.log_message!r}"] if point.log_message else []
    marks += [] if point.enabled else ["disabled"]
    marks += [] if point.verified else ["not verified"]
    marks += [f"hit {plural(point.hit_count, 'time')}"] if point.hit_count else []
    if point.change is not None:
        change, at = point.change, point.change.location
        by = "code that is not watched" if at is None else f"{at.path}:{at.line}"
        marks.append(f"last {short(change.before, 60)} → {short(change.after, 60)} by {by}")
    marks += [short(point.message)] if point.message else []
    marks += [f"→ {short(point.suggestion)}"] if point.suggestion else []
    return "  ".join([f"{point.id} {where}", *(short(mark, 300) for mark in marks)])


def listed(result: breakpoints.BreakpointList | breakpoints.BreakpointsSet) -> Iterator[Line]:
    yield from (breakpoint(point) for point in result.breakpoints)
    if not result.breakpoints:
        yield "no breakpoints"
    if isinstance(result, breakpoints.BreakpointsSet) and not result.persisted:
        yield _NOT_KEPT


def changed(result: breakpoints.BreakpointChanged) -> Iterator[Line]:
    yield breakpoint(result)
    if not result.persisted:
        yield _NOT_KEPT


def deleted(result: Deleted) -> Iterator[Line]:
    yield f"{result.id} deleted" if result.deleted else f"{result.id} not deleted"
    if isinstance(result, breakpoints.BreakpointRemoved) and not result.persisted:
        yield _NOT_KEPT


def count(result: Count) -> Iterator[Line]:
    is_kept = not isinstance(result, breakpoints.BreakpointsCleared) or result.persisted
    yield f"{result.deleted} deleted"
    if not is_kept:
        yield _NOT_KEPT


def exceptions(result: breakpoints.ExceptionBreakpoints) -> Iterator[Line]:
    what = [*result.filters, *result.types]
    marks = [f"if {short(result.condition, 300)}"] if result.condition else []
    marks += [f"raised in {result.raised_in} code"] if result.raised_in else []
    names = short(", ".join(what), 1000)
    yield "  ".join([f"stops at exceptions: {names}" if what else "stops at no exceptions", *marks])
    if result.unknown_types and not result.message:
        yield f"no class has the name yet: {short(', '.join(result.unknown_types), 300)}"
    if result.message:
        yield short(result.message)


def place_of(spec: Mapping[str, Any]) -> str:
    """One breakpoint as a caller has requested it."""
    source = spec.get("source")
    file = source.get("path") if isinstance(source, Mapping) else spec.get("file")
    place = spec.get("line") or spec.get("function") or spec.get("text")
    where = f"{file}:{place}" if file and place else str(file or place or "?")
    known = (("condition", "if"), ("hit_condition", "hits"), ("log_message", "log"))
    marks = [f"{word} {spec[name]}" for name, word in known if spec.get(name)]
    marks += ["disabled"] if spec.get("enabled") is False else []
    return short("  ".join([where, *marks]))
