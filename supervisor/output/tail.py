"""The end of a program's output as one text."""

from __future__ import annotations

import base64
from typing import Final

from debug_relay.supervisor.output.pages import OutputPages

_PAGE_LINES: Final = 20_000  # Lines that one step towards the end of the output reads.


def last_output(pages: OutputPages, most: int) -> tuple[str, int]:
    """The last `most` bytes as text, and the number of bytes before them. Reads the whole ring, so
    it must run in a thread.
    """
    kept: list[bytes] = []
    size = left_out = 0
    cursor: str | None = None
    while True:
        page = pages.page(cursor, _PAGE_LINES, None)
        for entry in page.entries:
            data = (
                base64.b64decode(entry.output)
                if entry.encoding == "base64"
                else entry.output.encode()
            )
            kept.append(data)
            size += len(data)
        if size > 2 * most:
            whole = b"".join(kept)
            kept, left_out, size = [whole[-most:]] if most else [], left_out + size - most, most
        cursor = page.next_cursor
        if not page.has_more:
            break
    whole = b"".join(kept)
    end = whole[-most:] if most else b""
    left_out += len(whole) - len(end)
    return end.decode("utf-8", "replace"), left_out
