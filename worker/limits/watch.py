"""The limits of a session: who passes one is told, and ended or let go.

Watched here and not in the supervisor: a limit must hold while no supervisor lives, and a worker
sees all of it: the program is its child, orphans are given to it, output goes through it. A session
without limits is not watched at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from debug_relay.protocol.models.limits import (
    LIMITS,
    LimitChanges,
    Limits,
    PassedLimit,
    Use,
    amount,
    changed,
)
from debug_relay.protocol.state import LIVE, Event, State
from debug_relay.worker.debuggee.target import Target
from debug_relay.worker.debugger import run_control as run
from debug_relay.worker.limits.meter import NEAR, Meter

if TYPE_CHECKING:
    from debug_relay.worker.session.session import Session

log = logging.getLogger("debug_relay.worker")
_LONGEST: Final = 1.0  # between two looks
_SHORTEST: Final = 0.05
_FAR: Final = 0.5  # of what is allowed: who has come down to this is warned anew
_GRACE: Final = 1.0
_LOOKED_AT: Final = LIVE | {State.TERMINATED}
_Used = tuple[str, float, float]  # a limit's name, what is allowed, what is used
# Who passes these goes on growing while it is asked to end.
_AT_ONCE: Final = frozenset({"memory_bytes", "processes"})


class LimitWatch:
    """Of one session, over one run of a program after the other."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.of_run = session.params.config.limits
        self.passed: PassedLimit | None = None
        self.meter: Meter | None = None
        self._lasts = False  # whether that run does
        self._warned: dict[str, str] = {}
        self._seen: tuple[dict[str, float], float] = {}, 0.0  # at the last look, and when
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def warning(self) -> str | None:
        return "; ".join(self._warned.values()) or None

    # -- what is allowed

    def launch_with(self, changes: LimitChanges | None) -> None:
        """The session's, and over them what this launch has of its own."""
        self.of_run = changed(self._session.params.config.limits, changes)

    def change(self, changes: LimitChanges) -> None:
        """From now on, also for what runs."""
        config = self._session.params.config
        config.limits = changed(config.limits, changes)
        self.of_run = changed(self.of_run, changes)
        self._warned.clear()
        self._news.set()

    # -- the run

    def follow(self, event: Event) -> None:
        """The session's state has changed by this."""
        lives = self._session.state in LIVE
        if event is Event.STARTING:
            self.passed, self.meter, self._lasts = None, None, False
        elif lives and not self._lasts:
            self._begin()
        elif not lives:
            # Its watch is not cancelled: it may be what has just ended the program. What a program
            # of ours leaves running is watched on.
            self._warned = {}
            self._lasts = self._lasts and self._session.state is State.TERMINATED
            self._news.set()

    def _begin(self) -> None:
        """The program itself runs; how long it took to come under the debugger is not its time."""
        target = self._session.target
        assert target is not None
        self._warned, self._seen, self._lasts = {}, ({}, 0.0), True
        if target.attached:
            self.of_run = self._session.params.config.limits
        self.meter = Meter(
            target.processes, lambda: self._session.printed_bytes, newborn=not target.attached
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
            self._news.clear()
            pause: float | None = None  # without limits: until there are some
            if any_of(self.of_run):
                try:
                    pause = await self._look(meter)
                except Exception:
                    # Whatever it was: the limits hold on, and the next look tries again.
                    log.exception("limits.failed")
                    pause = _LONGEST
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._news.wait()

    async def _look(self, meter: Meter) -> float:
        """Seconds until the next one."""
        state = self._session.state
        if state is State.TERMINATED and self._nobody_is_left():
            self._lasts = False
        if state not in _LOOKED_AT or not self._lasts:
            return _LONGEST
        use = await meter.use(self.of_run)
        if use is None or self._session.state is not state or meter is not self.meter:
            return _SHORTEST  # of another state, or run, by now
        uses = list(self._uses(use))
        for name, allowed, used in uses:
            if used > allowed:
                await self._end(PassedLimit(limit=name, allowed=allowed, used=used))
                return _LONGEST
        self._warn(uses)
        return self._pause(uses, use.wall_seconds)

    def _nobody_is_left(self) -> bool:
        target = self._session.target
        return target is None or target.attached or target.processes() == []

    def _pause(self, uses: list[_Used], now: float) -> float:
        """Sooner while it is young, and when at this pace something comes to its limit sooner."""
        before, then = self._seen
        self._seen = {name: used for name, _, used in uses}, now
        pause = min(_LONGEST, now / 4)
        for name, allowed, used in uses:
            grown = used - before.get(name, used)
            mark = allowed * NEAR if used < allowed * NEAR else allowed
            if grown > 0:
                pause = min(pause, (mark - used) / grown * (now - then))
        return max(pause, _SHORTEST)

    def _uses(self, use: Use) -> Iterator[_Used]:
        for name in LIMITS:
            if allowed := getattr(self.of_run, name):
                yield name, allowed, round(getattr(use, name), 3)

    # -- what follows

    def _warn(self, uses: list[_Used]) -> None:
        """Once, when it comes near a limit; again when it had gone far from it."""
        before = dict(self._warned)
        for name, allowed, used in uses:
            alone = name == "processes" and used <= 1  # one process is no sign of more
            if used < allowed * _FAR:
                self._warned.pop(name, None)
            elif used >= allowed * NEAR and not alone and name not in self._warned:
                words = (
                    f"{amount(name, used)} of {amount(name, allowed)} that the limit {name} allows"
                )
                self._warned[name] = words
                self._tell("warning", name, allowed, used, words)
        if before != self._warned:
            self._session.changed()

    def _tell(self, reason: str, name: str, allowed: float, used: float, words: str) -> None:
        body = {
            "reason": reason,
            "limit": name,
            "allowed": allowed,
            "used": used,
            "share": round(used / allowed, 6),
            "message": words,
        }
        log.info(f"limits.{reason}", extra={"fields": body})
        self._session.journal("process", body)

    async def _end(self, passed: PassedLimit) -> None:
        session, target = self._session, self._session.target
        assert target is not None
        lives = session.state in LIVE
        if self.passed is None:
            follows = "let go and runs on" if target.attached else "ended"
            who = "The program" if lives else "What the program has left running"
            words = f"{who} passed {passed.words()}; it is {follows}"
            self.passed = passed
            self._tell("limit", passed.limit, passed.allowed, passed.used, words)
            session.say(words + ".")
            session.changed()
        # A bound that leaves what has passed it is none.
        target.keeps_children = target.attached
        if target.attached:
            await self._let_go(target)
        elif lives:
            session.end_reason = "limit"
            await target.end(0 if passed.limit in _AT_ONCE else _GRACE)
        else:
            await self._end_what_is_left(target)

    async def _end_what_is_left(self, target: Target) -> None:
        """Not what the next run has started."""
        session = self._session
        async with session.driving:
            if session.target is target and session.state is State.TERMINATED:
                await session.end_children()

    async def _let_go(self, target: Target) -> None:
        async with self._session.driving:
            if self._session.target is target and self._session.state in LIVE:
                await run.let_go(self._session, target)


def any_of(limits: Limits) -> bool:
    return any(getattr(limits, name) for name in LIMITS)
