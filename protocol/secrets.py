"""Which names and values look secret, so that both sides hide and keep back the same ones.

Judged by the words in a name and by passwords inside addresses. In doubt a value is secret: one
that is asked for again costs a moment, one that was written down cannot be taken back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

HIDDEN: Final = "***"

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Also inside a word: PGPASSWORD, clientsecret, SetCookie.
_ANYWHERE: Final = re.compile(
    r"passw(?:or)?d|passphrase|secret|credential|authorization|cookie|apikey|privatekey|accesskey"
)
_WORDS: Final = frozenset({"jwt", "bearer", "pass", "dsn"})
_LAST_WORDS: Final = frozenset({"auth", "key", "keys", "pwd"})
# Keys that open nothing.
_PLAIN_KEYS: Final = frozenset(
    {"cache", "foreign", "idempotency", "partition", "primary", "public", "sort"}
)
# A number about a secret, or the place where one lies: MAX_TOKENS, COOKIE_MAX_AGE, TOKENS_FILE.
_ABOUT: Final = frozenset(
    {"age", "count", "expires", "expiry", "length", "limit", "max", "min", "num", "size", "ttl"}
)
_PLACES: Final = frozenset({"file", "path", "dir", "directory"})
_ADDRESS: Final = re.compile(r"(?<=://)([^\s/@:]*):[^\s/@]+(?=@)")


def looks_secret(name: str) -> bool:
    """Whether what goes by this name (a field, header or variable) should be hidden."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[-1] in _PLACES or _ABOUT.intersection(words):
        return False
    if _ANYWHERE.search("".join(words)) or _WORDS.intersection(words):
        return True
    if any(word.endswith(("token", "tokens")) for word in words):
        return True
    # PWD and KEY alone are the working directory and anybody's loop variable.
    return len(words) > 1 and words[-1] in _LAST_WORDS and words[-2] not in _PLAIN_KEYS


def shown_environment(env: Mapping[str, str | None]) -> dict[str, str | None]:
    """As it may be shown: values that look secret are not."""
    return {
        name: value if value is None else HIDDEN if looks_secret(name) else hide_passwords(value)
        for name, value in env.items()
    }


def hide_passwords(text: str) -> str:
    """The text with the passwords of its addresses (scheme://user:password@host) hidden."""
    return _ADDRESS.sub(rf"\1:{HIDDEN}", text) if "://" in text else text


def holds_password(text: str) -> bool:
    """Whether the text is or contains an address with a password."""
    return hide_passwords(text) != text
