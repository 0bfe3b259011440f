"""Directories that only the relay's user may change, and whose contents can therefore be trusted.

`Directories` and the choice of a run directory call it at the start. A directory that is not safe
raises `SetupError`, which says what to do.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from debug_relay.protocol.system.users import user
from debug_relay.supervisor.setup_error import SetupError


def prepare_data_directory(path: Path, own_names: Iterable[str]) -> Path:
    """Creates the data directory, or checks and closes it; returns its real path.

    `own_names` are the entries by which we recognise a directory that serves only a relay.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() and (maker := path.lstat().st_uid) not in (0, os.getuid()):
        raise SetupError(
            f"The data directory {path} is a symbolic link that {user(maker)} made.",
            "Remove it, or choose another with --data-dir.",
        )
    real = Path(os.path.realpath(path))
    if real.exists():
        _require_own_contents(real, own_names)
    return private_directory(real)


def private_directory(path: Path) -> Path:
    """Creates the directory if it is missing. It must be ours; others lose access to it."""
    if not os.path.lexists(path):  # a read-only disk refuses mkdir even for a directory that exists
        with contextlib.suppress(FileExistsError):
            path.mkdir(0o700)
    facts = path.lstat()
    if not stat.S_ISDIR(facts.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(facts.st_mode) else "not a directory"
        raise SetupError(f"{path} is {kind}.", f"Move it away: mv {path} {path}.old")
    if facts.st_uid != os.getuid():
        raise SetupError(
            f"{path} belongs to {user(facts.st_uid)}, and this relay runs as {user(os.getuid())}.",
            "Run the relay as that user, or choose another place with --data-dir or --run-dir.",
        )
    if facts.st_mode & 0o022:
        raise SetupError(
            f"Others may write to {path} (mode {_mode(facts)}); its contents cannot be trusted.",
            f"Check its contents, then restrict access:  chmod 700 {path}",
        )
    if facts.st_mode & 0o777 != 0o700:
        path.chmod(0o700)
    return path


def is_private(path: Path) -> bool:
    """Whether it is a directory in which nobody else can have put anything."""
    try:
        facts = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o022


def check_parents(data_dir: Path) -> list[str]:
    """Warnings about folders above the data directory, whose writers can replace it.

    A folder of another user to which everybody may write raises SetupError. A folder of ours or
    of root to which everybody may write (a container's volume) only gets a warning, and so does a
    folder that another user keeps closed.
    """
    warnings = []
    for folder in data_dir.parents:
        facts = folder.stat()
        is_foreign = facts.st_uid not in (0, os.getuid())
        is_open = facts.st_mode & 0o002 and not facts.st_mode & stat.S_ISVTX
        owner, mode = user(facts.st_uid), _mode(facts)
        if is_foreign and is_open:
            raise SetupError(
                f"The data directory {data_dir} is below {folder} of {owner}, to which everybody "
                f"may write (mode {mode}): other users can replace it with a directory of theirs.",
                "Choose a directory below your home with --data-dir.",
            )
        if is_open:
            warnings.append(
                f"everybody may write to {folder} (mode {mode}) and replace what is below it, "
                f"{data_dir} too: chmod o-w {folder}, or chmod +t {folder}"
            )
        elif is_foreign:
            warnings.append(
                f"{folder} belongs to {owner}, who can replace what is below it, {data_dir} too"
            )
    return warnings


def _require_own_contents(path: Path, own_names: Iterable[str]) -> None:
    """We do not close a directory to others if it serves them too: a home, a project, /."""
    facts = path.stat()
    is_ours = facts.st_uid == os.getuid() and stat.S_ISDIR(facts.st_mode)
    if not is_ours or not facts.st_mode & 0o077 or facts.st_mode & 0o022:
        return
    foreign = sorted(set(os.listdir(path)).difference(own_names))
    if foreign:
        raise SetupError(
            f"The data directory {path} can be read by others (mode {_mode(facts)}) and holds "
            f"files that are not the relay's, such as {foreign[0]}.",
            f"Choose a directory of its own with --data-dir, or close this one: chmod 700 {path}",
        )


def _mode(facts: os.stat_result) -> str:
    return f"{stat.S_IMODE(facts.st_mode):04o}"
