"""Keeps whether the program waits for input, and the prompt that it printed."""

from __future__ import annotations

from msgspec import Struct

from debug_relay.worker.debugger.hub import Hub
from debug_relay.worker.state.log import SessionLog
from debug_relay.worker.state.publication import Publication


class InputRequest(Struct, frozen=True):
    """The program waits for input; `prompt` is what it printed to ask for it."""

    prompt: str | None
    warning: str | None = None


class InputRequests:
    def __init__(self, hub: Hub, log: SessionLog, publication: Publication) -> None:
        self._hub = hub
        self._log = log
        self._publication = publication
        self.waiting: InputRequest | None = None
        self.count = 0  # how often the session's programs have begun to wait for input

    def set(self, waiting: InputRequest | None, anew: bool) -> None:
        """Note and journal that the program has begun to wait for input, or no longer waits."""
        if waiting is None and self.waiting is None:
            return
        self.waiting = waiting
        self.count += waiting is not None and anew
        shown = waiting if waiting is not None else InputRequest(None)
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
        """Whether the program has begun to wait since then, and only input can resume it. With a
        second thread, that thread may run on and stop.
        """
        return self.waiting is not None and self.count > count and len(self._hub.thread_ids()) < 2
