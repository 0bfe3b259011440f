"""Server-sent events: one stream as the reply of a plain GET."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from aiohttp import HttpVersion11, web

from debug_relay.supervisor.streams import forms
from debug_relay.supervisor.streams.stream import Patience, Stream

_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Accel-Buffering": "no",  # a proxy in between passes everything on at once
}


async def send_events(
    http: web.BaseRequest, stream: Stream, request_id: str, patience: Patience
) -> web.StreamResponse:
    response = web.StreamResponse(headers={**_HEADERS, "X-Request-ID": request_id})
    # The connection ends with the stream: a client that has missed the end sees it close.
    response.force_close()
    if http.version >= HttpVersion11:
        response.enable_chunked_encoding()
    await response.prepare(http)
    if http.method == "HEAD":
        return response

    async def send(data: bytes) -> None:
        await response.write(data or forms.HEARTBEAT)
        await http.writer.drain()

    await send(forms.OPENING)
    end = await stream.run(send)
    try:
        async with asyncio.timeout(patience.linger):
            await send(forms.sse_end(end))
            await response.write_eof()
    except TimeoutError:
        if http.transport is not None:
            http.transport.abort()
        with suppress(ConnectionError):
            await response.write_eof()
    return response
