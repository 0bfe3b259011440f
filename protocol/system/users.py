"""Names of the machine's users, for messages."""

from __future__ import annotations

import pwd


def user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
