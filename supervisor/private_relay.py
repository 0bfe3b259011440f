"""A relay for one front process, such as `debug-relay stdio`: `python -m` runs this module.

It listens on a Unix socket in a temporary directory, stops when its standard input ends, and leaves
nothing behind. It runs in a process session of its own, so a signal to the group of the front
does not reach it: it outlives the front by the moment that it needs to end programs and workers.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from debug_relay.supervisor.config.layers import ConfigError, Loaded, load
from debug_relay.supervisor.config.settings import Settings
from debug_relay.supervisor.setup_error import SetupError
from debug_relay.supervisor.storage.private_directory import is_private, private_directory

_PREFIX: Final = "debug-relay-private-"
# A worker without supervisor ends its program and itself after this time: both front and relay
# have been killed then.
_ORPHAN_SECONDS: Final = 1.0
# Socket paths below a longer directory could be too long for the kernel.
_LONGEST_DIRECTORY_BYTES: Final = 40
# A directory that nobody holds is removed at this age; a younger one may be about to be locked.
_ABANDONED_SECONDS: Final = 60.0


def main() -> NoReturn:
    code = 1
    try:
        code = _serve(load({}, os.environ))
    except (ConfigError, SetupError) as error:
        sys.stderr.write(f"debug-relay: {error}\n")
    sys.stderr.flush()
    os._exit(code)


def _serve(user: Loaded) -> int:
    from debug_relay.supervisor import app

    parent = Path(tempfile.gettempdir())
    if len(os.fsencode(parent)) > _LONGEST_DIRECTORY_BYTES:
        parent = Path("/tmp")
    _remove_abandoned(parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    # The lock says to other relays that the directory is not abandoned.
    holding = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(holding, fcntl.LOCK_EX)
    try:
        _share_bytecode(Path(user.settings.server.data_dir), folder)
        settings = _private(user.settings, folder)
        return app.serve(msgspec.structs.replace(user, settings=settings), private=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(holding)


def _private(settings: Settings, folder: Path) -> Settings:
    """The user's settings, except those about the place, the access and the lifetime."""
    replace = msgspec.structs.replace
    server = replace(
        settings.server,
        host="127.0.0.1",
        socket=str(folder / "relay.sock"),
        data_dir=str(folder / "data"),
        run_dir=None,
        allow_uids=[],
        allow_other_users=False,
    )
    sessions = replace(
        settings.sessions, idle_timeout=0.0, max_lifetime=0.0, orphan_timeout=_ORPHAN_SECONDS
    )
    return replace(
        settings,
        server=server,
        sessions=sessions,
        auth=replace(settings.auth, tokens_file=None),
        log=replace(settings.log, level="error", audit_file=None),
    )


def _share_bytecode(usual: Path, folder: Path) -> None:
    """Uses the compiled debugger of the user's own relay: compiling it anew takes a second."""
    with suppress(OSError, SetupError):  # without it the relay only starts slower
        compiled = private_directory(private_directory(usual) / "bytecode")
        (folder / "data").mkdir(0o700)
        (folder / "data" / "bytecode").symlink_to(compiled)


def _remove_abandoned(parent: Path) -> None:
    """Removes the directories of private relays that were killed."""
    for path in parent.glob(f"{_PREFIX}*"):
        if not is_private(path) or time.time() - path.stat().st_mtime < _ABANDONED_SECONDS:
            continue
        with suppress(OSError):  # it is held, or has just been removed
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


if __name__ == "__main__":
    main()
