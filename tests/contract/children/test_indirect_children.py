"""Children whose command line does not name Python: scripts by their first line, shells."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.client import Client
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

TOOL = """
    #!FIRST
    import os, sys

    def work(words):
        return words  # @inside

    print(work(sys.argv), sys.executable, getattr(sys, "orig_argv", None), flush=True)
    sys.exit(len(sys.argv))
"""
WAYS = """
    import asyncio, os, subprocess, sys

    folder, python = sys.argv[1:]
    os.environ["PATH"] = folder + ":" + os.environ["PATH"]
    path = os.path.join(folder, "tool")

    def status(pid):
        return os.WEXITSTATUS(os.waitpid(pid, 0)[1])

    async def shell():
        return await (await asyncio.create_subprocess_shell("tool 'a b' c")).wait()

    def replaced():
        pid = os.fork()
        if pid == 0:
            os.execvp("tool", ["anything", "x"])
        return status(pid)

    for name, way in (
        ("found on PATH", lambda: subprocess.call(["tool", "a b"])),
        ("its path", lambda: subprocess.call([path, "--flag", ""])),
        ("elsewhere", lambda: subprocess.call(["./tool", "1"], cwd=folder)),
        ("by env", lambda: subprocess.call(["enved", "$1"])),
        ("with an option", lambda: subprocess.call(["optioned"])),
        ("another PATH", lambda: subprocess.call(["/bin/sh", "-c", "tool"], env={"PATH": folder})),
        ("posix_spawn", lambda: status(os.posix_spawn(path, [path, "y"], os.environ))),
        ("executed", replaced),
        ("shell: script", lambda: subprocess.call("tool a 'b c' \\"d\\"", shell=True)),
        ("shell: Python", lambda: subprocess.call(f"{python} {path} 'it is'", shell=True)),
        ("shell: elsewhere", lambda: subprocess.call("./tool", shell=True, cwd=folder)),
        ("asyncio", lambda: asyncio.run(shell())),
        ("system", lambda: os.system("tool 1 2 3") >> 8),
        ("popen", lambda: os.popen("tool read").read()),
        # These a shell runs as it likes.
        ("not simple", lambda: subprocess.call("exit 3; tool", shell=True)),
        ("no such command", lambda: os.system("no-such-tool 2>/dev/null") >> 8),
        ("built in", lambda: subprocess.call("test -d /", shell=True)),
        ("not executable", lambda: os.system("./plain 2>/dev/null") >> 8),
        ("a binary", lambda: subprocess.call(["true"])),
    ):
        print(name, way(), flush=True)
"""
DEBUGGED = 14


@pytest.fixture
def tools(tmp_path: Path, source: Write, python: str) -> Callable[[], Source]:
    def write() -> Source:
        tool = source(TOOL, "tools/tool")
        text = tool.path.read_text()
        # `python3` of this directory: what `env` finds.
        (tmp_path / "tools" / "python3").symlink_to(python)
        first = {"tool": f"#!{python}", "enved": "#! /usr/bin/env python3"}
        first |= {"optioned": f"#!{python} -s", "test": f"#!{python}", "plain": f"#!{python}"}
        for name, line in first.items():
            file = tmp_path / "tools" / name
            file.write_text(text.replace("#!FIRST", line))
            file.chmod(0o600 if name == "plain" else 0o700)
        return tool

    return write


def test_they_are_debugged_and_notice_nothing(
    relay: Client,
    shared_relay: Relay,
    source: Write,
    python: str,
    tools: Callable[[], Source],
) -> None:
    program, tool = source(WAYS), tools()
    words = [str(tool.path.parent), python]
    plain = subprocess.run(
        [python, str(program), *words],
        env=shared_relay.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    with relay.session(python_path=python) as session:
        point = session.break_at(tool, tool["inside"], log_message="in {words[1:]}")
        for name in ("enved", "optioned"):
            session.break_at(tool.path.with_name(name), tool["inside"], log_message="in {words}")
        session.launch(program, args=words, wait=0, debug_subprocesses=True)
        eventually(lambda: session.status()["status"] == "terminated", timeout=60)
        assert session.status()["exit_code"] == 0
        assert session.printed("stdout") == plain.stdout
        assert session.printed("stderr") == plain.stderr
        assert session.get(f"/breakpoints/{point['id']}").ok()["hit_count"] == DEBUGGED - 2
        assert session.printed("console").count("in ") == DEBUGGED
        came = [e["body"] for e in session.events("subprocess")]
        assert [one["reason"] for one in came].count("attached") == DEBUGGED + 1  # and the fork


def test_one_stops_at_its_own_line(
    relay: Client, source: Write, python: str, tools: Callable[[], Source]
) -> None:
    tool = tools()
    program = source(f"import os\nprint(os.system('{tool.path} one') >> 8)\n")
    with relay.session(python_path=python) as session:
        session.break_at(tool, tool["inside"])
        stopped = session.launch(program, debug_subprocesses=True)
        assert stopped["stop_reason"] == "breakpoint"
        assert stopped["child_pid"] not in (None, stopped["pid"])
        assert session.value("words[1]") == "'one'"
        assert session.resume()["exit_code"] == 0
        assert session.printed("stdout").endswith("\n2\n")
