"""The relay's directories on disk and the names of their contents.

The data directory survives a reboot; the run directory holds the workers' sockets and rings. At the
start `Directories.open` makes them ready and safe. The supervisor's other parts take their paths
from here and own what is in their files. Everything here blocks, briefly: the event loop calls it
at the start, or in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from debug_relay.protocol.system.files import remove_unfinished
from debug_relay.supervisor.setup_error import SetupError
from debug_relay.supervisor.storage import run_directory
from debug_relay.supervisor.storage.data_lock import DataLock
from debug_relay.supervisor.storage.private_directory import (
    check_parents,
    prepare_data_directory,
    private_directory,
)
from debug_relay.supervisor.storage.relay_file import RelayFile

_SUBFOLDERS: Final = ("sessions", "breakpoints", "profiles", "logs")
_OWN_NAMES: Final = frozenset(
    {
        *_SUBFOLDERS, "bytecode", "interpreters", "run", "run_dir", "relay.lock", "relay.json",
        "config.toml", "config.json", "lease.key", "idempotency.jsonl", "tokens.json",
        ".tokens.json.lock",
    }
)  # fmt: skip


class Directories:
    """The directories of one relay: `open` makes them ready, `acquire` locks them for this relay
    alone.
    """

    def __init__(
        self,
        data_dir: Path,
        run_dir: Path,
        recorded_run_dir: str | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        self.run_dir = run_dir
        self.earlier_run_dirs = run_directory.earlier_run_directories(
            data_dir, run_dir, recorded_run_dir
        )
        self.warnings = warnings  # about what is allowed here and may be unsafe
        self.sessions, self.breakpoints, self.profiles, self.logs = (
            data_dir / name for name in _SUBFOLDERS
        )
        self.bytecode = data_dir / "bytecode"
        self.interpreters = data_dir / "interpreters"
        self.config_json = data_dir / "config.json"
        self.kept_replies = data_dir / "idempotency.jsonl"
        self.log_file = self.logs / "relay.log"
        self.audit_file = self.logs / "audit.log"
        self.relay_file = RelayFile(data_dir / "relay.json")
        self._lock = DataLock(data_dir, self.relay_file.path)
        self._damaged: str | None = None
        self._unwritten: str | None = None  # which of the relay's own files, and why

    @classmethod
    def open(cls, data_dir: Path, run_dir: Path | None = None) -> Directories:
        """Creates, checks and closes them; SetupError says what is wrong and how to mend it."""
        try:
            data_dir = prepare_data_directory(data_dir, _OWN_NAMES)
            warnings = check_parents(data_dir)
            recorded, is_damaged = run_directory.read_record(data_dir / "run_dir")
            chosen = run_directory.choose_run_directory(data_dir, run_dir, recorded)
        except OSError as error:
            raise _unusable(error, data_dir) from error
        directories = cls(data_dir, chosen, recorded, warnings)
        directories.write_own_files()
        if is_damaged:
            directories._damaged = (
                f"{data_dir}/run_dir was damaged and is set aside: the relay looked for sessions "
                "where relays usually keep them"
            )
        return directories

    def acquire(self) -> None:
        """Takes the data directory for this process; raises SetupError if another relay has it."""
        try:
            self._lock.acquire()
        except OSError as error:
            raise _unusable(error, self.data_dir) from error
        for folder in (self.data_dir, self.breakpoints, self.profiles, self.interpreters):
            remove_unfinished(folder)

    def release(self) -> None:
        self._lock.release()

    @property
    def unnamed_lock(self) -> str | None:
        """Why the lock does not name this process, if so: the log begins after it is taken."""
        return self._lock.unnamed

    def are_held(self) -> bool:
        """Whether this process still has the lock that another relay would ask for."""
        return self._lock.is_held()

    def announce(self, url: str) -> None:
        """Tells clients where this relay listens; `write_own_files` says what no room costs."""
        self.relay_file.url = url
        self.write_own_files()

    def write_own_files(self) -> bool:
        """Makes folders, `run_dir` and `relay.json` where they are missing; whether all are there.

        A disk without room for them does not prevent a start. It may have room later: call again.
        """
        try:
            for name in _SUBFOLDERS:
                private_directory(self.data_dir / name)
            run_directory.update_record(self.data_dir / "run_dir", self.run_dir)
            self.relay_file.update()
        except OSError as error:
            if error.errno not in run_directory.NO_ROOM:
                raise _unusable(error, self.data_dir) from error
            self._unwritten = f"{error.filename or self.data_dir}: {error.strerror}"
            return False
        self._unwritten = None
        return True

    @property
    def lacks_files(self) -> bool:
        return self._unwritten is not None

    def warning(self) -> str | None:
        """For `/health`."""
        if self._unwritten is None:
            return self._damaged
        return f"files of the relay's own cannot be written ({self._unwritten})"


def _unusable(error: OSError, path: Path) -> SetupError:
    return SetupError(
        f"{error.filename or path} cannot be used: {error.strerror}.",
        "Choose places on a local disk that you may write to with --data-dir and --run-dir.",
    )
