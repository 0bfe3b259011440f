"""Fixtures for all tests: a relay, programs to debug, and the leak guard around every test."""

from __future__ import annotations

import compileall
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests.kit.client import Client
from tests.kit.relay import Relay, eventually, marked
from tests.kit.running import Running
from tests.kit.source import ENVIRONMENTS, PYTHONS, Source, interpreters

# A shell without job control starts background jobs deaf to these; tests compare programs under the
# relay with plain ones, which would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# Other processes run beside an example: how long it takes says nothing about it.
settings.register_profile(
    "beside others", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("beside others")

# An ordinary environment: what these say is the relay's to say, or the program's.
for name in ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"):
    os.environ.pop(name, None)

# Compiled once and not by every process: the relay by the first, the tests by `_compile_tests`.
sys.dont_write_bytecode = False


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until all tests are collected: of what is made meanwhile nothing is garbage
    if hasattr(config, "workerinput"):
        return  # it has inherited all of this
    _write_to_memory()
    root = Path(__file__).parents[1]
    for folder in ("protocol", "supervisor", "worker"):
        compileall.compile_dir(root / folder, quiet=2, force=False)
    if ENVIRONMENTS not in os.environ:
        _make_environments(config)
    if config.getoption("numprocesses", None):
        _compile_tests(root)


def _write_to_memory() -> None:
    """The folders of tests lie in memory where there is room; those of failed tests stay.

    On a disk a tenth of the tests' processor time goes into their files: every session deletes
    some, and ext4 looks at each inode that was freed in the last seconds before it takes one. And
    sessions wait for the disk, because they keep their records with fsync.
    """
    memory = "/dev/shm"
    if "PYTEST_DEBUG_TEMPROOT" in os.environ or not os.access(memory, os.W_OK):
        return
    found = os.statvfs(memory)
    if found.f_bavail * found.f_frsize > 4 << 30 and not found.f_flag & os.ST_NOEXEC:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = memory


def _compile_tests(root: Path) -> None:
    """pytest compiles tests when it collects them. In a fresh clone each of its processes would
    compile all of them, in 5 s of processor time.
    """
    stale = {path.parent for path in root.glob("tests/**/test_*.py") if not _is_compiled(path)}
    if len(stale) < 5:
        return
    halves = [[str(folder) for folder in sorted(stale)[start::2]] for start in range(2)]
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for one in [subprocess.Popen([*collect, *half], cwd=root, **quiet) for half in halves]:
        one.wait()


def _is_compiled(test: Path) -> bool:
    kept = (test.parent / "__pycache__").glob(f"{test.stem}.*-pytest-*.pyc")
    written = test.stat().st_mtime
    return any(one.stat().st_mtime >= written for one in kept)


def _make_environments(config: pytest.Config) -> None:
    """Programs of the tests run on Pythons with nothing installed.

    What is installed for the machine's own may run code at each start of Python, and pyenv's
    `python3` is a shell script: with both, a program takes five times as long to start.
    """
    folder = Path(tempfile.mkdtemp(prefix="debug-relay-tests-"))
    config.add_cleanup(lambda: shutil.rmtree(folder))
    found = interpreters()
    for minor in found.keys() & {*DEALT}:
        make = [found[minor], "-m", "venv", "--without-pip", str(folder / minor)]
        subprocess.run(make, check=True)
    os.environ[ENVIRONMENTS] = str(folder)
    # What a session runs that names no other.
    os.environ["PATH"] = os.pathsep.join([f"{folder}/3.11/bin", os.environ["PATH"]])


def pytest_collection_finish() -> None:
    # No collection looks at the tests themselves: one that did would take 0.2 s.
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One folder for all processes of this run."""
    Relay.compiled = tmp_path_factory.getbasetemp().parent / "compiled-debugger"
    Relay.compiled.mkdir(exist_ok=True)


@pytest.fixture(scope="session")
def shared_relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    """One relay for all tests that do not harm it."""
    relay = Relay(
        tmp_path_factory.mktemp("relay") / "data",
        env={"OPENCODE_DEBUG_SESSIONS__MAX_SESSIONS": "40"},
    ).start()
    # The relay keeps files that it opens at its first call: no test leaks them.
    relay.client.get("/health").ok()
    yield relay
    assert relay.stop() == 0
    assert relay.workers() == []


@pytest.fixture
def relay(shared_relay: Relay) -> Iterator[Client]:
    """The shared relay's client. Afterwards its sessions, processes and descriptors are gone."""
    process = psutil.Process(shared_relay.pid)
    client = shared_relay.client
    descriptors = process.num_fds()
    yield client
    ids = [item["session_id"] for item in client.get("/sessions", limit=1000).ok()["items"]]
    for id in ids:
        client.delete(f"/sessions/{id}", force="true")
    eventually(lambda: process.num_fds() <= descriptors, what="descriptors of the relay given back")
    eventually(lambda: shared_relay.below() == [], what="workers of the relay gone")
    for id in ids:
        eventually(lambda id=id: marked(id) == [], what=f"programs of {id} gone")


@pytest.fixture
def own_relay(tmp_path: Path) -> Iterator[Callable[..., Relay]]:
    """Starts relays that a test may harm; ends what is left of them."""
    started: list[Relay] = []

    def start(
        *flags: str,
        name: str = "data",
        env: dict[str, str] | None = None,
        python: str = sys.executable,
        forked: bool = True,
    ) -> Relay:
        """`forked` is False where the relay's own memory or command line is looked at."""
        forked = (
            forked
            and python == sys.executable
            and not any(key.startswith("PYTHON") for key in env or ())
        )
        relay = Relay(tmp_path / name, *flags, env=env, python=python, forked=forked).start()
        started.append(relay)
        return relay

    yield start
    for relay in started:
        relay.stop()
        for worker in relay.workers():
            worker.kill()
        assert relay.workers() == [] or eventually(lambda r=relay: r.workers() == [])
        if not relay.run_dir.is_relative_to(relay.data_dir):
            shutil.rmtree(relay.run_dir)  # below /tmp, where nobody else tidies up


@pytest.fixture
def source(tmp_path: Path) -> Callable[..., Source]:
    """Write a program to debug."""

    def write(text: str, name: str = "program.py") -> Source:
        return Source(tmp_path / name, text)

    return write


@pytest.fixture
def start(source: Callable[..., Source]) -> Iterator[Callable[..., Running]]:
    """Starts programs to attach to, each of which says that it is up."""
    started: list[Running] = []

    def run(
        text: str, *args: str, python: str = sys.executable, name: str = "program.py"
    ) -> Running:
        one = Running(source(text, name), python, *args)
        started.append(one)
        assert one.line() == "up"
        return one

    yield run
    for one in started:
        one.end()


SETTRACE, MONITORING = ("3.8", "3.11"), ("3.12", "3.13")
DEALT = ("3.8", "3.12", "3.11", "3.13")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Three more than there are processors: tests wait for processes much of their time. Then two
    processors are busy for 95 % of the run; with two more for 80 %, and with six more the same
    tests need more processor time.
    """
    return min(os.cpu_count() or 1, 14) + 3


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-python",
        action="store_true",
        help="run each test on every Python that it is written for, not on two of them",
    )
    parser.addoption(
        "--python",
        action="append",
        choices=PYTHONS,
        help="run only tests that are written for several Pythons, on this one; may be repeated",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The fixture `python`: made here, because the options choose its versions."""
    if "python" in metafunc.fixturenames:
        option = metafunc.config.getoption
        every = PYTHONS if option("--every-python") else (*SETTRACE, *MONITORING)
        metafunc.parametrize("python", option("--python") or every, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Two Pythons a test, chosen by its name: one that traces and one that monitors. Where a test
    has several cases these are dealt out among all of them, one Python each; a slow one has
    one, and so has one whose assertions hold alike for tracing and monitoring (`one_python`).

    All four of them run in every suite. `--every-python` is for the change that touches the probe.
    """
    if config.getoption("--python"):
        chosen = [item for item in items if "python" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[*set(items).difference(chosen)])
        items[:] = chosen
        return
    if config.getoption("--every-python"):
        return
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    cases: dict[str, list[str]] = {}
    for item in items:
        callspec = getattr(item, "callspec", None)
        version = callspec.params.get("python") if callspec is not None else None
        name = item.nodeid.partition("[")[0]
        choice = zlib.crc32(name.encode())
        chosen: tuple[str | None, ...] = (SETTRACE[choice % 2], MONITORING[choice // 2 % 2])
        if version is not None and len(callspec.params) > 1:
            case = callspec.id.replace(version, "", 1)
            known = cases.setdefault(name, [])
            if case not in known:
                known.append(case)
            chosen = (DEALT[(choice + known.index(case)) % len(DEALT)],)
        elif any(item.get_closest_marker(name) for name in ("slow", "one_python")):
            chosen = (DEALT[choice % len(DEALT)],)
        (kept if version is None or version in chosen else left).append(item)
    workers = getattr(config, "workerinput", {"workercount": 1})["workercount"]
    items[:] = _long_ones_first(kept, workers)
    config.hook.pytest_deselected(items=left)


def _long_ones_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Deals out the tests that are marked `long`, and puts them first.

    `--dist worksteal` cuts the list into a piece for each worker, and takes from the ends of pieces
    for workers that have none left.
    """
    long = [item for item in items if item.get_closest_marker("long")]
    others = iter([item for item in items if not item.get_closest_marker("long")])
    dealt: list[pytest.Item] = []
    for worker in range(workers):
        first = long[worker::workers]
        size = (len(items) - len(dealt)) // (workers - worker)
        dealt += [*first, *islice(others, max(size - len(first), 0))]
    return dealt


@pytest.fixture
def python(request: pytest.FixtureRequest) -> str:
    """An interpreter of each version that the test runs on; see `pytest_generate_tests`."""
    found = interpreters().get(request.param)
    if found is None:
        pytest.skip(f"no CPython {request.param} on this machine")
    return found
