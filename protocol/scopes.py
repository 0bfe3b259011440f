"""What a token may allow. The operations table says which operation needs which."""

from __future__ import annotations

from typing import Final, Literal

# None is needed for what anyone may ask.
Scope = Literal[
    "", "sessions:read", "sessions:write", "artifacts:read", "processes:attach", "admin"
]
# What a caller's scopes decide beyond which operations it may ask for: whether a reply holds what
# the program has printed, and whether the program's own code is run to show a value.
READS_OUTPUT: Final[Scope] = "artifacts:read"
RUNS_CODE: Final[Scope] = "sessions:write"
SCOPES: Final = ("sessions:read", "sessions:write", "artifacts:read", "processes:attach", "admin")
