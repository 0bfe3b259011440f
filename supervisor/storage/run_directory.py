"""The choice of the run directory, which holds the workers' sockets and rings.

It is `run` in the data directory. Where socket paths would be too long there, or the file system
takes no sockets, it is below /tmp. The file `run_dir` in the data directory records the choice, so
that the next relay finds the workers that live.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import socket
import tempfile
from pathlib import Path
from typing import Final

from debug_relay.protocol.system import files, json_file
from debug_relay.supervisor.safe_open import is_no_file
from debug_relay.supervisor.setup_error import SetupError
from debug_relay.supervisor.storage.json_files import set_aside
from debug_relay.supervisor.storage.private_directory import is_private, private_directory

LONGEST_SOCKET_PATH_BYTES: Final = 100  # The path of a worker's socket; the kernel takes 107.
_DEEPEST_SOCKET: Final = "sess_xxxxxxxx/worker.sock"
# Errors of a full or read-only file system. They cost the file that we would write, not the start.
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


def choose_run_directory(data_dir: Path, configured: Path | None, recorded: str | None) -> Path:
    if configured is not None:
        configured.parent.mkdir(parents=True, exist_ok=True)
        if trouble := _unfit_for_sockets(private_directory(configured)):
            raise SetupError(
                f"The run directory {configured} cannot hold sockets: {trouble}.",
                "Choose a shorter path on a local disk with --run-dir, or leave it out.",
            )
        return configured
    try:
        usual = private_directory(_below_data(data_dir))
        if not _unfit_for_sockets(usual):
            return usual
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
    return private_directory(_short_base(recorded) / _short_name(data_dir))


def earlier_run_directories(data_dir: Path, current: Path, recorded: str | None) -> list[Path]:
    """Other directories in which workers of earlier relays may listen.

    The usual ones are among them, because the record may be lost or never have been written.
    """
    usual = [_below_data(data_dir), _usual_short_base() / _short_name(data_dir)]
    candidates = [Path(recorded), *usual] if recorded else usual
    return [path for path in dict.fromkeys(candidates) if path != current and is_private(path)]


def read_record(record: Path) -> tuple[str | None, bool]:
    """The run directory of the previous relay, and whether a power cut has damaged the record."""
    if is_no_file(record):
        set_aside(record, "it is not a file")
        return None, True
    recorded = _text(record)
    if recorded is not None and ("\0" in recorded or not os.path.isabs(recorded)):
        set_aside(record, "it holds no path")
        return None, True
    return recorded, False


def update_record(record: Path, run_dir: Path) -> None:
    if _text(record) != str(run_dir):
        files.write_whole(record, os.fsencode(f"{run_dir}\n"))


def _text(path: Path) -> str | None:
    try:
        return os.fsdecode(files.read_bounded(path, json_file.LARGEST_BYTES)).strip() or None
    except (OSError, ValueError):
        return None


def _below_data(data_dir: Path) -> Path:
    return data_dir / "run"


def _short_name(data_dir: Path) -> str:
    return hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]


def _usual_short_base() -> Path:
    return Path(f"/tmp/debug-relay-{os.getuid()}")


def _short_base(recorded: str | None) -> Path:
    """A directory below /tmp, where every user can take any name: it is ours by its owner, or it
    has a name that nobody can guess.
    """
    usual = _usual_short_base()
    with contextlib.suppress(FileExistsError):
        usual.mkdir(0o700)
    if usual.lstat().st_uid == os.getuid():
        return private_directory(usual)
    # Another user has taken the name. Only our record knows which one an earlier relay used.
    known = Path(recorded).parent if recorded else usual
    if known.name.startswith(f"{usual.name}-") and known.parent == usual.parent:
        with contextlib.suppress(OSError, SetupError):
            return private_directory(known)
    return Path(tempfile.mkdtemp(prefix=f"{usual.name}-", dir=usual.parent))


def _unfit_for_sockets(run_dir: Path) -> str | None:
    length = len(os.fsencode(run_dir / _DEEPEST_SOCKET))
    if length > LONGEST_SOCKET_PATH_BYTES:
        return f"socket paths would have {length} bytes, {LONGEST_SOCKET_PATH_BYTES} is the most"
    trial = run_dir / f".trial-{os.getpid()}"
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(trial))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return None  # the file system takes sockets, once it has room
        return f"the file system refuses one ({error.strerror})"
    finally:
        with contextlib.suppress(OSError):
            trial.unlink(missing_ok=True)
    return None
