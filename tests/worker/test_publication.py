"""What supervisors are sent when the public state changes, and how often."""

from __future__ import annotations

import asyncio

from debug_relay.worker.state.publication import Publication


def test_a_fast_step_ships_one_state():
    async def step() -> tuple[list[int], list[int]]:
        pushed: list[int] = []
        publication = Publication(lambda: pushed.append(publication.version))
        publication.announce()  # the events of the step are written
        publication.changed_for_a_moment()
        publication.announce()
        await asyncio.sleep(0)
        before = list(pushed)
        publication.changed()  # it has stopped
        await asyncio.sleep(0.05)
        return before, pushed

    assert asyncio.run(step()) == ([], [3])


def test_a_program_that_runs_on_is_published():
    async def resume() -> list[int]:
        pushed: list[int] = []
        publication = Publication(lambda: pushed.append(publication.version))
        publication.changed_for_a_moment()
        await asyncio.sleep(0.05)
        publication.announce()
        await asyncio.sleep(0)
        return pushed

    assert asyncio.run(resume()) == [2, 2]
