"""`skill` and `openapi`: texts about the relay, for agents and for makers of clients."""

from __future__ import annotations

import importlib
import json
import os
import sys
from argparse import Namespace

from debug_relay.protocol.version import API_PREFIX, VERSION
from debug_relay.supervisor.cli.client.parser import Command, Parser
from debug_relay.supervisor.cli.exit_codes import OK

SKILL = os.path.join(os.path.dirname(__file__), "SKILL.md")


def _no_options(_: Parser) -> None:
    pass


def _skill(_: Namespace) -> int:
    with open(SKILL, encoding="utf-8") as file:
        sys.stdout.write(file.read())
    return OK


def _openapi(_: Namespace) -> int:
    # The table of operations itself is needed, which takes longer than other commands may.
    openapi = importlib.import_module("debug_relay.protocol.docs.openapi")
    document = openapi.openapi(VERSION, f"http://127.0.0.1:5679{API_PREFIX}")
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=True) + "\n")
    return OK


COMMANDS = {
    "skill": Command(
        _no_options,
        _skill,
        "debug-relay skill",
        "A SKILL.md: when to debug rather than print, and eight recipes. Agents that read skills "
        "take it as a file.",
        in_relay=False,
    ),
    "openapi": Command(
        _no_options,
        _openapi,
        "debug-relay openapi",
        "The OpenAPI 3.1 document that a relay of this version serves; none needs to run.",
        in_relay=False,
    ),
}
