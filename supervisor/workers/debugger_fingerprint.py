"""A fingerprint of the debugger's source files: the names of its compiled copies begin with it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path


def fingerprint(debugpy_dir: str) -> str:
    """A short hash that changes when a source of debugpy or of our probe changes."""
    package = find_spec("debug_relay.worker")
    assert package is not None
    assert package.submodule_search_locations
    worker = package.submodule_search_locations[0]
    digest = hashlib.blake2b(digest_size=8)
    for folder in (debugpy_dir, os.path.join(worker, "probe")):
        for source in sorted(_sources(folder)):
            digest.update(repr(source).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _sources(folder: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _sources(entry.path)
            elif entry.name.endswith(".py"):
                facts = entry.stat()
                yield entry.path, facts.st_mtime_ns, facts.st_size


def forget_others(folder: Path, fingerprint: str) -> None:
    """Removes compiled copies of other versions of the debugger."""
    with suppress(OSError):  # there are none yet, or they stay until the next start
        for path in folder.iterdir():
            if not path.name.startswith(fingerprint):
                path.unlink()
