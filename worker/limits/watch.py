"""Enforces the limits of a session: a program that exceeds one is ended, or detached from if it was
attached to.

The worker does this and not the supervisor, because a limit must hold while no supervisor runs, and
because the worker sees everything: the program is its child, orphans become its children, output
passes through it. A session without limits is not watched at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Final

from debug_relay.protocol.models.limits import (
    LIMITS,
    LimitChanges,
    Limits,
    PassedLimit,
    Use,
    format_amount,
    with_changes,
)
from debug_relay.protocol.state import LIVE, Event, State
from debug_relay.worker.debugger.run_control import RunControl
from debug_relay.worker.debugger.target import Debuggee, Target
from debug_relay.worker.limits.meter import NEAR_SHARE, Meter
from debug_relay.worker.state.core import Core

log = logging.getLogger("debug_relay.worker")
_LONGEST_PAUSE_SECONDS: Final = 1.0  # The longest pause between two checks of the limits.
_SHORTEST_PAUSE_SECONDS: Final = 0.05  # The shortest pause between two checks of the limits.
_FAR_SHARE: Final = 0.5  # A program that falls below this share of a limit is warned again.
_GRACE_SECONDS: Final = 1.0  # A program that has passed a limit has this long to end by itself.
_LOOKED_AT: Final = LIVE | {State.TERMINATED}
_Used = tuple[str, float, float]  # a limit's name, what is allowed, what is used
# A program over these limits keeps growing while it gets time to end.
_AT_ONCE: Final = frozenset({"memory_bytes", "processes"})


class LimitWatch:
    """The limits of one session, for one run of a program after the other."""

    def __init__(
        self,
        core: Core,
        debuggee: Debuggee,
        run: RunControl,
    ) -> None:
        self._settings = core.settings
        self._lifecycle = core.lifecycle
        self._log = core.log
        self._publication = core.publication
        self._debuggee = debuggee
        self._run = run
        self.of_run = core.settings.config.limits
        self.passed: PassedLimit | None = None
        self.meter: Meter | None = None
        self._lasts = False  # whether that run still lasts
        self._warned: dict[str, str] = {}
        # values at the last check, and its time
        self._seen: tuple[dict[str, float], float] = {}, 0.0
        self._changes = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def warning(self) -> str | None:
        return "; ".join(self._warned.values()) or None

    # -- what is allowed

    def launch_with(self, changes: LimitChanges | None) -> None:
        """The session's limits, overridden by those of this launch."""
        self.of_run = with_changes(self._settings.config.limits, changes)

    def change(self, changes: LimitChanges) -> None:
        """Changes the limits from now on, for the present run too."""
        config = self._settings.config
        config.limits = with_changes(config.limits, changes)
        self.of_run = with_changes(self.of_run, changes)
        self._warned.clear()
        self._changes.set()

    # -- the run

    def follow(self, event: Event) -> None:
        """Called after each change of the session's state."""
        lives = self._lifecycle.state in LIVE
        if event is Event.STARTING:
            self.passed, self.meter, self._lasts = None, None, False
        elif lives and not self._lasts:
            self._begin()
        elif not lives:
            # We do not cancel the watch: it may be the task that has just ended the program. It
            # also keeps watching processes that a launched program leaves running.
            self._warned = {}
            self._lasts = self._lasts and self._lifecycle.state is State.TERMINATED
            self._changes.set()

    def _begin(self) -> None:
        """The program itself runs now; the time to start the debugger does not count."""
        target = self._debuggee.target
        assert target is not None
        self._warned, self._seen, self._lasts = {}, ({}, 0.0), True
        if target.attached:
            self.of_run = self._settings.config.limits
        self.meter = Meter(
            target.processes, lambda: self._log.printed_bytes, newborn=not target.attached
        )
        task = asyncio.create_task(self._watch(self.meter), name="limits")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, meter: Meter) -> None:
        while self._lasts and meter is self.meter:
            self._changes.clear()
            pause: float | None = None  # without limits: wait until some are set
            if any_of(self.of_run):
                try:
                    pause = await self._look(meter)
                except Exception:
                    # The limits stay in force whatever has failed; the next check tries again.
                    log.exception("limits.failed")
                    pause = _LONGEST_PAUSE_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changes.wait()

    async def _look(self, meter: Meter) -> float:
        """One check; returns the seconds until the next one."""
        state = self._lifecycle.state
        if state is State.TERMINATED and self._nobody_is_left():
            self._lasts = False
        if state not in _LOOKED_AT or not self._lasts:
            return _LONGEST_PAUSE_SECONDS
        use = await meter.use(self.of_run)
        if use is None or self._lifecycle.state is not state or meter is not self.meter:
            return _SHORTEST_PAUSE_SECONDS  # the state or the run has changed meanwhile
        uses = list(self._uses(use))
        for name, allowed, used in uses:
            if used > allowed:
                await self._end(PassedLimit(limit=name, allowed=allowed, used=used))
                return _LONGEST_PAUSE_SECONDS
        self._warn(uses)
        return self._pause(uses, use.wall_seconds)

    def _nobody_is_left(self) -> bool:
        target = self._debuggee.target
        return target is None or target.attached or target.processes() == []

    def _pause(self, uses: list[_Used], now: float) -> float:
        """Shorter while the run is young, and if a value approaches its limit at the
        present pace.
        """
        before, then = self._seen
        self._seen = {name: used for name, _, used in uses}, now
        pause = min(_LONGEST_PAUSE_SECONDS, now / 4)
        for name, allowed, used in uses:
            grown = used - before.get(name, used)
            mark = allowed * NEAR_SHARE if used < allowed * NEAR_SHARE else allowed
            if grown > 0:
                pause = min(pause, (mark - used) / grown * (now - then))
        return max(pause, _SHORTEST_PAUSE_SECONDS)

    def _uses(self, use: Use) -> Iterator[_Used]:
        for name in LIMITS:
            if allowed := getattr(self.of_run, name):
                yield name, allowed, round(getattr(use, name), 3)

    # -- what follows

    def _warn(self, uses: list[_Used]) -> None:
        """Warns once near a limit; again only after the value was far below it."""
        before = dict(self._warned)
        for name, allowed, used in uses:
            alone = name == "processes" and used <= 1  # a single process does not indicate growth
            if used < allowed * _FAR_SHARE:
                self._warned.pop(name, None)
            elif used >= allowed * NEAR_SHARE and not alone and name not in self._warned:
                words = (
                    f"{format_amount(name, used)} of the {format_amount(name, allowed)} "
                    f"that the limit {name} allows"
                )
                self._warned[name] = words
                self._journal("warning", name, allowed, used, words)
        if before != self._warned:
            self._publication.changed()

    def _journal(self, reason: str, name: str, allowed: float, used: float, words: str) -> None:
        body = {
            "reason": reason,
            "limit": name,
            "allowed": allowed,
            "used": used,
            "share": round(used / allowed, 6),
            "message": words,
        }
        log.info(f"limits.{reason}", extra={"fields": body})
        self._log.journal("process", body)

    async def _end(self, passed: PassedLimit) -> None:
        target = self._debuggee.target
        assert target is not None
        lives = self._lifecycle.state in LIVE
        if self.passed is None:
            follows = "detached and keeps running" if target.attached else "ended"
            who = "The program" if lives else "What the program left running"
            words = f"{who} passed {passed.words()}; it is {follows}"
            self.passed = passed
            self._journal("limit", passed.limit, passed.allowed, passed.used, words)
            self._log.say(words + ".")
            self._publication.changed()
        # A limit that left the exceeding processes running would not be a limit.
        target.keeps_children = target.attached
        if target.attached:
            await self._detach(target)
        elif lives:
            self._lifecycle.end_for("limit")
            await target.end(0 if passed.limit in _AT_ONCE else _GRACE_SECONDS)
        else:
            await self._end_what_is_left(target)

    async def _end_what_is_left(self, target: Target) -> None:
        """Ends the processes of this run, not those of a next one."""
        async with self._run.lock:
            if self._debuggee.target is target and self._lifecycle.state is State.TERMINATED:
                await self._debuggee.end_children()

    async def _detach(self, target: Target) -> None:
        async with self._run.lock:
            if self._debuggee.target is target and self._lifecycle.state in LIVE:
                await self._run.detach()


def any_of(limits: Limits) -> bool:
    return any(getattr(limits, name) for name in LIMITS)
