"""The relay's places on disk: the data directory, the run directory, and who holds them.

Owns their safety (owner, mode, type), the lock that makes a data directory one relay's, the file by
which clients find it, and JSON that is written whole or not at all. Knows nothing of what others
keep there. Everything here blocks, briefly: the event loop calls it at start, or in a thread.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import pwd
import socket
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from debug_relay.protocol.system import files, json_file
from debug_relay.protocol.system.procfs import is_alive, start_ticks
from debug_relay.protocol.version import VERSION
from debug_relay.protocol.wire.envelope import encode_json, timestamp
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.own_files import is_no_file
from debug_relay.supervisor.storage.json_files import set_aside

_log = Log(__name__)

LONGEST_SOCKET_PATH: Final = 100
_DEEPEST_SOCKET: Final = "sess_xxxxxxxx/worker.sock"
_SUBFOLDERS: Final = ("sessions", "breakpoints", "profiles", "logs")
# A directory with nothing but these is ours to close; any other may serve somebody else.
_OUR_NAMES: Final = frozenset(
    {
        *_SUBFOLDERS, "bytecode", "interpreters", "run", "run_dir", "relay.lock", "relay.json",
        "config.toml", "config.json", "idempotency.jsonl", "tokens.json",
        ".tokens.json.lock",
    }
)  # fmt: skip
# What a file system says that is full or read-only: that costs what would be written, not a start.
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


class StoreError(Exception):
    """A place on disk cannot be used as it is."""

    def __init__(self, message: str, suggestion: str) -> None:
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion

    def __str__(self) -> str:
        return f"{self.message}\n{self.suggestion}"


class StoreBusy(StoreError):
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


class Places:
    """The directories of one relay. `open` makes them ready; `lock` makes them this process's."""

    def __init__(
        self,
        data_dir: Path,
        run_dir: Path,
        recorded: Path | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        self.run_dir = run_dir
        # Where relays before may have kept their sockets, if elsewhere: workers listen there. By
        # the record of it, and where they are without one, which may be lost or never written.
        usual = [data_dir / "run", _usual_short_base() / _short_name(data_dir)]
        self.earlier_run_dirs = [
            place
            for place in dict.fromkeys([recorded, *usual])
            if place is not None and place != run_dir and _is_private(place)
        ]
        self.warnings = warnings  # of what is allowed here and may be unsafe
        self.sessions, self.breakpoints, self.profiles, self.logs = (
            data_dir / name for name in _SUBFOLDERS
        )
        self.bytecode = data_dir / "bytecode"
        self.interpreters = data_dir / "interpreters"
        self.relay_json = data_dir / "relay.json"
        self.config_json = data_dir / "config.json"
        self.kept_replies = data_dir / "idempotency.jsonl"
        self._url: str | None = None
        self._locks: list[int] = []
        self.damaged: str | None = None
        self._unwritten: str | None = None  # which of the relay's own files, and why

    @classmethod
    def open(cls, data_dir: Path, run_dir: Path | None = None) -> Places:
        """Create, check and tighten; StoreError says what is wrong and how to mend it."""
        try:
            data_dir = _data_directory(data_dir)
            warnings = _check_way_to(data_dir)
            recorded, is_damaged = _recorded_run_directory(data_dir / "run_dir")
            chosen = _run_directory(data_dir, run_dir, recorded)
        except OSError as error:
            raise _unusable(error, data_dir) from error
        places = cls(data_dir, chosen, Path(recorded) if recorded else None, warnings)
        places.write_own_files()
        if is_damaged:
            places.damaged = (
                f"{data_dir}/run_dir was damaged and is set aside: sessions were looked for where "
                "relays usually keep them"
            )
        return places

    def write_own_files(self) -> bool:
        """Folders, `run_dir` and `relay.json`, where they are missing; whether all are there now.

        A disk without room for them costs no start. It may have room later: ask again.
        """
        try:
            for name in _SUBFOLDERS:
                _private_directory(self.data_dir / name)
            record = self.data_dir / "run_dir"
            if read_text(record) != str(self.run_dir):
                files.write_whole(record, os.fsencode(f"{self.run_dir}\n"))
            if self._url is not None and _quietly_read(self.relay_json).get("pid") != os.getpid():
                self._write_relay_json(self._url)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise _unusable(error, self.data_dir) from error
            self._unwritten = f"{error.filename or self.data_dir}: {error.strerror}"
            return False
        self._unwritten = None
        return True

    def warning(self) -> str | None:
        """For `/health`."""
        if self._unwritten is None:
            return self.damaged
        return f"files of the relay's own cannot be written ({self._unwritten})"

    @property
    def lacks_files(self) -> bool:
        return self._unwritten is not None

    @property
    def log_file(self) -> Path:
        return self.logs / "relay.log"

    @property
    def audit_file(self) -> Path:
        return self.logs / "audit.log"

    def lock(self) -> None:
        """Hold the data directory until this process ends or `unlock` is called."""
        try:
            # The directory too: it is the whole lock where there is no room for the file.
            for path in self._lockable:
                descriptor = _open_to_lock(path)
                if descriptor is not None:
                    self._locks.append(descriptor)
                    _lock(descriptor)
        except BlockingIOError:
            self.unlock()
            raise StoreBusy(self.data_dir, self._holder()) from None
        except OSError as error:
            self.unlock()
            raise _unusable(error, path) from error
        try:
            # relay.json comes only when the relay listens; until then this names the holder.
            if len(self._locks) == len(self._lockable):
                os.ftruncate(self._locks[-1], 0)
                os.pwrite(self._locks[-1], encode_json(_identity()), 0)
        except OSError as error:
            _log.warning("store.lock_unnamed", path=path, reason=error.strerror)
        self._sweep()

    @property
    def _lockable(self) -> tuple[Path, Path]:
        return self.data_dir, self.data_dir / "relay.lock"

    def unlock(self) -> None:
        while self._locks:
            descriptor = self._locks.pop()
            # Not by closing alone: a child between fork and exec holds a copy for a moment.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def holds_lock(self) -> bool:
        """Whether the locks are still those that others would ask for."""
        try:
            return bool(self._locks) and all(
                os.path.samestat(os.fstat(lock), os.stat(path, follow_symlinks=False))
                for lock, path in zip(self._locks, self._lockable, strict=False)
            )
        except OSError:
            return False

    def write_relay_json(self, url: str) -> None:
        """Where clients find this relay; when there is room for it."""
        self._url = url
        self.write_own_files()

    def _write_relay_json(self, url: str) -> None:
        value = {"url": url, "version": VERSION, "started_at": timestamp(), **_identity()}
        if is_no_file(self.relay_json):
            set_aside(self.relay_json, "it is not a file")
        json_file.write(self.relay_json, value)

    def remove_relay_json(self) -> None:
        """At a clean stop; what another relay has written in the meantime stays."""
        self._url = None
        holder = _quietly_read(self.relay_json)
        if holder.get("pid") == os.getpid():
            with contextlib.suppress(OSError):  # the disk is read-only by now
                self.relay_json.unlink(missing_ok=True)

    def _holder(self) -> dict[str, Any]:
        """Who holds the lock: what is left of a relay that died is not believed."""
        for path in (self.relay_json, self.data_dir / "relay.lock"):
            holder = _quietly_read(path)
            if is_alive(holder.get("pid"), holder.get("start_ticks")):
                return holder
        return {}

    def _sweep(self) -> None:
        """Remove what a relay left that was killed in the middle of writing."""
        for folder in (self.data_dir, self.breakpoints, self.profiles, self.interpreters):
            files.remove_unfinished(folder)


def _unusable(error: OSError, path: Path) -> StoreError:
    return StoreError(
        f"{error.filename or path} cannot be used: {error.strerror}.",
        "Choose places on a local disk that you may write to with --data-dir and --run-dir.",
    )


def _data_directory(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() and (maker := path.lstat().st_uid) not in (0, os.getuid()):
        raise StoreError(
            f"The data directory {path} is a symbolic link that {user(maker)} made.",
            "Remove it, or choose another with --data-dir.",
        )
    real = Path(os.path.realpath(path))
    if real.exists():
        _check_contents(real)
    return _private_directory(real)


def _check_way_to(data_dir: Path) -> list[str]:
    """Who may write to a folder above can put another directory in the place of ours.

    A folder that another user has left open to all is refused. One of ours or root's that is open
    (a volume of a container), or one that another user keeps to itself, is warned of.
    """
    warnings = []
    for folder in data_dir.parents:
        about = folder.stat()
        is_strange = about.st_uid not in (0, os.getuid())
        is_open = about.st_mode & 0o002 and not about.st_mode & stat.S_ISVTX
        owner, mode = user(about.st_uid), _mode(about)
        if is_strange and is_open:
            raise StoreError(
                f"The data directory {data_dir} lies below {folder} of {owner}, to which everybody "
                f"may write (mode {mode}): other users can replace it with a directory of theirs.",
                "Choose a directory below your home with --data-dir.",
            )
        if is_open:
            warnings.append(
                f"everybody may write to {folder} (mode {mode}) and replace what is below it, "
                f"{data_dir} too: chmod o-w {folder}, or chmod +t {folder}"
            )
        elif is_strange:
            warnings.append(
                f"{folder} belongs to {owner}, who can replace what is below it, {data_dir} too"
            )
    return warnings


def _check_contents(path: Path) -> None:
    """A directory that serves others too (a home, a project, /) is not closed in passing."""
    about = path.stat()
    ours = about.st_uid == os.getuid() and stat.S_ISDIR(about.st_mode)
    if not ours or not about.st_mode & 0o077 or about.st_mode & 0o022:
        return
    strange = sorted(set(os.listdir(path)) - _OUR_NAMES)
    if strange:
        raise StoreError(
            f"The data directory {path} can be read by others (mode {_mode(about)}) and holds "
            f"files that are not the relay's, such as {strange[0]}.",
            f"Choose a directory of its own with --data-dir, or close this one: chmod 700 {path}",
        )


def _private_directory(path: Path) -> Path:
    """Made if need be; a directory, ours, and closed to everybody else."""
    if not os.path.lexists(path):  # a read-only disk refuses to make what is there already
        with contextlib.suppress(FileExistsError):
            path.mkdir(0o700)
    about = path.lstat()
    if not stat.S_ISDIR(about.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(about.st_mode) else "not a directory"
        raise StoreError(f"{path} is {kind}.", f"Move it away: mv {path} {path}.old")
    if about.st_uid != os.getuid():
        raise StoreError(
            f"{path} belongs to {user(about.st_uid)}, and this relay runs as {user(os.getuid())}.",
            "Run the relay as that user, or choose another place with --data-dir or --run-dir.",
        )
    if about.st_mode & 0o022:
        raise StoreError(
            f"Others may write to {path} (mode {_mode(about)}); what is in it cannot be trusted.",
            f"Check its contents, then restrict access:  chmod 700 {path}",
        )
    if about.st_mode & 0o777 != 0o700:
        path.chmod(0o700)
    return path


def _is_private(path: Path) -> bool:
    """Whether it is a directory in which nobody else can have put anything."""
    try:
        about = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o022


def _run_directory(data_dir: Path, configured: Path | None, recorded: str | None) -> Path:
    if configured is not None:
        configured.parent.mkdir(parents=True, exist_ok=True)
        if trouble := _unfit_for_sockets(_private_directory(configured)):
            raise StoreError(
                f"The run directory {configured} cannot hold sockets: {trouble}.",
                "Choose a shorter path on a local disk with --run-dir, or leave it out.",
            )
        return configured
    try:
        usual = _private_directory(data_dir / "run")
        if not _unfit_for_sockets(usual):
            return usual
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
    return _private_directory(_short_base(recorded) / _short_name(data_dir))


def _short_name(data_dir: Path) -> str:
    return hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]


def _usual_short_base() -> Path:
    return Path(f"/tmp/debug-relay-{os.getuid()}")


def _recorded_run_directory(record: Path) -> tuple[str | None, bool]:
    """Where the relay before kept its sockets, and whether a power cut has damaged the record."""
    if is_no_file(record):
        set_aside(record, "it is not a file")
        return None, True
    recorded = read_text(record)
    if recorded is not None and ("\0" in recorded or not os.path.isabs(recorded)):
        set_aside(record, "it holds no path")
        return None, True
    return recorded, False


def _open_to_lock(path: Path) -> int | None:
    """None where there is no such file, nor room for one. Not inherited: a worker must not hold on
    to it when its relay is gone."""
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
        # Network file systems lock what is open for writing only, which no directory is.
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise


def _short_base(recorded: str | None) -> Path:
    """Below /tmp, where every user may take a name: ours by uid, or one that nobody can guess."""
    usual = _usual_short_base()
    with contextlib.suppress(FileExistsError):
        usual.mkdir(0o700)
    if usual.lstat().st_uid == os.getuid():
        return _private_directory(usual)
    # Another user has it. The name that was chosen instead is known from the data directory alone.
    known = Path(recorded).parent if recorded else usual
    if known.name.startswith(f"{usual.name}-") and known.parent == usual.parent:
        with contextlib.suppress(OSError, StoreError):
            return _private_directory(known)
    return Path(tempfile.mkdtemp(prefix=f"{usual.name}-", dir=usual.parent))


def _unfit_for_sockets(run_dir: Path) -> str | None:
    length = len(os.fsencode(run_dir / _DEEPEST_SOCKET))
    if length > LONGEST_SOCKET_PATH:
        return f"socket paths would have {length} bytes, {LONGEST_SOCKET_PATH} is the most"
    trial = run_dir / f".trial-{os.getpid()}"
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(trial))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return None  # it takes sockets, when there is room
        return f"the file system refuses one ({error.strerror})"
    finally:
        with contextlib.suppress(OSError):
            trial.unlink(missing_ok=True)
    return None


def _quietly_read(path: Path) -> dict[str, Any]:
    """For files of another relay, which are not ours to move."""
    try:
        value = json_file.read(path)
    except (OSError, json_file.Damaged):
        return {}
    return value if isinstance(value, dict) else {}


def read_text(path: Path) -> str | None:
    try:
        return os.fsdecode(files.read_bounded(path, json_file.LARGEST_BYTES)).strip() or None
    except (OSError, ValueError):
        return None


def _identity() -> dict[str, Any]:
    return {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())}


def user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _mode(about: os.stat_result) -> str:
    return f"{stat.S_IMODE(about.st_mode):04o}"
