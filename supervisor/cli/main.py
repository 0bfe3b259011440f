"""The command line: its commands, their options, and the exit codes.

Exit code 2 means that the call or the configuration cannot be understood, 1 that the command
failed. Each command imports what only it needs: a shell's completion must not wait for aiohttp.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import json
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from debug_relay.protocol.version import VERSION
from debug_relay.supervisor.cli import token_commands
from debug_relay.supervisor.config.layers import ConfigError, Loaded, describe, load
from debug_relay.supervisor.config.settings import KEYS

OK: Final = 0
FAILED: Final = 1
MISUSED: Final = 2

# Every [server] key is a flag; config.toml explains the rest.
_FLAGS: Final = {
    "server.host": ("HOST", "address to listen on"),
    "server.port": ("PORT", "TCP port; 0 picks a free one"),
    "server.socket": ("PATH", "Unix socket to listen on as well"),
    "server.data_dir": ("DIR", "where sessions, breakpoints, profiles and logs are kept"),
    "server.run_dir": ("DIR", "where sockets and rings are kept"),
    "server.allow_hosts": ("NAMES", "host names accepted besides the loopback ones, with commas"),
    "server.allow_uids": ("UIDS", "users accepted besides one's own, with commas"),
    "server.allow_other_users": ("true|false", "accept loopback connections of every local user"),
    "server.max_body_bytes": ("BYTES", "largest request body"),
}


class _Parser(argparse.ArgumentParser):
    """Prints errors as one line."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"{self.prog}: {message}\n")
        raise SystemExit(MISUSED)

    def options(self) -> list[str]:
        return [option for action in self._actions for option in action.option_strings]


def main() -> NoReturn:
    """The command as a process, which ends here.

    All that must outlive it is written and closed by now, and the kernel takes the rest. If the
    interpreter freed each object of a relay first, that would take 45 ms.
    """
    code = exit_code(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)


def exit_code(argv: Sequence[str]) -> int:
    """Runs `debug-relay ARGV…`; returns the exit code."""
    try:
        try:
            code = _run(list(argv))
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else FAILED
        sys.stdout.flush()
        return code
    except ConfigError as error:
        sys.stderr.write(f"debug-relay: {error}\n")
        return MISUSED
    except BrokenPipeError:
        # The reader of our output has gone; the interpreter's last flush must not fail as well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILED


def _run(argv: list[str]) -> int:
    top, commands = parsers()
    if not argv:
        top.print_help(sys.stderr)
        return MISUSED
    word = argv[0]
    if word not in commands and word not in top.options():
        if word.startswith("-"):
            top.error(f"unknown option {word}; options follow the command: serve {word} …")
        top.error(f"unknown command {word}; {_hint(word, list(commands), top)}")
    known, unknown = top.parse_known_args(argv)
    command = commands[known.command]
    if known.command == "token":
        command = commands[f"token {known.action}"]
    if unknown:
        word = unknown[0].partition("=")[0]
        what = "option" if word.startswith("-") else "argument"
        command.error(f"unknown {what} {word}; {_hint(word, command.options(), command)}")
    overrides = {
        name: text for name, text in vars(known).items() if name in KEYS and text is not None
    }
    loaded = load(overrides, os.environ, known.config)
    if known.command == "token":
        return token(loaded, known)
    if known.command == "serve":
        return serve(loaded, known.keep_sessions, known.insecure_no_auth)
    return show_config(loaded, known.json)


def _hint(word: str, known: list[str], parser: argparse.ArgumentParser) -> str:
    near = difflib.get_close_matches(word, known, 1, 0.5)
    return f"did you mean {near[0]}?" if near else f"see {parser.prog} --help"


def parsers() -> tuple[_Parser, dict[str, _Parser]]:
    """The parser of the whole command line, and the parser of each command."""
    top = _Parser(
        prog="debug-relay",
        description="A relay through which agents and people drive debuggers with curl.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"debug-relay {VERSION}")
    choices = top.add_subparsers(dest="command", metavar="COMMAND")
    commands = {}
    for name, words in (
        ("serve", "run the relay until it is stopped"),
        ("config", "print every setting and where it comes from"),
        ("token", "create, list and revoke bearer tokens"),
    ):
        commands[name] = choices.add_parser(name, help=words, description=words, allow_abbrev=False)
        if name != "token":
            _add_settings(commands[name])
    commands["serve"].add_argument(
        "--keep-sessions",
        action="store_true",
        help="leave running sessions to the next relay when this one stops",
    )
    commands["serve"].add_argument(
        "--insecure-no-auth",
        action="store_true",
        help="ask nobody for a token while none exists; beyond loopback too",
    )
    commands["config"].add_argument("--json", action="store_true", help="as JSON")
    for name, action in token_commands.add_to(commands["token"]).items():
        assert isinstance(action, _Parser)
        commands[f"token {name}"] = action
        _add_place(action)
    return top, commands


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config", metavar="FILE", help="configuration file instead of <data_dir>/config.toml"
    )
    for name, (metavar, words) in _FLAGS.items():
        if name == "server.allow_other_users":
            command.add_argument(
                KEYS[name].flag, dest=name, metavar=metavar, help=words, nargs="?", const="true"
            )
        else:
            command.add_argument(KEYS[name].flag, dest=name, metavar=metavar, help=words)


def _add_place(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", metavar="FILE", help="as for serve")
    command.add_argument("--data-dir", dest="server.data_dir", metavar="DIR", help="as for serve")
    command.add_argument(
        KEYS["auth.tokens_file"].flag,
        dest="auth.tokens_file",
        metavar="FILE",
        help="instead of the configured one",
    )


def token(loaded: Loaded, known: argparse.Namespace) -> int:
    from debug_relay.supervisor.setup_error import SetupError

    try:
        token_commands.run(loaded.settings, known)
    except SetupError as error:
        sys.stderr.write(f"debug-relay: {error}\n")
        return FAILED
    return OK


def serve(loaded: Loaded, keep_sessions: bool, insecure_no_auth: bool) -> int:
    """Runs the relay until it is told to stop."""
    from debug_relay.supervisor.setup_error import SetupError

    app = importlib.import_module("debug_relay.supervisor.app")
    try:
        return int(app.serve(loaded, keep_sessions, insecure_no_auth))
    except SetupError as error:
        sys.stderr.write(f"debug-relay: {error}\n")
        return FAILED


def show_config(loaded: Loaded, as_json: bool) -> int:
    """Prints the settings as TOML that can be a configuration file, with origins in comments."""
    for warning in loaded.warnings:
        sys.stderr.write(f"debug-relay: {warning}\n")
    if as_json:
        print(json.dumps(_as_tree(loaded), indent=2))
        return OK
    rows = describe(loaded)
    width = max(len(f"{row.key.partition('.')[2]} = {row.value}") for row in rows)
    width = min(width, 60)
    shown = ""
    for row in rows:
        section, _, key = row.key.partition(".")
        if section != shown:
            _print(f"[{section}]" if not shown else f"\n[{section}]")
            shown = section
        _print(f"{f'{key} = {row.value}':<{width}}  # {row.origin}")
    return OK


def _as_tree(loaded: Loaded) -> dict[str, dict[str, object]]:
    tree: dict[str, dict[str, object]] = {}
    for name, origin in loaded.origins.items():
        section, _, key = name.partition(".")
        value = getattr(getattr(loaded.settings, section), key)
        tree.setdefault(section, {})[key] = {"value": value, "origin": origin}
    return tree


def _print(line: str) -> None:
    # A path may contain characters that the terminal's encoding lacks.
    encoding = sys.stdout.encoding or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding))
