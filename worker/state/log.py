"""The session's log: its program's output, and its events.

Output becomes events as well. An event is written after the output that came before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from debug_relay.protocol.models.output_events import Category, EventType
from debug_relay.worker.state.publication import Publication
from debug_relay.worker.state.settings import Settings
from debug_relay.worker.storage.journal import EventLog, OutputEventWriter, OutputLog

_TAIL_BYTES: Final = 4096  # The end of the output that is kept in memory.

# Gives the caller that caused an event, by the event's type and body.
CallerOf = Callable[[EventType, Mapping[str, Any]], str | None]
Printed = Callable[[Category, bytes], None]


class SessionLog:
    def __init__(
        self, settings: Settings, publication: Publication, caller_of: CallerOf, printed: Printed
    ) -> None:
        """`printed` is called with all output."""
        params, folder = settings.params, settings.folder
        loop = asyncio.get_running_loop()
        self._publication = publication
        self._caller_of = caller_of
        self._printed = printed
        self.events = EventLog(
            folder / "events.ring",
            folder / "outputs.ring",
            params.events_max,
            first_seq=params.first_seq,
            announce=publication.announce,
        )
        self.output = OutputLog(folder / "output.ring", params.output_max_bytes)
        self._output_events = OutputEventWriter(self.events, loop.call_later, loop.time)
        self._tail = b""
        self._known_lost = 0
        self.printed_bytes = 0  # all that the session's programs have printed

    def journal(self, type: EventType, body: Mapping[str, Any]) -> None:
        """Write an event."""
        if type != "output":
            self._output_events.flush()
        caller = self._caller_of(type, body)
        self.events.append(type, body if caller is None else {**body, "caller": caller})
        self._note_losses()

    def take_output(
        self, category: Category, data: bytes, origin: dict[str, Any] | None = None
    ) -> None:
        self._tail = (self._tail + data)[-_TAIL_BYTES:]
        if category != "console":
            self.printed_bytes += len(data)
        self.output.write(category, data, origin)
        self._output_events.add(category, data, origin.get("pid") if origin else None)
        self._printed(category, data)
        self._note_losses()

    def say(self, text: str) -> None:
        """Write a line of the relay's own into the output."""
        self.take_output("console", (text.rstrip("\n") + "\n").encode())

    # -- the last output, for the error of a failed launch

    def tail(self, most: int) -> str:
        return self._tail.decode("utf-8", "replace")[-most:]

    def forget_tail(self) -> None:
        self._tail = b""

    # -- entries that could not be written to disk

    @property
    def lost(self) -> int:
        return self.events.lost + self.output.lost

    def _note_losses(self) -> None:
        if self.lost != self._known_lost:
            self._known_lost = self.lost
            self._publication.changed()

    # -- ends

    def program_ended(self) -> None:
        """Write the output that was held back, such as half a character: no more follows."""
        self.output.flush("stdout")
        self.output.flush("stderr")
        self._output_events.flush(final=True)

    def close(self) -> None:
        self._output_events.flush(final=True)
        self._output_events.close()
        self.output.close()
        self.events.close()
