"""What only a terminal gets: colour, progress, columns that fit. And that a person drives."""

from __future__ import annotations

import re

from tests.kit.client import Client
from tests.kit.command import Shell

ESCAPES = re.compile(r"\x1b\[[0-9;]*[mK]")


def test_colour_progress_and_width(shell: Shell, relay: Client):
    terminal = shell.terminal("launch", "--break", "shop.py:4", "shop.py")
    assert terminal.end() == 0
    assert "\x1b[1;33m→ 4          amount += price\x1b[0m" in terminal.shown.replace("\r", "")
    plain = shell.terminal("where", "shop", NO_COLOR="1")
    assert plain.end() == 0
    assert not ESCAPES.search(plain.shown)
    assert "→ 4          amount += price" in plain.shown
    dumb = shell.terminal("sessions", TERM="dumb")
    assert dumb.end() == 0
    assert not ESCAPES.search(dumb.shown)
    refused = shell.terminal("status", "nobody")
    assert refused.end() == 1
    assert "\x1b[1;31merror SESSION_NOT_FOUND:\x1b[0m" in refused.shown
    assert "debug-relay sessions" in refused.shown
    # A table is cut at the edge of the terminal, which has 80 columns unless it says otherwise.
    listed = shell.terminal("ps", "--all", COLUMNS="80")
    assert listed.end() == 0
    # A command typed on a terminal is a person's, and took the free lease; a pipe is no person.
    (item,) = relay.get("/sessions").ok()["items"]
    lease = relay.get(f"/sessions/{item['session_id']}").ok()["lease"]
    assert (lease["holder"].endswith(" (human)"), lease["front"]) == (True, "command line")
    named = {"X-Human-Front": "command line"}
    step = f"/sessions/{item['session_id']}/step-over"
    relay.post(step, headers=named).refused("SESSION_LEASED", 423)  # the name is not enough
    assert "SESSION_LEASED" in shell.refused(1, "step")
    assert shell.terminal("step").end() == 0
    # What takes longer than a second says so; and again nothing when it is over.
    waiting = shell.terminal("wait", "shop", "--timeout", "1.8", "--for", "end")
    assert waiting.end() == 5
    assert "waiting … 1 s" in waiting.shown
    assert ESCAPES.sub("", waiting.shown).rstrip().endswith("end: timed out after 1.8 s")


def test_what_a_program_says_cannot_move_the_cursor(shell: Shell):
    shell.ok("launch", "--name", "evil", "--wait", "5", "-c", "x = '\\x1b[2J'; raise ValueError(x)")
    shown = shell.terminal("status", "evil")
    assert shown.end() == 0
    assert "\x1b[2J" not in shown.shown
