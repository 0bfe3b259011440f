"""Shows a reply that an `Idempotency-Key` has kept as the answer to the present request.

Replies are kept as JSON. An earlier version of the relay may have kept one as text, or with other
fields.
"""

from __future__ import annotations

from typing import Final

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.fields import Result
from debug_relay.protocol.refusals import decode_error
from debug_relay.protocol.rendering import text
from debug_relay.protocol.rendering.results import render_json
from debug_relay.protocol.wire import envelope
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.operations.answers import Finished

_log: Final = Log(__name__)
# A reply that an earlier version kept as text is shown up to this length.
_KEPT_CHARACTERS: Final = 4000


def kept_again(first: Finished, id: str, format: str, result: type[Result]) -> Finished:
    """A kept reply with the id and in the format of the present request.

    If it cannot be rendered in the requested format, the answer is the kept JSON.
    """
    if not first.content_type.startswith("application/json"):
        return _kept_as_text(first, format)
    ok, body = envelope.unwrap(first.body)
    as_json = msgspec.structs.replace(
        first, body=(envelope.success if ok else envelope.failure)(body, id)
    )
    if format == "json":
        return as_json
    try:
        lines = render_json(result, body) if ok else text.render_error(decode_error(body))
        encoded = text.encode_lines(lines, format)
    except (KeyError, ValueError) as error:  # such as an error code that does not exist any more
        _log.warning("kept_reply.not_rendered", error=str(error))
        return as_json
    return msgspec.structs.replace(first, body=encoded, content_type=text.CONTENT_TYPES[format])


def _kept_as_text(first: Finished, format: str) -> Finished:
    if format != "json":
        return first
    text_of_reply = first.body[:_KEPT_CHARACTERS].decode("utf-8", "replace")
    kind = first.content_type.partition(";")[0]
    raise RelayError(
        Code.IDEMPOTENCY_CONFLICT,
        "The request with this Idempotency-Key is done already. An earlier version of the relay "
        f"kept its reply as {kind}, which cannot become JSON",
        f"Read kept_reply, or send the same request with Accept: {kind}. A new key does it again.",
        kept_status=first.status,
        kept_reply=text_of_reply,
    )
