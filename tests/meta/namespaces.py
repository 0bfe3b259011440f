"""Commands in namespaces of their own: all of their processes and mounts end with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

UNSHARE = ["unshare", "--mount", "--pid", "--fork", "--mount-proc"]
SECONDS = 150  # a bound, which a busy machine keeps too
CGROUPS = Path("/sys/fs/cgroup")
# The first process of a pid namespace: it reaps what others leave.
_INIT = """
import os, subprocess, sys
script = subprocess.Popen(sys.argv[1:])
while True:
    pid, status = os.wait()
    if pid == script.pid:
        sys.exit(os.waitstatus_to_exitcode(status))
"""
# crun knows no cgroups of both versions at once.
_PRELUDE = """
mount -t tmpfs none /run
if [ -d /sys/fs/cgroup/unified ]; then
    umount /sys/fs/cgroup/unified
    mount -t tmpfs none /sys/fs/cgroup/unified
fi
"""


def missing(*programs: str) -> str | None:
    """Why commands that need these cannot be run here."""
    for program in ("unshare", *programs):
        if shutil.which(program, path=_path()) is None:
            return f"{program} is not installed"
    if os.geteuid() != 0:
        return "only root can mount in a namespace of its own"
    tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    return tried.stderr.strip() or None


def run(script: str, **env: str) -> str:
    """What it prints, errors included; it must succeed."""
    done = subprocess.run(
        [*UNSHARE, sys.executable, "-c", _INIT, "bash", "-eu", "-c", _PRELUDE + script],
        env={**os.environ, "PATH": _path(), **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def remove_cgroups(name: str) -> None:
    """The empty groups of that name, in each hierarchy."""
    for group in [*CGROUPS.glob(name), *CGROUPS.glob(f"*/{name}")]:
        for folder, _, _ in os.walk(group, topdown=False):
            os.rmdir(folder)


def _path() -> str:
    return os.pathsep.join([f"{sys.prefix}/bin", os.environ["PATH"], "/usr/sbin", "/sbin"])
