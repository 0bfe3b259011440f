"""A script that searches texts with one regular expression and prints which of them match.

A caller writes the pattern, and anybody may have written the texts. Python's engine can need
practically for ever on 40 characters, and nothing interrupts it. So the search has a process of its
own, which the kernel ends when its processor time is used up, even if the relay has died.
Standard library only; `supervisor/processes/patterns.py` starts it.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from typing import Any

PROCESSOR_SECONDS = 1  # Processor time of one search with a caller's regular expression.
_MEMORY_BYTES = 512 * 1024 * 1024  # Memory of one search with a caller's regular expression.


def answer(pattern: str, texts: list[str]) -> dict[str, Any]:
    """The indices of the texts in which the pattern is found, or an error in the pattern."""
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return {"error": str(error)}
    return {"found": [index for index, text in enumerate(texts) if compiled.search(text)]}


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    pattern, texts = json.load(sys.stdin)
    json.dump(answer(pattern, texts), sys.stdout)


if __name__ == "__main__":
    main()
