"""`python -m tests.newcomer`: the path of a newcomer from the clone to the first stop, timed.

It does what the README says, in a new folder with a home of its own, and writes the transcript to
`docs/guide/newcomer.md`. It needs the package index, and ends what it has started.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.meta.documents import ROOT

PAGE = ROOT / "docs" / "guide" / "newcomer.md"
SHOP = """\
def total(prices):
    amount = 0
    for price in prices:
        amount += price
    return amount

print("total:", total([5, -3, 4]))
"""
# Commands as a person types them, in one shell.
STEPS = (
    "git clone -q {repository} opencode-debug-relay && cd opencode-debug-relay",
    "python3 -m venv .venv && .venv/bin/pip install -q -e . && . .venv/bin/activate",
    "cat ../shop.py",
    "debug-relay launch --start --break ../shop.py:4 ../shop.py",
    "debug-relay continue",
    "debug-relay eval 'amount + price'",
    "debug-relay rm",
)
FIRST_STOP = 3  # The step that ends with it.
END = "debug-relay call shutdown"
HEAD = """\
# From the clone to the first stop

A transcript, made by `python -m tests.newcomer`; do not edit. The times are those of {machine},
with other work going on; most of it is the installation. The first stop was there after
**{seconds:.0f} seconds**, the installation included.

<!-- test: newcomer -->
```text
"""
SECONDS = 600


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="newcomer-") as name:
        folder = Path(name)
        (folder / "shop.py").write_text(SHOP)
        env = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("OPENCODE_DEBUG_", "VIRTUAL_ENV", "PYTHONPATH"))
        }
        env |= {"HOME": name, "PIP_CACHE_DIR": f"{name}/cache"}
        shell = Bash(folder, env)
        taken: list[float] = []
        lines: list[str] = []
        try:
            for step in STEPS:
                command = step.format(repository=ROOT)
                printed, seconds = shell.run(command)
                taken.append(seconds)
                typed = step.format(repository="https://…/opencode-debug-relay")
                lines += [f"$ {typed}", *printed.splitlines(), f"[{seconds:.1f} s]", ""]
        finally:
            shell.run(END)
            shell.close()
    text = "\n".join(lines).replace(name, "~")
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:5679", re.sub(r"\(pid \d+\)", "(pid …)", text))
    machine = f"{os.cpu_count()} cores, Python {sys.version.split()[0]}"
    head = HEAD.format(machine=machine, seconds=sum(taken[: FIRST_STOP + 1]))
    PAGE.write_text(f"{head}{text.rstrip()}\n```\n")
    print(f"the first stop after {sum(taken[: FIRST_STOP + 1]):.1f} s; see {PAGE}")
    return 0


class Bash:
    """One shell for all steps."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str) -> tuple[str, float]:
        """What the command prints, and how long it takes; raises if it fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        began = time.monotonic()
        # Warnings of pip are about the package index of this machine.
        quiet = " 2>/dev/null" if "pip install" in command else ""
        self._process.stdin.write(f'{{ {command}; }}{quiet}; echo "::$?"\n')
        self._process.stdin.flush()
        printed = ""
        for line in self._process.stdout:
            if line.startswith("::"):
                assert line == "::0\n", f"{command}\n{printed}"
                return printed, time.monotonic() - began
            printed += line
            assert time.monotonic() - began < SECONDS
        raise AssertionError(f"{command}: the shell has ended\n{printed}")

    def close(self) -> None:
        self._process.communicate(timeout=30)


if __name__ == "__main__":
    sys.exit(main())
