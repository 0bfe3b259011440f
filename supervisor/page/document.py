"""The live page for a person: one file, served with a policy that allows nothing but itself.

The page shows nothing by itself. Its script calls the API as any other caller does, so whoever has
no token sees an empty page.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).with_name("page.html").read_bytes()
CONTENT_TYPE: Final = "text/html; charset=utf-8"


def _source(tag: str) -> str:
    """The page's own script or style, by its hash: the browser runs no other."""
    text = re.search(rb"<%b>(.*?)</%b>" % (tag.encode(), tag.encode()), PAGE, re.DOTALL)
    assert text is not None
    return f"'sha256-{base64.b64encode(hashlib.sha256(text[1]).digest()).decode()}'"


HEADERS: Final[dict[str, str]] = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            f"script-src {_source('script')}",
            f"style-src {_source('style')}",
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


def wants_page(method: str, path: str, accept: str | None) -> bool:
    """Whether a browser asks for the page: it prefers HTML, where others ask for the overview."""
    if method not in ("GET", "HEAD") or path != "/" or accept is None:
        return False
    first = accept.partition(",")[0].partition(";")[0].strip().lower()
    return first in ("text/html", "application/xhtml+xml")
