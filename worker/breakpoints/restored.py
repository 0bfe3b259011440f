"""Breakpoints of an earlier worker or session, verified with the present files and interpreter.

A call would refuse an invalid breakpoint. Here it is kept with a message why it cannot be hit,
because its file may appear again.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any, Final

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.models.breakpoints import BreakpointSpec
from debug_relay.worker.breakpoints import functions
from debug_relay.worker.breakpoints.requests import spec_of
from debug_relay.worker.breakpoints.table import Entry
from debug_relay.worker.breakpoints.verification import Batch, Verifier
from debug_relay.worker.source.code_lines import parse_hit_condition

# A new session verifies the breakpoints that it takes over for this long; the rest is verified
# at the launch.
_VERIFY_SECONDS: Final = 5.0
_LATER: Final = "not verified yet: the launch verifies it"


async def restored_entries(
    verifier: Verifier, kept: list[dict[str, Any]]
) -> tuple[list[Entry], Batch | None]:
    """Entries under their former ids, if they had any, and the batch that verified them."""
    batch: Batch | None = None
    problem: RelayError | None = None
    try:
        batch = await verifier.batch()
    except RelayError as error:
        problem = error
    deadline = time.monotonic() + _VERIFY_SECONDS
    entries = []
    for one in kept:
        spec = spec_of(one)
        if batch is None or time.monotonic() > deadline:
            entry = _unverified(verifier, spec, problem)
        else:
            try:
                entry = await batch.verify(spec)
            except RelayError as error:
                entry = _unverified(verifier, spec, error)
        entry.id = str(one.get("id") or "")
        entries.append(entry)
    return entries, batch


def _unverified(verifier: Verifier, spec: BreakpointSpec, problem: RelayError | None) -> Entry:
    path, hit = spec.file or "", None
    with suppress(RelayError):  # the fields that are wrong stay at their defaults
        if spec.function is not None:
            return functions.entry_of(spec, verifier.absolute)
        path = verifier.absolute(path)
        hit = parse_hit_condition(spec.hit_condition) if spec.hit_condition else None
    return Entry(
        id="",
        path=path,
        real_path=os.path.realpath(path),
        line=spec.line or 0,
        condition=spec.condition,
        hit_condition=spec.hit_condition,
        log_message=spec.log_message,
        expected_text=spec.expected_text,
        enabled=spec.enabled,
        message=_LATER if problem is None else problem.message,
        suggestion=None if problem is None else problem.details["suggestion"],
        hit=hit,
    )


def number_of(id: str) -> int | None:
    """The number of an id: 7 for `bp_7`; None if the id has another form."""
    number = id.removeprefix("bp_")
    return int(number) if number.isascii() and number.isdigit() and id != number else None
