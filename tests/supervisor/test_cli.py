"""The command line: words understood and refused, exit codes, and what it costs to ask."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from debug_relay.protocol.version import VERSION
from debug_relay.supervisor.cli.main import exit_code
from debug_relay.supervisor.config.settings import KEYS


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("OPENCODE_DEBUG_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = exit_code(argv)
    out, err = capsys.readouterr()
    return code, out, err


def shell(*argv: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    start = ["-c", code] if code else ["-m", "debug_relay.supervisor"]
    return subprocess.run(
        [sys.executable, "-P", *start, *argv], capture_output=True, text=True, timeout=30
    )


def test_no_command_prints_help(capsys: pytest.CaptureFixture[str]):
    code, out, err = run(capsys)
    assert (code, out) == (2, "")
    assert "serve" in err
    assert "config" in err


def test_help_and_version(capsys: pytest.CaptureFixture[str]):
    assert run(capsys, "--version") == (0, f"debug-relay {VERSION}\n", "")
    code, out, _ = run(capsys, "serve", "--help")
    assert code == 0
    for name, key in KEYS.items():
        assert (key.flag in out) == name.startswith("server."), name
    assert "--config" in out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["serv"], "unknown command serv; did you mean serve?"),
        (["zzz"], "unknown command zzz; see debug-relay --help"),
        (["--prot"], "unknown option --prot"),
        (["--port", "1", "serve"], "options follow the command: serve --port"),
        (["serve", "--prot", "1"], "unknown option --prot; did you mean --port?"),
        (["serve", "--prot=1"], "unknown option --prot; did you mean --port?"),
        (["serve", "--por", "1"], "unknown option --por; did you mean --port?"),
        (["serve", "--datadir", "x"], "did you mean --data-dir?"),
        (["config", "--jsn"], "did you mean --json?"),
        (["config", "extra"], "unknown argument extra; see debug-relay config --help"),
        (["serve", "--port"], "expected one argument"),
        (["serve", "--port", "x"], "0 to 65535"),
        (["serve", "--port", ""], 'server.port = "" (flag --port)'),
        (["config", "--config", "/none/such"], "/none/such"),
    ],
)
def test_refused(capsys: pytest.CaptureFixture[str], argv: list[str], said: str):
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_config_is_toml_with_origins(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENCODE_DEBUG_MAX_SESSIONS", "3")
    code, out, err = run(capsys, "config", "--port", "1", "--allow-other-users", "--socket=s")
    assert (code, err) == (0, "")
    tree = tomllib.loads(out)
    assert tree["server"]["port"] == 1
    assert tree["server"]["allow_other_users"] is True
    assert tree["server"]["socket"] == str(Path.cwd() / "s")
    assert tree["sessions"]["max_sessions"] == 3
    assert {f"{s}.{k}" for s, keys in tree.items() for k in keys} == set(KEYS)
    assert re.search(r"^max_sessions = 3 +# environment OPENCODE_DEBUG_MAX_SESSIONS$", out, re.M)
    assert re.search(r"^port = 1 +# flag --port$", out, re.M)
    again = tmp_path / "again.toml"
    again.write_text(out)
    assert tomllib.loads(run(capsys, "config", "--config", str(again))[1]) == tree


def test_config_as_json(capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(capsys, "config", "--json", "--allow-hosts", "a,b")
    assert code == 0
    tree = json.loads(out)
    assert tree["server"]["allow_hosts"] == {"value": ["a", "b"], "origin": "flag --allow-hosts"}
    assert tree["server"]["socket"] == {"value": None, "origin": "built-in default"}


def test_config_tells_what_was_passed_over(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / ".opencode-debugger").mkdir()
    (tmp_path / ".opencode-debugger" / "config.json").write_text("{")
    code, _, err = run(capsys, "config")
    assert code == 0
    assert "config.json is passed over" in err


def test_module_is_the_command():
    done = shell("config", "--port", "nine")
    assert done.returncode == 2
    assert done.stderr.startswith("debug-relay: 1 setting cannot be used:\n  server.port")
    assert shell("--version").stdout == f"debug-relay {VERSION}\n"


def test_asking_costs_no_aiohttp():
    code = (
        "import sys; from debug_relay.supervisor.cli.main import exit_code;"
        "code = exit_code(sys.argv[1:]);"
        "print([m for m in ('aiohttp', 'asyncio', 'psutil', 'debugpy') if m in sys.modules]);"
        "sys.exit(code)"
    )
    done = shell("config", code=code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_reader_that_leaves_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "debug_relay.supervisor", "config"],
        stdout=writer, stderr=subprocess.PIPE, timeout=30, text=True,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_unusual_paths_can_be_printed(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "debug_relay.supervisor", "config", "--data-dir", "/tmp/é€"],
        capture_output=True, timeout=30, env={"HOME": str(tmp_path), "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert rb'data_dir = "/tmp/\xe9\u20ac"' in done.stdout
