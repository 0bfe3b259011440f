"""What keeps the relay, or one of its commands, from starting: shown to whoever typed the command.

A `RelayError` is the answer to a request; this is for the time before there are any.
"""

from __future__ import annotations


class SetupError(Exception):
    """The machine or the configuration is not usable as it is."""

    def __init__(self, message: str, suggestion: str) -> None:
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion

    def __str__(self) -> str:
        return f"{self.message}\n{self.suggestion}"
