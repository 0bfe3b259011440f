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


def test_a_wait_ends_with_the_change_and_before_it_is_published():
    """A step's reply then has the state of its stop, and no frame of its own has to bring it."""

    async def wait() -> tuple[list[str], int]:
        ended: list[str] = []
        publication = Publication(lambda: ended.append("published"))

        async def until() -> None:
            assert await publication.until(lambda: publication.version > 1, 60, asyncio.Event())
            ended.append("answered")

        waiting = asyncio.create_task(until())
        await asyncio.sleep(0)
        tasks = len(asyncio.all_tasks())
        publication.changed()
        await asyncio.wait_for(waiting, 5)
        await asyncio.sleep(0)
        return ended, tasks

    assert asyncio.run(wait()) == (["answered", "published"], 2)


def test_a_wait_ends_when_its_caller_leaves_or_its_time_is_over():
    async def wait() -> list[bool]:
        publication, left = Publication(lambda: None), asyncio.Event()
        other = asyncio.create_task(publication.until(lambda: False, 60, asyncio.Event()))
        waiting = asyncio.create_task(publication.until(lambda: False, 60, left))
        await asyncio.sleep(0)
        publication.abandon(left)
        seen = [await asyncio.wait_for(waiting, 5)]
        seen.append(await publication.until(lambda: False, 0.01, asyncio.Event()))
        seen.append(other.done())
        other.cancel()
        return seen

    assert asyncio.run(wait()) == [False, False, False]
