"""Reads request bodies whole, within bounds on size and time, or refuses them.

This module knows how HTTP frames a body, not what is in it.
"""

from __future__ import annotations

import asyncio
import contextlib

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.version import MAX_BODY_BYTES
from debug_relay.supervisor.http.bodies_in_flight import Share
from debug_relay.supervisor.http.connection import connection_of


async def read_body(
    request: web.BaseRequest,
    share: Share,
    max_bytes: int = MAX_BODY_BYTES,
    deadline: float = 30.0,
) -> bytes:
    """The whole body; raises RelayError, and then the connection is closed after the reply."""
    try:
        return await _bounded_body(request, share, max_bytes, deadline)
    except RelayError:
        # The rest of this body must not be parsed as the next request.
        connection_of(request).last = True
        raise


async def _bounded_body(
    request: web.BaseRequest, share: Share, max_bytes: int, deadline: float
) -> bytes:
    declared = request.content_length or 0
    if declared > max_bytes:
        raise _too_large(max_bytes, declared)
    share.grow(declared)
    _require_plain(request)
    try:
        # Most bodies have come with the head.
        has_come = request.content.is_eof()
        async with contextlib.nullcontext() if has_come else asyncio.timeout(deadline):
            return await _collected(request, share, max_bytes)
    except TimeoutError:
        raise RelayError(
            Code.REQUEST_TIMEOUT,
            f"The body of {request.method} did not arrive within {deadline:g} seconds.",
            "Send the whole body at once; Content-Length must be its exact length.",
            received_bytes=request.content.total_bytes,
            announced_bytes=request.content_length,
        ) from None
    except (web.RequestPayloadError, HttpProcessingError) as error:
        raise RelayError(
            Code.INVALID_REQUEST,
            "The body is not framed as its headers say.",
            "Send it with Content-Length, or in well-formed chunks.",
            problem=str(error)[:200],
        ) from error


async def _collected(request: web.BaseRequest, share: Share, max_bytes: int) -> bytes:
    content = request.content
    expects = request.version >= HttpVersion11 and request.headers.get("Expect", "").lower()
    if expects == "100-continue" and not content.is_eof() and request.transport is not None:
        # curl waits up to a second for this line before it sends a body above 1 MB.
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    pieces, size = [], 0
    while piece := await content.readany():
        size += len(piece)
        if size > max_bytes:
            raise _too_large(max_bytes, None)
        if request.content_length is None:
            share.grow(len(piece))
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(max_bytes: int, announced: int | None) -> RelayError:
    size = f"{announced} bytes" if announced else f"more than {max_bytes} bytes"
    return RelayError(
        Code.REQUEST_TOO_LARGE,
        f"The body has {size}; at most {max_bytes} are taken.",
        f"Send at most {max_bytes} bytes, or raise [server] max_body_bytes.",
        max_bytes=max_bytes,
        announced_bytes=announced,
    )


def _require_plain(request: web.BaseRequest) -> None:
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise RelayError(
            Code.UNSUPPORTED_MEDIA_TYPE,
            f"The body is encoded as {encoding[:100]}; bodies are plain JSON.",
            "Send the body uncompressed, without a Content-Encoding header.",
        )
