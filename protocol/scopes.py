"""The scopes that a token can grant. The operations table says which operation needs which."""

from __future__ import annotations

from typing import Final, Literal

# "" means that the operation needs no scope.
Scope = Literal[
    "", "sessions:read", "sessions:write", "artifacts:read", "processes:attach", "admin"
]
# Two scopes also decide what a reply contains: the program's output, and values for which the
# program's own code must run.
READS_OUTPUT: Final[Scope] = "artifacts:read"
RUNS_CODE: Final[Scope] = "sessions:write"
SCOPES: Final = ("sessions:read", "sessions:write", "artifacts:read", "processes:attach", "admin")
