"""What a token may allow. The operations table says which operation needs which."""

from __future__ import annotations

from typing import Final, Literal

# None is needed for what anyone may ask.
Scope = Literal[
    "", "sessions:read", "sessions:write", "artifacts:read", "processes:attach", "admin"
]
SCOPES: Final = ("sessions:read", "sessions:write", "artifacts:read", "processes:attach", "admin")
