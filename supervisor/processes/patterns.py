"""Searches texts with a caller's regular expression, in a short-lived process.

Why a process: `re` holds the GIL while it searches, so a thread would block the relay, and no check
of a pattern can predict how long it takes. Only a few searches run at one time.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.refusals import Problem
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.processes import pattern_search

_log: Final = Log(__name__)
_K = TypeVar("_K")
_COMMAND: Final = (sys.executable, "-I", "-S", pattern_search.__file__)
_MOST_AT_ONE_TIME: Final = 2  # Searches with callers' regular expressions that run at one time.
_SEARCH_SECONDS: Final = 15.0  # A search ends by the clock if its processor time does not end it.
_ADVICE: Final = r"Escape what is meant literally: worker\.py."


class Patterns:
    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(_MOST_AT_ONE_TIME)
        self.pids: set[int] = set()  # processes that are searching now

    async def those(self, field: str, pattern: str, texts: Mapping[_K, str]) -> list[_K]:
        """The keys of the texts in which the pattern is found; `field` is the request's field."""
        request = json.dumps([pattern, [*texts.values()]]).encode()
        async with self._turn:
            answer = await self._run(request)
        if answer is None:
            problem = f"searches for more than {pattern_search.PROCESSOR_SECONDS} s"
            advice = "Leave out what repeats inside of a repetition, such as (a+)+, or give a pid."
            raise _bad(field, pattern, problem, advice)
        if "error" in answer:
            raise _bad(field, pattern, f"is not a regular expression: {answer['error']}", _ADVICE)
        keys = list(texts)
        return [keys[index] for index in answer["found"]]

    async def _run(self, request: bytes) -> Any:
        """The search's answer; None if it ended by its bound on time or memory."""
        process = await asyncio.create_subprocess_exec(
            *_COMMAND,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        self.pids.add(process.pid)
        try:
            async with asyncio.timeout(_SEARCH_SECONDS):
                out, _ = await process.communicate(request)
        except TimeoutError:
            _log.warning("pattern.no_answer", pid=process.pid, seconds=_SEARCH_SECONDS)
            return None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            self.pids.discard(process.pid)
        return json.loads(out) if process.returncode == 0 else None


def _bad(field: str, pattern: str, problem: str, advice: str) -> RelayError:
    return RelayError(
        Code.INVALID_REQUEST,
        f"{field} {problem}",
        advice,
        errors=[Problem(field, problem, pattern)],
    )
