"""Runs one command: its parser, what it works with, and its errors as exit codes."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from types import ModuleType

from debug_relay.supervisor.cli.client import address, terminal
from debug_relay.supervisor.cli.client.address import Misused, NoRelay
from debug_relay.supervisor.cli.client.calls import Refused
from debug_relay.supervisor.cli.client.invocation import Choose, Invocation, refusal_text
from debug_relay.supervisor.cli.client.parser import Command, parser_of
from debug_relay.supervisor.cli.exit_codes import FAILED, INTERRUPTED, MISUSED


def run_command(name: str, summary: str, module: ModuleType, argv: list[str]) -> int:
    command: Command = module.COMMANDS[name]
    given = parser_of(name, summary, command).parse(argv)
    if not command.in_relay:
        return command.run(given)
    # A reader of stdout alone, such as a monitor of an agent, must see the errors of some commands.
    stream = sys.stdout if command.errors_on_stdout else sys.stderr
    invocation = Invocation(given)
    try:
        return command.run(invocation, given)
    except (Misused, Choose) as error:
        terminal.complain(f"debug-relay {name}: {error}", stream)
        return _over(command, given, MISUSED, "nothing is waited for")
    except NoRelay as error:
        if address.is_named(given.url, given.data_dir):
            origin = "--url" if given.url is not None else address.URL_VARIABLE
            how = f"correct {origin}, or start a relay there: debug-relay serve"
        else:
            how = "start one: debug-relay serve" + ", or add --start" * (not given.start)
        if given.json:
            error_json = {"code": "NO_RELAY", "message": str(error), "details": {"suggestion": how}}
            print(json.dumps({"success": False, "data": None, "error": error_json}))
        else:
            terminal.complain(f"debug-relay {name}: {error}\nnext: {how}", stream)
        return _over(command, given, FAILED, "no relay answers")
    except Refused as refused:
        if given.json and refused.reply.is_json:
            sys.stdout.write(refused.reply.body.decode())
        else:
            terminal.complain(given.parser.in_options(refusal_text(refused)), stream)
        return _over(command, given, FAILED, f"the relay refused: {refused.code}")
    except KeyboardInterrupt:
        more = f"; {command.interrupted}" if command.interrupted else ""
        terminal.complain(f"debug-relay {name}: interrupted{more}", stream)
        return _over(command, given, INTERRUPTED, "interrupted")


def _over(command: Command, given: Namespace, code: int, reason: str) -> int:
    """The last line of a command whose reader waits for it; returns the exit code."""
    if command.errors_on_stdout:
        if given.json:
            print(json.dumps({"type": "end", "reason": reason, "exit_code": code}))
        else:
            print(f"end: {reason}")
    return code
