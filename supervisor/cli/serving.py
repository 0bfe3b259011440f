"""`debug-relay serve` and `debug-relay config`: the settings as flags, and what they come to."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Final

from debug_relay.supervisor.cli.client.parser import Command, Parser
from debug_relay.supervisor.cli.client.terminal import print_text
from debug_relay.supervisor.cli.exit_codes import FAILED, MISUSED, OK
from debug_relay.supervisor.config.layers import ConfigError, Loaded, describe, load
from debug_relay.supervisor.config.settings import KEYS

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


def configured(run: Callable[[Loaded, argparse.Namespace], int]) -> Callable[..., int]:
    """A command that runs with the settings in force; their problems are its exit code 2."""

    def with_settings(given: argparse.Namespace) -> int:
        from debug_relay.supervisor.setup_error import SetupError

        overrides = {
            name: text for name, text in vars(given).items() if name in KEYS and text is not None
        }
        try:
            return run(load(overrides, os.environ, given.config), given)
        except ConfigError as error:
            sys.stderr.write(f"debug-relay: {error}\n")
            return MISUSED
        except SetupError as error:
            sys.stderr.write(f"debug-relay: {error}\n")
            return FAILED

    return with_settings


def add_settings(parser: Parser) -> None:
    parser.add_argument(
        "--config", metavar="FILE", help="configuration file instead of <data_dir>/config.toml"
    )
    for name, (metavar, words) in _FLAGS.items():
        if name == "server.allow_other_users":
            parser.add_argument(
                KEYS[name].flag, dest=name, metavar=metavar, help=words, nargs="?", const="true"
            )
        else:
            parser.add_argument(KEYS[name].flag, dest=name, metavar=metavar, help=words)


def _serve_options(parser: Parser) -> None:
    add_settings(parser)
    parser.add_argument(
        "--keep-sessions",
        action="store_true",
        help="leave running sessions to the next relay when this one stops",
    )
    parser.add_argument(
        "--insecure-no-auth",
        action="store_true",
        help="ask nobody for a token while none exists; beyond loopback too",
    )


def _serve(loaded: Loaded, given: argparse.Namespace) -> int:
    """Runs the relay until it is asked to stop."""
    app = importlib.import_module("debug_relay.supervisor.app")
    return int(app.serve(loaded, given.keep_sessions, given.insecure_no_auth))


def _config_options(parser: Parser) -> None:
    add_settings(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")


def _config(loaded: Loaded, given: argparse.Namespace) -> int:
    """Prints the settings as TOML that can be a configuration file, with origins in comments."""
    for warning in loaded.warnings:
        sys.stderr.write(f"debug-relay: {warning}\n")
    if given.json:
        print(json.dumps(_as_tree(loaded), indent=2))
        return OK
    rows = describe(loaded)
    width = max(len(f"{row.key.partition('.')[2]} = {row.value}") for row in rows)
    width = min(width, 60)
    shown = ""
    for row in rows:
        section, _, key = row.key.partition(".")
        if section != shown:
            print_text(f"[{section}]" if not shown else f"\n[{section}]")
            shown = section
        print_text(f"{f'{key} = {row.value}':<{width}}  # {row.origin}")
    return OK


def _as_tree(loaded: Loaded) -> dict[str, dict[str, object]]:
    tree: dict[str, dict[str, object]] = {}
    for name, origin in loaded.origins.items():
        section, _, key = name.partition(".")
        value = getattr(getattr(loaded.settings, section), key)
        tree.setdefault(section, {})[key] = {"value": value, "origin": origin}
    return tree


COMMANDS = {
    "serve": Command(
        _serve_options,
        configured(_serve),
        "debug-relay serve --port 0 --data-dir /tmp/relay",
        "It prints its address in one line when it listens.",
        in_relay=False,
    ),
    "config": Command(
        _config_options, configured(_config), "debug-relay config --port 8000", in_relay=False
    ),
}
