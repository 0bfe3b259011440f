"""One cell of the table: a target is attached to, stopped, let go, and looked at afterwards."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable
from typing import Any

from tests.kit.client import Session
from tests.kit.relay import Relay, eventually
from tests.matrix.targets import Target

WITHIN = 30.0
AGAIN = 10
COMPARISONS = 41


class Trial:
    """What was seen is in `seen`, what went wrong in `troubles`; the rest is tried all the same."""

    def __init__(self, relay: Relay, target: Target, twin: Target) -> None:
        """`twin` runs beside it on the same Python, and no debugger ever comes near."""
        self.relay = relay
        self.target = target
        self.twin = twin
        self.attached_ms: list[float] = []
        self.seen: dict[str, Any] = {}
        self.troubles: list[str] = []

    def run(self) -> dict[str, Any]:
        self.slowness = self.beside_twin()
        assert set(self.target.ask("children").values()) == {0}
        self.counts = self.settled()
        with self.relay.client.session() as session:
            self.note("hit", lambda: self.stop(session))
            self.note("detach", lambda: self.let_go(session))
            self.look("")
            self.note("again", lambda: self.again(session))
        with self.relay.client.session() as session:
            self.note("killed", lambda: self.kill_worker(session))
        self.look("_killed")
        with self.relay.client.session() as session:
            self.note("after_killed", lambda: self.once(session))
        self.seen["attach_ms"] = statistics.median(self.attached_ms) if self.attached_ms else None
        self.seen["troubles"] = self.troubles
        return self.seen

    def note(self, name: str, part: Callable[[], Any]) -> None:
        try:
            self.seen[name] = part()
        except Exception as error:
            self.seen[name] = None
            self.troubles.append(f"{name}: {type(error).__name__}: {error}"[:500])

    def beside_twin(self) -> float:
        """How slow it is beside its twin, asked in turn: what else the machine does hits both."""
        return statistics.median(
            self.target.ask("speed") / self.twin_alone() for _ in range(COMPARISONS)
        )

    def twin_alone(self) -> float:
        """Meanwhile the target stands: on the same core it would halve the speed, or would not."""
        os.kill(self.target.pid, signal.SIGSTOP)
        try:
            return float(self.twin.ask("speed"))
        finally:
            os.kill(self.target.pid, signal.SIGCONT)

    def settled(self) -> tuple[int, int]:
        """Threads and descriptors when they change no more: a connection may still be closing."""
        found = [self.target.counts()]

        def twice() -> bool:
            time.sleep(0.2)
            found.append(self.target.counts())
            return found[-1] == found[-2]

        eventually(twice)
        return found[-1]

    # -- parts

    def stop(self, session: Session) -> bool:
        """Attach, stand at the line with the right values, and make a step."""
        self.attach(session)
        target = self.target
        if not session.get("/breakpoints").ok()["breakpoints"]:
            session.break_at(target.path, target.line)
        self.finish = target.provoke()
        eventually(lambda: session.status()["status"] == "paused", WITHIN, "stopped at the line")
        assert session.line() == target.line
        n = int(session.value("n"))
        assert session.value("n + 1") == str(n + 1)
        # This thread alone: others may come to the breakpoint meanwhile.
        thread = session.status()["stopped_thread_id"]
        moved = session.post(f"/threads/{thread}/step-over", {}).ok()
        assert moved["current_location"]["line"] == target.line + 1, moved
        assert session.value("doubled", thread_id=thread) == str(2 * n)
        return True

    def attach(self, session: Session) -> None:
        began = time.monotonic()
        session.post("/attach", {"pid": self.target.pid, "connect_timeout": WITHIN}).ok()
        self.attached_ms.append((time.monotonic() - began) * 1000)

    def let_go(self, session: Session) -> bool:
        left = session.post("/detach").ok()
        assert (left["detached"], left["residue"]) == (True, None), left
        self.finish()
        return True

    def once(self, session: Session) -> bool:
        return self.stop(session) and self.let_go(session)

    def again(self, session: Session) -> int:
        good = 0
        for _ in range(AGAIN):
            good += self.once(session)
        return good

    def kill_worker(self, session: Session) -> bool:
        self.stop(session)
        os.kill(self.relay.worker(session.id).pid, signal.SIGKILL)
        self.finish()
        return True

    def look(self, when: str) -> None:
        """What is left of us in it: threads, descriptors, speed, and how its children end."""
        target = self.target
        self.note("free" + when, self.is_free)
        self.note("speed" + when, lambda: self.beside_twin() / self.slowness)
        self.note("children" + when, lambda: target.ask("children"))

    def is_free(self) -> bool:
        eventually(
            lambda: all(a <= b for a, b in zip(self.target.counts(), self.counts, strict=True)),
            WITHIN,
            f"{self.counts} threads and descriptors as before",
        )
        return True
