"""Verifies the well-formed entries of a batch of breakpoints in which other entries are malformed.

The worker verifies lines, conditions and files with the session's interpreter. So a caller learns
in one reply of everything that is wrong with the batch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.breakpoints import MAX_BATCH, BreakpointSpec, SetBreakpoints
from debug_relay.protocol.operations import VERIFY_BREAKPOINTS
from debug_relay.protocol.refusals import Problem, Problems
from debug_relay.supervisor.sessions.mirror import Session

_VERIFY_SECONDS: Final = 10.0  # A worker verifies the breakpoints of a batch within this time.
_ENTRY: Final = re.compile(r"breakpoints\[(\d+)\](.*)", re.DOTALL)


async def verify_sound_entries(
    session: Session, body: Mapping[str, Any], found: list[Problem]
) -> None:
    """Adds to `found` the worker's problems with the entries that are not in `found` yet."""
    entries = body.get("breakpoints")
    if not isinstance(entries, list) or len(entries) > MAX_BATCH:
        return
    malformed = set()
    for problem in found:
        if entry := _ENTRY.fullmatch(problem.field):
            malformed.add(int(entry.group(1)))
            problem.code = Code.INVALID_REQUEST
    sound = [index for index in range(len(entries)) if index not in malformed]
    if sound:
        found += await _verified(session, entries, sound)


async def _verified(session: Session, entries: list[Any], sound: list[int]) -> list[Problem]:
    specs = msgspec.convert([entries[index] for index in sound], list[BreakpointSpec])
    params = SetBreakpoints(session_id=session.id, breakpoints=specs)
    try:
        problems = (
            await session.ask(VERIFY_BREAKPOINTS, params, Problems, _VERIFY_SECONDS)
        ).problems
    except RelayError:
        return []  # without an answer of the worker the reply has the malformed entries only
    for problem in problems:
        entry = _ENTRY.fullmatch(problem.field)
        assert entry is not None
        problem.field = f"breakpoints[{sound[int(entry.group(1))]}]{entry.group(2)}"
    return problems
