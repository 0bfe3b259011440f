"""That the program waits for input: since when, and what it printed to ask for it."""

from __future__ import annotations

from msgspec import Struct

from debug_relay.worker.debugger.hub import Hub
from debug_relay.worker.state.log import SessionLog
from debug_relay.worker.state.publication import Publication


class Waiting(Struct, frozen=True):
    """That the program waits for input, and what it printed to ask for it."""

    prompt: str | None
    warning: str | None = None


class InputRequests:
    def __init__(self, hub: Hub, log: SessionLog, publication: Publication) -> None:
        self._hub = hub
        self._log = log
        self._publication = publication
        self.waiting: Waiting | None = None
        self.count = 0  # how often the session's programs have begun to wait

    def set(self, waiting: Waiting | None, anew: bool) -> None:
        """The program has begun to wait for input, or waits no longer."""
        if waiting is None and self.waiting is None:
            return
        self.waiting = waiting
        self.count += waiting is not None and anew
        shown = waiting if waiting is not None else Waiting(None)
        self._log.journal(
            "input",
            {
                "waiting_for_input": waiting is not None,
                "prompt": shown.prompt,
                "warning": shown.warning,
            },
        )
        self._publication.changed()

    def began_since(self, count: int) -> bool:
        """Whether the program has begun to wait since then and only input resumes it: where there
        is another thread, that may stop as well."""
        return self.waiting is not None and self.count > count and len(self._hub.thread_ids()) < 2
