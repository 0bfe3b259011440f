"""The error that keeps the relay or one of its commands from starting, for the one who typed it.

A `RelayError` is the answer to a request; this one is for the time before there are requests.
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
