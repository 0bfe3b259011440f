"""All code that this worker ever puts into other processes, read once, when the worker starts.

An upgrade in place replaces these files under a running worker. What the worker launches, attaches
to or asks afterwards must still get the code that the worker speaks with, all of one version. So
this module reads it at its import, which the zygote does for all workers, and passes it on from
memory: no program reads an installed file of the relay's. See
docs/decisions/0008-one-bundle-for-programs.md.
"""

from __future__ import annotations

import base64
import hashlib
import marshal
import zlib
from pathlib import Path
from typing import Any, Final

_WORKER: Final = Path(__file__).parent
_PROBE: Final = _WORKER / "probe"
_LEVEL: Final = 1  # the fastest compression, because the zygote waits for it
_MARSHAL: Final = 2  # the newest format that Python 3.8 reads

# name → text of each module that runs in programs: `startup/loader`.
_SOURCES: Final = {
    path.relative_to(_PROBE).with_suffix("").as_posix(): path.read_bytes()
    for path in sorted(_PROBE.rglob("*.py"))
    if path.name != "__init__.py"
}
# The script that reads which lines have code, run by interpreters of programs.
LINE_READER: Final = (_WORKER / "source" / "line_reader.py").read_text("utf-8")


def text(name: str) -> str:
    """One module's source."""
    return _SOURCES[name].decode()


def _folders() -> list[str]:
    return sorted({name.rpartition("/")[0] for name in _SOURCES})


def _packed() -> bytes:
    content = marshal.dumps(_SOURCES, _MARSHAL)
    return base64.b64encode(zlib.compress(content, _LEVEL))


def _bootstrap() -> str:
    """The bootstrap, with the modules that it needs before it can unpack the others."""
    needed = ("eager_imports", "stdlib_imports", "python_command_line", "bytecode_cache", "loader")
    texts = {name: text(f"startup/{name}") for name in needed}
    whole = text("startup/bootstrap")
    place = "\n_TEXTS = {}  # "  # replaced within one line, so that line numbers stay the same
    assert whole.count(place) == 1
    return whole.replace(place, f"\n_TEXTS = {texts!r}  # ")


BOOTSTRAP: Final = _bootstrap()
# All sources of the probe, as `Bytecode` of `probe/startup/` takes them.
PACKED: Final = _packed()
_FOLDERS: Final = _folders()


def probe(file: Path | None = None) -> dict[str, Any]:
    """The argument of `Bytecode` and `loader`: the folders, and all sources. A program that finds
    its byte code in a file needs no sources, so a program that can read `file` gets only its name.
    """
    if file is None:
        return {"folders": _FOLDERS, "packed": PACKED.decode()}
    return {"folders": _FOLDERS, "file": str(file)}


# The names of files with the bundle's byte code contain this.
HASH: Final = hashlib.blake2b(marshal.dumps(_SOURCES, _MARSHAL), digest_size=8).hexdigest()
