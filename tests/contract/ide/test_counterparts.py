"""Clients that others have written join a session."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.kit.client import Client
from tests.kit.source import Source
from tests.meta.documents import ROOT, block

MODULES = ROOT / ".ci" / "node" / "node_modules"  # `.ci/run` installs them
SCRIPT = Path(__file__).with_name("testsupport.js")
NVIM_DAP = ROOT / ".ci" / "nvim-dap"  # `.ci/run` clones it
LUA = Path(__file__).with_name("nvim_dap.lua")
DAPE = ROOT / ".ci" / "dape"  # a clone of it
ELISP = Path(__file__).with_name("dape.el")
PROGRAM = """
    import time

    def work(n):
        total = n * 2  # @work
        return total  # @next

    n = 0
    while True:
        n += 1
        work(n)
        time.sleep(0.001)
"""


@pytest.mark.skipif(
    not (shutil.which("node") and (MODULES / "@vscode" / "debugadapter-testsupport").exists()),
    reason="npm install --prefix .ci/node @vscode/debugadapter-testsupport",
)
def test_the_client_of_vs_code_adapters(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        session.launch(program, wait=0)
        port = urlsplit(session.get().ok()["debugger"]["uri"]).port
        lines = str(program["work"]), str(program["next"])
        ran = subprocess.run(
            ["node", str(SCRIPT), str(port), str(program.path), *lines],
            env={**os.environ, "NODE_PATH": str(MODULES)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout) == {"names": ["n", "total"], "value": "'set'"}
        # It has left, and the program stays where it was.
        assert session.value("n") == "'set'"
        assert session.line() == program["next"]


def joins_and_leaves(relay: Client, program: Source, folder: Path, command: list[str]) -> None:
    """An IDE that scripts itself: it joins at the first line, goes to a breakpoint of its own,
    steps, leaves, and writes down what it saw.
    """
    answer = folder / "answer.json"
    with relay.session(stop_on_entry=True) as session:
        session.launch(program)
        told = {
            "PORT": str(urlsplit(session.get().ok()["debugger"]["uri"]).port),
            "PROGRAM": str(program.path),
            "LINE": str(program["work"]),
            "NEXT": str(program["next"]),
            "ANSWER": str(answer),
            "CONFIGURATION": str(folder / "configuration"),
            "HOME": str(folder),
            **{f"XDG_{kind}_HOME": str(folder) for kind in ("CONFIG", "DATA", "STATE", "CACHE")},
        }
        ran = subprocess.run(
            command,
            env={**os.environ, **told},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert answer.exists(), ran.stderr
        assert json.loads(answer.read_text()) == {
            "reasons": ["entry", "breakpoint", "step"],
            "joined": True,
            "hit": True,
            "stepped": True,
            "name": "work",
            "left": True,
        }
        assert session.line() == program["next"]
        assert session.get("/breakpoints").ok()["breakpoints"] == []
        assert session.status()["status"] == "paused"


@pytest.mark.skipif(
    not (shutil.which("nvim") and NVIM_DAP.exists()),
    reason="apt-get install neovim; git clone nvim-dap to .ci/nvim-dap",
)
def test_nvim_dap(relay: Client, source: Callable[..., Source], tmp_path: Path) -> None:
    (tmp_path / "configuration").write_text(block("nvim-dap"))
    command = ["nvim", "--headless", "-u", "NONE", "--cmd", f"set rtp+={NVIM_DAP}", "-S", str(LUA)]
    joins_and_leaves(relay, source(PROGRAM), tmp_path, command)


@pytest.mark.skipif(not shutil.which("emacs"), reason="apt-get install emacs-nox")
def test_emacs_reads_the_configuration_for_dape(tmp_path: Path) -> None:
    """dape needs Emacs 29. Any Emacs tells what the configuration is: that of VS Code, as a
    property list.
    """
    (tmp_path / "relay.el").write_text(block("dape"))
    shown = "(princ (json-encode (cdr (assq 'relay dape-configs))))"
    script = ["--eval", "(setq dape-configs nil)", "-l", "relay.el", "-l", "json", "--eval", shown]
    ran = subprocess.run(
        ["emacs", "-Q", "--batch", *script],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    [vscode] = json.loads(block("vscode"))["configurations"]
    wanted = {"host": vscode["connect"]["host"], "port": 40123, "request": vscode["request"]}
    told = iter(json.loads(ran.stdout))
    assert dict(zip(told, told, strict=True)) == {**wanted, "type": "python"}


def has_dape() -> bool:
    """Whether dape is there, and an Emacs that it works with."""
    if not (shutil.which("emacs") and DAPE.exists()):
        return False
    version = subprocess.run(["emacs", "--version"], capture_output=True, text=True).stdout
    return int(version.split()[2].partition(".")[0]) >= 29


@pytest.mark.skipif(
    not has_dape(), reason="apt-get install emacs-nox, 29 or later; git clone dape to .ci/dape"
)
def test_dape(relay: Client, source: Callable[..., Source], tmp_path: Path) -> None:
    (tmp_path / "configuration").write_text(block("dape"))
    command = ["emacs", "-Q", "--batch", "-L", str(DAPE), "-l", str(ELISP)]
    joins_and_leaves(relay, source(PROGRAM), tmp_path, command)
