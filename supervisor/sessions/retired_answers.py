"""Answers from the files that a retired worker has left, by operation.

The format is `protocol.models.retired_session`; rows of a trace are in their ring.
"""

from __future__ import annotations

import os
from functools import partial

import msgspec
from msgspec import Struct

from debug_relay.protocol.models import breakpoints as b
from debug_relay.protocol.models import inspection as i
from debug_relay.protocol.models.execution import GetTrace, TraceRows
from debug_relay.protocol.models.retired_session import FILE, Aftermath
from debug_relay.protocol.models.sessions import ProcessUse, Resources
from debug_relay.protocol.models.stop_report import Snapshot, StopReport
from debug_relay.protocol.refusals import wrong_state
from debug_relay.protocol.state import State
from debug_relay.protocol.system import procfs
from debug_relay.protocol.trace_pages import FILE as TRACE_FILE
from debug_relay.protocol.trace_pages import PageSize, nothing_was_traced, page_of
from debug_relay.protocol.wire.ring_format import RingCorrupt
from debug_relay.supervisor.output.ring_reader import opened
from debug_relay.supervisor.sessions.mirror import Session
from debug_relay.supervisor.storage.json_files import read_json


def answer(session: Session, operation: str, params: Struct) -> Struct | None:
    """The answer; None if only a worker can answer. Raises RelayError for a refusal. Blocks for as
    long as the disk does.
    """
    if isinstance(params, Snapshot):
        return _end(session, params)
    if operation not in _ANSWERED:
        return None
    try:
        left = msgspec.convert(read_json(session.folder / FILE), Aftermath, str_keys=True)
    except msgspec.ValidationError:
        return None
    if isinstance(params, GetTrace):
        return _rows(session, left, params)
    if isinstance(params, b.ListBreakpoints):
        return _listed(left, params)
    if isinstance(params, b.OneBreakpoint):
        # None for an unknown one: a worker's refusal lists the existing ones.
        return next((one for one in left.breakpoints if one.id == params.breakpoint_id), None)
    if operation == "list-watches":
        return i.WatchList(watches=left.watches, total=len(left.watches))
    return _resources(left) if operation == "resources" else left.exception_breakpoints


_ANSWERED = frozenset(
    {
        "list-breakpoints", "get-breakpoint", "get-exception-breakpoints", "list-watches",
        "resources", "get-trace",
    }
)  # fmt: skip


def _end(session: Session, params: Snapshot) -> StopReport:
    """The next stop of a session that has ended."""
    known = session.state
    if not params.wait:
        paused = frozenset({State.PAUSED})
        raise wrong_state("snapshot", known.status, paused, session.id, known.program)
    return StopReport(
        status=known.status,
        exit_code=known.exit_code,
        signal=known.signal,
        end_reason=known.end_reason,
    )


def _rows(session: Session, left: Aftermath, params: GetTrace) -> TraceRows | None:
    if left.execution is None:
        return None  # an earlier version wrote it
    if left.trace is None:
        raise nothing_was_traced(session.state.status)
    now = msgspec.structs.replace(left.execution, events_cursor=session.events.end_cursor())
    with opened(session.folder / TRACE_FILE) as fd:
        if fd is None:
            return None
        try:
            return page_of(
                partial(os.pread, fd),
                session.id,
                left.trace,
                params.cursor,
                PageSize(params.limit),
                now,
            )
        except RingCorrupt:
            return None


def _resources(left: Aftermath) -> Resources:
    """The resources, without kept processes that have ended since."""
    living = [one for one in left.resources.processes if _lives(one)]
    return msgspec.structs.replace(left.resources, processes=living)


def _lives(process: ProcessUse) -> bool:
    row = procfs.stat(process.pid)
    return row is not None and round(procfs.boot_time() + row.started, 2) == process.start_time


def _listed(left: Aftermath, params: b.ListBreakpoints) -> b.BreakpointList | None:
    found = left.breakpoints
    if params.file is not None:
        if not os.path.isabs(params.file):
            return None  # only a worker knows what it is relative to
        wanted = os.path.realpath(params.file)
        found = [
            one for one in found if one.source and os.path.realpath(one.source["path"]) == wanted
        ]
    if params.verified is not None:
        found = [one for one in found if one.verified is params.verified]
    return b.BreakpointList(breakpoints=found, total=len(found))
