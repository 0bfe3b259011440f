"""Which processes are Python, also those that are called otherwise."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from pathlib import Path

from debug_relay.supervisor.processes.python_scan import PythonScan

# A program under another name, that comes to have a Python in its memory when it is told to.
EMBEDS = """
echo up; read
LD_PRELOAD=$1 exec $0 -c 'echo loaded; read'
"""


def test_who_embeds_a_python(tmp_path: Path) -> None:
    """By its memory, as far as time allows; what was found is kept, and not for ever."""
    library = tmp_path / "libpython3.12.so.1.0"
    shutil.copy(libm(), library)
    editor = tmp_path / "editor"
    shutil.copy(shutil.which("bash") or "/bin/bash", editor)
    program = subprocess.Popen(
        [editor, "-c", EMBEDS, editor, library], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert program.stdin is not None
    assert program.stdout is not None
    with program, program.stdin, program.stdout:
        try:
            assert program.stdout.readline() == b"up\n"
            hurried, forgetful, lasting = (
                PythonScan(into_memory=0),
                PythonScan(kept=0),
                PythonScan(),
            )
            for scan in (forgetful, lasting):
                found = scan.run()
                assert program.pid not in found.pids
                assert found.not_looked_into == 0
            program.stdin.write(b"go\n")
            program.stdin.flush()
            assert program.stdout.readline() == b"loaded\n"
            assert program.pid in forgetful.run().pids
            assert program.pid not in lasting.run().pids
            found = hurried.run()
            assert program.pid not in found.pids
            assert found.not_looked_into > 0
        finally:
            program.kill()
    assert program.pid not in forgetful.run().pids


def libm() -> str:
    """Any library that a program can do with."""
    assert math.cos(0) == 1
    found = re.search(r" (/\S+/libm[.-]\S+)$", Path("/proc/self/maps").read_text(), re.MULTILINE)
    assert found is not None
    return found.group(1)
