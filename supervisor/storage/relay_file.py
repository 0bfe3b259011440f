"""`relay.json`: where clients find the relay of a data directory, and which process it is."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from debug_relay.protocol.system import json_file
from debug_relay.protocol.system.procfs import start_ticks
from debug_relay.protocol.version import VERSION
from debug_relay.protocol.wire.envelope import timestamp
from debug_relay.supervisor.safe_open import is_no_file
from debug_relay.supervisor.storage.json_files import set_aside


class RelayFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.url: str | None = None  # known when the relay listens

    def update(self) -> None:
        """Writes the file if the relay listens and the file does not name it; raises OSError."""
        if self.url is None or named_process(self.path).get("pid") == os.getpid():
            return
        value = {"url": self.url, "version": VERSION, "started_at": timestamp(), **own_identity()}
        if is_no_file(self.path):
            set_aside(self.path, "it is not a file")
        json_file.write(self.path, value)

    def remove(self) -> None:
        """At a clean stop. A file that another relay has written in the meantime stays."""
        self.url = None
        if named_process(self.path).get("pid") == os.getpid():
            with contextlib.suppress(OSError):  # the disk may be read-only by now
                self.path.unlink(missing_ok=True)


def own_identity() -> dict[str, Any]:
    return {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())}


def named_process(path: Path) -> dict[str, Any]:
    """The process that a relay's file names. A file that may be another relay's is not moved."""
    try:
        value = json_file.read(path)
    except (OSError, json_file.Damaged):
        return {}
    return value if isinstance(value, dict) else {}
