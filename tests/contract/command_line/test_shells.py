"""Completion in the real shells: a person types, presses Tab, and sees what there is."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable

import pytest

from tests.kit.client import Client
from tests.kit.command import Shell
from tests.kit.relay import eventually
from tests.kit.running import Running

SETUP = {
    "bash": (["--norc", "--noprofile", "-i"], 'eval "$(debug-relay completion bash)"'),
    "zsh": (
        ["-f", "-i"],
        'bindkey -e; autoload -U compinit; compinit -u; eval "$(debug-relay completion zsh)"',
    ),
    "fish": (["--no-config", "-i"], "debug-relay completion fish | source"),
}


@pytest.mark.parametrize("name", SETUP)
def test_tab(name: str, shell: Shell, relay: Client):
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed: apt-get install {name}")
    relay.session(name="alpha-shop")
    relay.session(name="beta-shop")
    options, setup = SETUP[name]
    bin = os.pathsep.join([f"{sys.prefix}/bin", os.environ["PATH"]])
    prompt = {"PS1": "%% " if name == "zsh" else "$ ", "PATH": bin, "TERM": "xterm"}
    terminal = shell.terminal(*options, command=[path], **prompt)

    def completed(typed: str) -> str:
        """The command line after the Tab. Shells redraw it in ways of their own, so the line is
        made an argument of `echo`."""
        before = len(terminal.shown)
        terminal.type(f"{typed}\t\x01echo :\r")
        found = re.compile(r"[\r\n]:(debug-relay .*?)\s*\r?\n")
        terminal.read(lambda shown: bool(found.search(shown, before)))
        match = found.search(terminal.shown, before)
        assert match
        return match[1]

    try:
        terminal.type(f"{setup}; echo rea''dy\r")
        terminal.read(lambda shown: bool(re.search(r"(?<!rea'')ready", shown)))
        assert completed("debug-relay sessi") == "debug-relay sessions"
        # A session by what its name begins with: asked for at this Tab.
        assert completed("debug-relay status alp") == "debug-relay status alpha-shop"
        # An option, its values, and a file where one is wanted.
        assert completed("debug-relay wait --time") == "debug-relay wait --timeout"
        assert completed("debug-relay completion zs") == "debug-relay completion zsh"
        assert completed("debug-relay launch sho") == "debug-relay launch shop.py"
        # Both sessions are offered where both fit.
        before = len(terminal.shown)
        terminal.type("debug-relay rm \t\t")
        terminal.read(
            lambda shown: "beta-shop" in shown[before:] and "alpha-shop" in shown[before:]
        )
    finally:
        terminal.kill()


def test_candidates(shell: Shell, start: Callable[..., Running]):
    """What the shells are given, line by line; a Tab without a relay is silent."""
    running = start('import time; print("up", flush=True); time.sleep(600)')
    # A Tab waits for the relay within a bound, which a busy machine may pass.
    eventually(lambda: f"{running.pid}\t" in shell.ok("__complete", "--", "attach", ""), 60)
    assert shell.ok("__complete", "--", "token", "").split() == ["create", "list", "revoke"]
    assert "--scope" in shell.ok("__complete", "--", "token", "create", "--sc")
    assert shell.ok("__complete", "--", "where", "", OPENCODE_DEBUG_URL="127.0.0.1:9") == ""
    assert shell.ok("__complete", "--", "nonsense", "") == ""
