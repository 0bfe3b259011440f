"""Takes what the program printed out of an answer, for a caller whose token may not read output.

Such a caller still learns that something was printed. `OUTPUT_WITHHELD` says why it sees no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.models.output_events import PRINTED, AllEventsPage, EventPage
from debug_relay.protocol.models.stop_report import Stop
from debug_relay.protocol.refusals import OUTPUT_WITHHELD

_PRINTED_DETAIL: Final = "output_tail"  # a detail of errors about failed starts


def in_result(result: Struct) -> Struct:
    """The result without output. Stop reports are cut to a size, so their makers do it before."""
    if isinstance(result, EventPage | AllEventsPage):
        for event in result.events:
            event.body = in_event(event.type, event.body)
        return result
    if getattr(result, "prompt", None):
        # The supervisor's copy of a session's state has more readers than this caller.
        return msgspec.structs.replace(result, prompt=None)
    return result


def in_event(type: str, body: Any) -> Any:
    """The event's body without output. A type that this version does not know loses its body."""
    printed = PRINTED.get(type)
    if printed is None or not isinstance(body, Mapping):
        return {"note": OUTPUT_WITHHELD}
    found = [name for name in printed if body.get(name)]
    return {**body, **dict.fromkeys(found, ""), "note": OUTPUT_WITHHELD} if found else body


def in_stop(stop: Stop) -> None:
    if stop.output or any(cut.part == "output" for cut in stop.cut):
        stop.output = []
        stop.cut = [cut for cut in stop.cut if cut.part != "output"]
        stop.note = " ".join(filter(None, (stop.note, OUTPUT_WITHHELD)))


def in_error(error: RelayError) -> None:
    if error.details.get(_PRINTED_DETAIL):
        error.details |= {_PRINTED_DETAIL: "", "note": OUTPUT_WITHHELD}
