"""`completion bash|zsh|fish`, and `__complete`, which the shells' functions call at each Tab.

One place knows what can be typed: the parsers. The relay is asked for sessions and processes,
within a bound; a Tab never shows an error.
"""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Iterator
from itertools import pairwise

from debug_relay.supervisor.cli.client import address, calls
from debug_relay.supervisor.cli.client.invocation import shown_name
from debug_relay.supervisor.cli.client.parser import Command, Parser, parser_of
from debug_relay.supervisor.cli.exit_codes import OK

_ASK_SECONDS = 3.0  # How long a Tab waits for the relay.
_FILES = "\tfiles"  # The line that tells the shell to complete names of files.
_OF_FILES = (
    "command",
    "cwd",
    "env_file",
    "config",
    "token_file",
    "data_dir",
    "venv",
    "python_path",
)

_SCRIPTS = {
    "bash": r"""# In ~/.bashrc:  eval "$(debug-relay completion bash)"
_debug_relay() {
    local line value found=() IFS=$'\n'
    local words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    for line in $("${COMP_WORDS[0]}" __complete -- "${words[@]}" 2>/dev/null); do
        value=${line%%$'\t'*}
        if [ -z "$value" ]; then
            compopt -o default -o filenames 2>/dev/null
        else
            found+=("$(printf '%q' "$value")")
        fi
    done
    COMPREPLY=("${found[@]}")
}
complete -F _debug_relay debug-relay
""",
    "zsh": r"""#compdef debug-relay
# In ~/.zshrc, behind compinit:  eval "$(debug-relay completion zsh)"
_debug_relay() {
    local line value words_ files=0
    local -a found
    for line in "${(@f)$("${words[1]}" __complete -- "${(@)words[2,$CURRENT]}" 2>/dev/null)}"; do
        [[ -z "$line" ]] && continue
        value="${line%%$'\t'*}"
        words_="${line#*$'\t'}"
        if [[ -z "$value" ]]; then
            files=1
        else
            found+=("${value//:/\\:}:$words_")
        fi
    done
    (( $#found )) && _describe -V 'debug-relay' found
    (( files )) && _files
}
if [[ "$funcstack[1]" = "_debug_relay" ]]; then
    _debug_relay "$@"
else
    compdef _debug_relay debug-relay
fi
""",
    "fish": r"""# In ~/.config/fish/config.fish:  debug-relay completion fish | source
function __debug_relay_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] __complete -- $words[2..-1] 2>/dev/null)
        if string match -q -- \t'*' $line
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c debug-relay -f -k -a '(__debug_relay_complete)'
""",
}  # fmt: skip


def _completion_options(parser: Parser) -> None:
    parser.add_argument("shell", choices=list(_SCRIPTS), help="the shell that you type in")


def _completion(given: Namespace) -> int:
    sys.stdout.write(_SCRIPTS[given.shell])
    return OK


def complete(words: list[str]) -> int:
    """`debug-relay __complete -- WORDS`: a candidate a line, with its meaning behind a tab."""
    words = words[1:] if words[:1] == ["--"] else words
    for value, meaning in candidates(words or [""]):
        sys.stdout.write(f"{value}\t{meaning}\n" if value else f"{_FILES}\n")
    return OK


def candidates(words: list[str]) -> Iterator[tuple[str, str]]:
    """Candidates for the last word, each with its meaning; an empty one means files."""
    from debug_relay.supervisor.cli.main import WORDS, command_module

    *before, last = words
    known: Iterator[tuple[str, str]]
    if not before:
        known = ((name, word.summary) for name, word in WORDS.items())
    elif before[0] in WORDS:
        word = before[0]
        command: Command = command_module(word).COMMANDS[word]
        known = _arguments(parser_of(word, WORDS[word].summary, command), before[1:], last)
    else:
        known = iter(())
    for value, meaning in known:
        if value.startswith(last) or not value:
            yield value, meaning


def _arguments(parser: Parser, before: list[str], last: str) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            if not before:
                yield from ((name, "") for name in action.choices)
            elif before[0] in action.choices:
                yield from _arguments(action.choices[before[0]], before[1:], last)
            return
    options = {option: action for action in parser._actions for option in action.option_strings}
    if before and (valued := options.get(before[-1])) is not None and valued.nargs != 0:
        yield from _values(valued, before)
        return
    if last.startswith("-"):
        for option, action in options.items():
            if option.startswith("--"):
                yield option, (action.help or "").replace("%%", "%")
        return
    typed = [word for word in before if not word.startswith("-")]
    for action in parser._actions:
        if not action.option_strings:
            yield from _values(action, before, first=not typed)


def _values(
    action: argparse.Action, before: list[str], first: bool = True
) -> Iterator[tuple[str, str]]:
    if action.choices is not None:
        yield from ((str(choice), "") for choice in action.choices)
    elif action.dest == "session" and (first or action.nargs == "*"):
        yield from _sessions(before)
    elif action.dest == "target":
        yield from _processes(before)
    elif action.dest == "operation":
        if first:
            yield from ((name, row["words"]) for name, row in calls.callable_operations().items())
    elif action.dest == "words":
        if first or before[0] in calls.callable_operations():
            yield from _sessions(before)
        yield "", ""
    elif action.dest in _OF_FILES:
        yield "", ""


def _relay(before: list[str]) -> calls.Relay:
    def given(option: str) -> str | None:
        found = [after for word, after in pairwise(before) if word == option]
        return found[-1] if found else None

    token = address.token(given("--token-file"))
    relay = calls.Relay(address.find(given("--url"), given("--data-dir")), token, None)
    relay.answer_seconds = _ASK_SECONDS
    return relay


def _sessions(before: list[str]) -> Iterator[tuple[str, str]]:
    try:
        items = _relay(before).call("list-sessions", limit=1000).data.get("items") or ()
    except (address.NoRelay, address.Misused, calls.Refused):
        return
    for item in items:
        program = item.get("program") or ""
        yield shown_name(item), f"{item['status']} {program}".strip()


def _processes(before: list[str]) -> Iterator[tuple[str, str]]:
    try:
        items = _relay(before).call("list-processes", limit=1000).data.get("items") or ()
    except (address.NoRelay, address.Misused, calls.Refused):
        return
    for item in items:
        if item.get("attachable"):
            yield str(item["pid"]), " ".join(item.get("command") or ()).replace("\n", " ")[:80]


COMMANDS = {
    "completion": Command(
        _completion_options,
        _completion,
        "debug-relay completion bash",
        "The shell's part of completion: commands, options, sessions that exist, processes. For "
        'bash: eval "$(debug-relay completion bash)"; for zsh likewise, behind compinit; for fish: '
        "debug-relay completion fish | source.",
        in_relay=False,
    ),
}
