"""What gets installed: all of it, under one name, with the right number."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from debug_relay.protocol.version import VERSION
from tests.meta.documents import ROOT

FOLDERS = ("protocol", "supervisor", "worker")
DATA = (
    "supervisor/cli/client/operations.json",
    "supervisor/cli/commands/SKILL.md",
    "supervisor/page/doorstep.html",
    "supervisor/page/page.html",
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    """Built from a copy: building leaves its own folders in the source."""
    if int(importlib.metadata.version("setuptools").partition(".")[0]) < 77:
        pytest.skip("setuptools is older than the build needs; pip install -e '.[dev]' brings it")
    source = tmp_path_factory.mktemp("source") / "tree"
    unwanted = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "tests")
    shutil.copytree(ROOT, source, symlinks=True, ignore=unwanted)
    built = source.parent / "built"
    command = [sys.executable, "-m", "pip", "wheel", str(source), "-w", str(built)]
    offline = ["--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*command, *offline], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    (path,) = built.iterdir()
    return zipfile.Path(path)


def names(wheel: zipfile.Path) -> list[str]:
    return [name for name in wheel.root.namelist() if not name.endswith("/")]


def test_the_wheel_has_every_module(wheel: zipfile.Path):
    wanted = {
        f"debug_relay/{path.relative_to(ROOT)}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
    }
    wanted |= {f"debug_relay/{folder}/py.typed" for folder in FOLDERS}
    wanted |= {f"debug_relay/{path}" for path in DATA}
    have = {name for name in names(wheel) if not name.partition("/")[0].endswith(".dist-info")}
    assert have == wanted


def test_the_wheel_takes_one_top_level_name(wheel: zipfile.Path):
    """`supervisor`, `worker` and `protocol` are other projects' names."""
    tops = {name.partition("/")[0] for name in names(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"debug_relay"}


def test_every_folder_is_listed():
    """One that is not would run from the source and be missing from the wheel."""
    folders = {
        ".".join(("debug_relay", *path.parent.relative_to(ROOT).parts))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
    }
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert folders == set(listed)
    assert listed == sorted(listed)


def test_no_folder_has_more_modules_than_a_reader_takes_in():
    folders = Counter(
        path.parent
        for folder in (*FOLDERS, "tests")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "__init__.py"
    )
    crowded = {str(folder.relative_to(ROOT)): n for folder, n in folders.items() if n > 25}
    assert crowded == {}


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_links_for_type_checkers_point_at_the_sources(folder: str):
    link = ROOT / "typings" / "debug_relay" / folder
    assert link.is_symlink()
    assert link.readlink() == Path("../..") / folder
    assert link.resolve() == ROOT / folder


def test_there_is_one_version():
    assert PROJECT["version"] == VERSION


def test_the_command_is_there():
    done = subprocess.run(
        [sys.executable, "-P", "-m", "debug_relay.supervisor", "--version"],
        capture_output=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.decode().split() == ["debug-relay", VERSION]
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="debug-relay")
    assert script.value == PROJECT["scripts"]["debug-relay"]
