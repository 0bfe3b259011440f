"""The import law: who may know whom, read from the sources."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.source import interpreters
from tests.meta.documents import ROOT

FOLDERS = ("protocol", "supervisor", "worker")
# These run in interpreters of the user's choice.
PROBE = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "worker/probe").rglob("*.py"))
FOREIGN = ("worker/source/line_reader.py", *PROBE)
DEBUGGER = ("debugpy", "pydevd", "pydevd_tracing", "_pydevd_bundle", "_pydev_bundle")
# What talks to the world, or waits for it.
OUTSIDE = {
    "asyncio", "concurrent", "ctypes", "fcntl", "http", "io", "logging", "mmap", "multiprocessing",
    "os", "pathlib", "select", "selectors", "shutil", "signal", "socket", "socketserver", "ssl",
    "subprocess", "tempfile", "threading", "time", "urllib",
}  # fmt: skip
# The one folder of the protocol with I/O: what both sides need of the kernel and the disk. Neither
# side may import the other, and two copies would come to differ: `protocol/system`.
# What only `protocol/system/procfs.py` reads of a process.
PROC_FILES = re.compile(
    r"/proc/.*(stat|status|cmdline|cwd|environ|maps|task|limits|children|boot_id)$"
)
# The extra [mcp], which these alone import, and only when a client speaks MCP.
MCP = {"mcp", "mcp_types"}
SPEAK_MCP = {"supervisor/mcp/sdk.py", "supervisor/mcp/over_http.py", "supervisor/cli/mcp_front.py"}
THIRD_PARTY = {
    "protocol": {"msgspec"},
    "worker": {"msgspec"},
    "supervisor": {"aiohttp", "msgspec", "multidict", "orjson", "psutil", "yarl"},
}


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Full names of what a module imports anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def offences(folder: str, forbidden: set[str], allowed: frozenset[Path] = frozenset()) -> list[str]:
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(folder)
        if path not in allowed
        for name in imported(path)
        if any(name == bad or name.startswith(bad + ".") for bad in forbidden)
    ]


def test_supervisor_and_worker_do_not_know_each_other():
    assert offences("supervisor", {"debug_relay.worker"}) == []
    assert offences("worker", {"debug_relay.supervisor"}) == []


def test_protocol_knows_neither():
    assert offences("protocol", {"debug_relay.worker", "debug_relay.supervisor"}) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_third_parties_stay_where_they_belong(folder: str):
    strange = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(folder)
        if str(path.relative_to(ROOT)) not in FOREIGN
        for name in imported(path)
        if (top := name.partition(".")[0]) not in sys.stdlib_module_names
        and top not in THIRD_PARTY[folder] | {"debug_relay"}
        and not (top in MCP and path.relative_to(ROOT).as_posix() in SPEAK_MCP)
    ]
    assert strange == []


def test_protocol_does_no_io_outside_its_system_folder():
    system = frozenset(modules("protocol/system"))
    assert offences("protocol", OUTSIDE, system) == []
    calls = [
        f"{path.name}:{node.lineno}"
        for path in modules("protocol")
        if path not in system
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    ]
    assert calls == []


def test_one_module_reads_proc():
    """A name with brackets, a process that is gone or another user's are dealt with there."""
    others = [
        f"{path.relative_to(ROOT)}:{node.lineno} reads {text}"
        for folder in ("supervisor", "worker")
        for path in modules(folder)
        if str(path.relative_to(ROOT)) not in FOREIGN
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant | ast.JoinedStr)
        and PROC_FILES.search(text := ast.unparse(node).strip("f'\""))
        and "\\n" not in text
    ]
    assert others == []


RENAMES = {
    "protocol/system/files.py",  # replaces a file as a whole, and moves a damaged one aside
    "supervisor/log.py",  # rotates the log
    "worker/probe/startup/bytecode_cache.py",  # runs inside programs, which import nothing of ours
}


def test_one_module_replaces_files():
    """A file of ours is written whole or not at all by `replacing`; nobody has a way of his own."""
    found = {
        str(path.relative_to(ROOT))
        for folder in ("protocol", "supervisor", "worker")
        for path in modules(folder)
        if re.search(r"os\.(replace|rename)\(|\.rename\(", path.read_text(encoding="utf-8"))
    }
    assert found == RENAMES


@pytest.mark.parametrize("name", FOREIGN)
def test_what_runs_elsewhere_needs_the_standard_library_alone(name: str):
    allowed = DEBUGGER if name != "worker/source/line_reader.py" else ()
    strange = [
        full
        for full in imported(ROOT / name)
        if (top := full.partition(".")[0]) not in sys.stdlib_module_names
        and top not in allowed
        and not (name in PROBE and full.startswith("debug_relay.worker.probe."))
    ]
    assert strange == []


@pytest.mark.parametrize("name", FOREIGN)
def test_what_runs_elsewhere_is_python_3_8(name: str):
    ast.parse((ROOT / name).read_text(encoding="utf-8"), name, feature_version=(3, 8))


def test_what_runs_elsewhere_compiles_there(python: str):
    program = "import sys; [compile(open(n, 'rb').read(), n, 'exec') for n in sys.argv[1:]]"
    command = [python, "-I", "-S", "-c", program, *(str(ROOT / name) for name in FOREIGN)]
    done = subprocess.run(command, capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_the_interpreters_of_the_tests_are_real():
    for minor, path in interpreters().items():
        done = subprocess.run([path, "--version"], capture_output=True, timeout=30, check=True)
        assert f" {minor}." in done.stdout.decode()
