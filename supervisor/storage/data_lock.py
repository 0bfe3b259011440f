"""The lock on a data directory: one relay holds it from its start to its end."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from typing import Any

from debug_relay.protocol.system.procfs import is_alive
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.supervisor.setup_error import SetupError
from debug_relay.supervisor.storage.relay_file import named_process, own_identity
from debug_relay.supervisor.storage.run_directory import NO_ROOM


class DataDirectoryInUse(SetupError):
    """Another relay holds the data directory."""

    def __init__(self, data_dir: Path, holder: dict[str, Any]) -> None:
        pid, url, since = (holder.get(name) for name in ("pid", "url", "started_at"))
        who = f"the relay with pid {pid}" if pid else "another relay"
        at = f", at {url} since {since}" if url else ", which is just starting"
        super().__init__(
            f"The data directory {data_dir} is in use by {who}{at}.",
            (f"Use that one, or stop it with kill {pid}, or " if pid else "Try again, or ")
            + "start this one with another --data-dir and --port.",
        )
        self.holder = holder


class DataLock:
    def __init__(self, data_dir: Path, relay_json: Path) -> None:
        self._data_dir = data_dir
        self._relay_json = relay_json
        # We lock the directory too: it is the whole lock if there is no room for the file.
        self._paths = (data_dir, data_dir / "relay.lock")
        self._descriptors: list[int] = []
        self.unnamed: str | None = None  # why our pid is not in the lock's file

    def acquire(self) -> None:
        """Holds the lock until this process ends or calls `release`. Raises DataDirectoryInUse, or
        OSError with the path.
        """
        try:
            for path in self._paths:
                descriptor = _open(path)
                if descriptor is not None:
                    self._descriptors.append(descriptor)
                    _lock(descriptor)
        except BlockingIOError:
            self.release()
            raise DataDirectoryInUse(self._data_dir, self._holder()) from None
        except OSError as error:
            self.release()
            error.filename = error.filename or str(path)
            raise
        self._name_holder()

    def release(self) -> None:
        while self._descriptors:
            descriptor = self._descriptors.pop()
            # Closing is not enough: a child between fork and exec has a copy for a moment.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def is_held(self) -> bool:
        """Whether others would ask for the same files that we have locked."""
        try:
            return bool(self._descriptors) and all(
                os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
                for descriptor, path in zip(self._descriptors, self._paths, strict=False)
            )
        except OSError:
            return False

    def _name_holder(self) -> None:
        """Writes our pid into the lock's file: relay.json comes only when the relay listens."""
        if len(self._descriptors) < len(self._paths):
            return
        try:
            os.ftruncate(self._descriptors[-1], 0)
            os.pwrite(self._descriptors[-1], encode_json(own_identity()), 0)
        except OSError as error:
            self.unnamed = f"{self._paths[-1]}: {error.strerror}"

    def _holder(self) -> dict[str, Any]:
        """The relay that holds the lock. A file that a dead relay has left names nobody."""
        for path in (self._relay_json, self._paths[-1]):
            holder = named_process(path)
            if is_alive(holder.get("pid"), holder.get("start_ticks")):
                return holder
        return {}


def _open(path: Path) -> int | None:
    """None if there is neither the file nor room for it. Workers do not inherit the descriptor:
    they would hold the lock when their relay is gone.
    """
    if path.is_dir():
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        # Network file systems lock only what is open for writing, which no directory is.
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise
