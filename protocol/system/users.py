"""Names of the machine's users, for messages."""

from __future__ import annotations

import pwd


def name_of(uid: int) -> str | None:
    """The user's name; None if the machine knows no such user, as in many containers."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def user(uid: int) -> str:
    name = name_of(uid)
    return f"uid {uid}" if name is None else f"{name} (uid {uid})"
