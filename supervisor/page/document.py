"""The live page for a person: one file, served with a policy that allows nothing but itself.

The page shows nothing by itself. Its script calls the API as any other caller does, so whoever has
no token sees an empty page.

A browser that follows another site's link gets the doorstep, a page with one link to the page that
was asked for: that site could have led somebody here who is clicking or typing already, and on the
live page keys and clicks drive programs.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from debug_relay.protocol.version import API_PREFIX

PAGE: Final = Path(__file__).with_name("page.html").read_bytes()
DOORSTEP: Final = Path(__file__).with_name("doorstep.html").read_bytes()
CONTENT_TYPE: Final = "text/html; charset=utf-8"
# The pages that have a doorstep: they are the same for everybody.
_PAGES: Final = frozenset({"/", "/docs", f"{API_PREFIX}/docs"})


def _source(page: bytes, tag: str) -> str:
    """The page's own script or style, by its hash: the browser runs no other."""
    text = re.search(rb"<%b>(.*?)</%b>" % (tag.encode(), tag.encode()), page, re.DOTALL)
    if text is None:
        return "'none'"
    return f"'sha256-{base64.b64encode(hashlib.sha256(text[1]).digest()).decode()}'"


def _headers(page: bytes) -> dict[str, str]:
    return {
        "Content-Security-Policy": "; ".join(
            (
                "default-src 'none'",
                f"script-src {_source(page, 'script')}",
                f"style-src {_source(page, 'style')}",
                "connect-src 'self'",
                "img-src data:",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
                "require-trusted-types-for 'script'",
            )
        ),
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Frame-Options": "DENY",
    }


HEADERS: Final = _headers(PAGE)
DOORSTEP_HEADERS: Final = _headers(DOORSTEP)


def has_doorstep(method: str, path: str, headers: Mapping[str, str]) -> bool:
    """Whether a browser shows the answer to this request to a person, in a window of its own."""
    mode, kind = headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest")
    return method == "GET" and path in _PAGES and (mode, kind) == ("navigate", "document")


def wants_page(method: str, path: str, accept: str | None) -> bool:
    """Whether a browser asks for the page: it prefers HTML, where others ask for the overview."""
    if method not in ("GET", "HEAD") or path != "/" or accept is None:
        return False
    first = accept.partition(",")[0].partition(";")[0].strip().lower()
    return first in ("text/html", "application/xhtml+xml")
