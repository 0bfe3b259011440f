"""What gets installed: all of it, under one name, with the right number."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from debug_relay.protocol.version import VERSION
from tests.meta.documents import ROOT, block

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


# -- the extra of MCP

EXTRA = ("mcp", "mcp_types")
SCRIPT = "#!{bin}/python\nfrom {module} import main\nraise SystemExit(main())\n"


def wheel_of(package: str, folder: Path) -> None:
    """An installed distribution, packed again."""
    found = importlib.metadata.distribution(package)
    with zipfile.ZipFile(folder / f"{package}-{found.version}-py3-none-any.whl", "w") as packed:
        for file in found.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                packed.write(file.locate(), str(file))


def environment_without_the_extra(folder: Path) -> Path:
    """One that has everything else that is installed here."""
    venv = folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/*/site-packages")
    for one in Path(sysconfig.get_path("purelib")).iterdir():
        if not re.match(r"mcp(_types)?\b(?!_)", one.name):
            (packages / one.name).symlink_to(one)
    modules = {"pip": "pip._internal.cli.main", "debug-relay": "debug_relay.supervisor.cli.main"}
    for name, module in modules.items():
        (venv / "bin" / name).write_text(SCRIPT.format(bin=venv / "bin", module=module))
        (venv / "bin" / name).chmod(0o755)
    return venv


def test_the_documented_line_installs_what_mcp_needs(tmp_path: Path):
    pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    venv = environment_without_the_extra(tmp_path)
    index = tmp_path / "index"
    index.mkdir()
    for package in EXTRA:
        wheel_of(package, index)
    mcp = [venv / "bin" / "debug-relay", "mcp", "--data-dir", tmp_path / "data"]
    lacking = subprocess.run(
        mcp, env={"PATH": ""}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert lacking.returncode == 1
    assert block("mcp-extra").strip().removeprefix(".venv/bin/") in lacking.stderr
    assert "Traceback" not in lacking.stderr
    offline = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(index),
        "PIP_NO_COMPILE": "1",
    }
    env = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    subprocess.run(
        ["bash", "-eu", "-c", block("mcp-extra")], cwd=tmp_path, env={**env, **offline}, check=True
    )
    # Its input is closed, so it ends as soon as it serves.
    subprocess.run(mcp, stdin=subprocess.DEVNULL, check=True, timeout=60)
