"""A virtual environment per interpreter with the programs that are attached to, in a cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

PACKAGES: Final = ("flask", "django", "uvicorn", "gunicorn", "ipykernel")
_DONE: Final = "packages"


def environment(python: str, cache: Path) -> str:
    """Its interpreter; made where it is not there yet."""
    version = minor(python)
    folder = cache / version
    done = folder / _DONE
    wanted = " ".join(PACKAGES)
    inside = str(folder / "bin" / "python")
    if not done.exists() or done.read_text() != wanted:
        print(f"making {folder}", file=sys.stderr)
        install = [inside, "-m", "pip", "install", "-q", *PACKAGES]
        if _has_pip(python):
            subprocess.run([python, "-m", "venv", str(folder)], check=True)
            subprocess.run(install, check=True)
        else:
            subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
            subprocess.run(
                install, check=True, env={**os.environ, "PYTHONPATH": _newest_pip(cache)}
            )
        done.write_text(wanted)
    return inside


def _has_pip(python: str) -> bool:
    """Debian's Pythons bring none along."""
    asked = subprocess.run([python, "-m", "ensurepip", "--version"], capture_output=True)
    return asked.returncode == 0


def _newest_pip(cache: Path) -> str:
    folder = cache / "pip"
    if not folder.exists():
        install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), "pip"]
        subprocess.run(install, check=True)
    return str(folder)


def minor(python: str) -> str:
    question = "import sys; print('%d.%d' % sys.version_info[:2])"
    asked = subprocess.run([python, "-c", question], capture_output=True, text=True, check=True)
    return asked.stdout.strip()
