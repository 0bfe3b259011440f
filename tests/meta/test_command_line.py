"""The command line starts at once, and says of each command how it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from debug_relay.protocol.docs.client_table import client_table
from debug_relay.supervisor.cli.client.parser import Command, parser_of
from debug_relay.supervisor.cli.main import WORDS, command_module
from tests.meta.documents import ROOT
from tests.meta.test_layers import imported

CLI = ROOT / "supervisor" / "cli"
OF_CALLERS = sorted([*(CLI / "client").glob("*.py"), *(CLI / "commands").glob("*.py")])
# Each of these takes longer to import than the rest of a command together.
SLOW = ("aiohttp", "asyncio", "msgspec", "orjson", "psutil", "debugpy", "inspect", "dataclasses")


def command(word: str) -> Command:
    found: Command = command_module(word).COMMANDS[word]
    return found


@pytest.mark.parametrize("path", OF_CALLERS, ids=lambda path: str(path.relative_to(CLI)))
def test_commands_need_the_standard_library_alone(path: Path):
    ours = ("debug_relay.protocol.version.", "debug_relay.supervisor.cli.")
    strange = [
        name
        for name in imported(path)
        if name.partition(".")[0] not in sys.stdlib_module_names and not name.startswith(ours)
    ]
    assert strange == []


def test_no_command_waits_for_slow_modules():
    """Of all commands that call a relay, and of the list of commands."""
    words = [name for name, word in WORDS.items() if word.module.startswith("commands.")]
    code = (
        "import sys; from debug_relay.supervisor.cli import main\n"
        "main.exit_code(['--help'])\n"
        f"[main.exit_code([word, '--help']) for word in {words}]\n"
        f"print([name for name in {SLOW} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines()[-1] == "[]"


def test_the_table_is_current():
    page = CLI / "client" / "operations.json"
    assert page.read_text(encoding="utf-8") == client_table(), "regenerate it with: make docs"


@pytest.mark.parametrize("word", WORDS)
def test_each_command_explains_itself(word: str):
    found = command(word)
    lines = found.example.splitlines()
    assert lines
    assert all(line.startswith(f"debug-relay {word}") for line in lines)
    parser = parser_of(word, WORDS[word].summary, found)
    assert lines[0] in parser.format_help()
    silent = [
        action.dest for action in parser._actions if not action.help and action.nargs != "A..."
    ]
    assert silent == []
