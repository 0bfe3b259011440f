"""The exit codes of all commands."""

from __future__ import annotations

OK = 0
FAILED = 1  # the relay has refused, or none answers
MISUSED = 2  # the command line or the configuration cannot be understood
TIMED_OUT = 5  # `wait` has seen no stop within its time
INTERRUPTED = 130  # Ctrl-C, as shells count it
