"""Parsers of commands: one line for each error, a runnable example in each help."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from debug_relay.supervisor.cli.client.calls import operations
from debug_relay.supervisor.cli.exit_codes import MISUSED

_TYPES: dict[str, Callable[[str], Any]] = {"integer": int, "number": float}


class _Help(argparse.HelpFormatter):
    """Wraps the description, but not the examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.split("\n\n")
        fill = super()._fill_text
        return "\n\n".join(
            paragraph if "\n  " in paragraph else fill(paragraph, width, indent)
            for paragraph in paragraphs
        )

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        if action.nargs == argparse.REMAINDER:
            return f"{action.metavar} …"
        return super()._format_args(action, default_metavar)


class Parser(argparse.ArgumentParser):
    """Prints errors as one line, with the option that was probably meant."""

    errors_on_stdout = False

    def error(self, message: str) -> NoReturn:
        stream = sys.stdout if self.errors_on_stdout else sys.stderr
        stream.write(f"{self.prog}: {message}\n")
        raise SystemExit(MISUSED)

    def options(self) -> list[str]:
        return [option for action in self._actions for option in action.option_strings]

    def in_options(self, text: str) -> str:
        """The text of an answer, with the fields of the API that are options of this command."""
        for action in self._actions:
            if "_" in action.dest and action.option_strings:
                field = re.compile(rf"(?<![\w/.-]){action.dest}(?![\w/.-]*/)\b")
                text = field.sub(action.option_strings[-1], text)
        return text

    def parse(self, argv: list[str]) -> argparse.Namespace:
        """Parses all of `argv`; what is unknown is refused with the closest known option.

        `parser` of the result is the parser that a later complaint belongs to.
        """
        whole = (argparse.REMAINDER, argparse.PARSER)
        if any(action.nargs in whole for action in self._actions):
            known, unknown = self.parse_known_args(argv)
        else:
            # Options may stand between SESSION and what follows it.
            known, unknown = self.parse_known_intermixed_args(argv)
        if unknown:
            word = unknown[0].partition("=")[0]
            what = "option" if word.startswith("-") else "argument"
            owner: Parser = known.parser
            owner.error(f"unknown {what} {word}; {hint(word, owner.options(), owner.prog)}")
        return known


class Command(NamedTuple):
    """One word of the command line."""

    options: Callable[[Parser], None]
    run: Callable[..., int]
    example: str  # commands that a person may type as they stand, one a line
    words: str = ""  # what the summary leaves out
    in_relay: bool = True  # whether it calls a relay, and has the options for that
    errors_on_stdout: bool = False
    interrupted: str = ""  # Ctrl-C says that this becomes of the program


def hint(word: str, known: Iterable[str], prog: str) -> str:
    near = difflib.get_close_matches(word, list(known), 1, 0.5)
    return f"did you mean {near[0]}?" if near else f"see {prog} --help"


def parser_of(name: str, summary: str, command: Command) -> Parser:
    words = f"{summary[0].upper()}{summary[1:]}."
    if command.words:
        words += "\n\n" + command.words
    lines = "\n".join(f"  {line}" for line in command.example.splitlines())
    parser = Parser(
        prog=f"debug-relay {name}",
        description=words,
        epilog=f"example:\n{lines}",
        formatter_class=_Help,
        allow_abbrev=False,
    )
    parser.set_defaults(parser=parser)
    parser.errors_on_stdout = command.errors_on_stdout
    command.options(parser)
    if command.in_relay:
        _add_relay_options(parser)
    parser.usage = " ".join([parser.prog, "[OPTION …]", *_positionals(parser)])
    return parser


def _positionals(parser: Parser) -> Iterator[str]:
    """The arguments that are no options; the help lists the options below."""
    for action in parser._get_positional_actions():
        name = str(action.metavar or "|".join(action.choices or [action.dest]))
        if action.nargs == argparse.PARSER:
            yield f"{name} …"
        elif action.nargs == argparse.REMAINDER:
            yield f"{name} [ARG …]"
        elif action.nargs == "*" and not name.startswith("["):
            yield f"[{name} …]"
        elif action.nargs == "?":
            yield f"[{name}]"
        else:
            yield name


def _add_relay_options(parser: Parser) -> None:
    group = parser.add_argument_group("the relay")
    group.add_argument("--json", action="store_true", help="print the relay's reply as JSON")
    group.add_argument("--url", help="its address, or unix:///path; default: OPENCODE_DEBUG_URL")
    group.add_argument("--data-dir", metavar="DIR", help="find it by the relay.json in DIR")
    group.add_argument("--token-file", metavar="FILE", help="default: OPENCODE_DEBUG_TOKEN")
    group.add_argument("--agent", metavar="NAME", help="who calls, as events name it")
    group.add_argument("--start", action="store_true", help="start a relay if none is running")


def add_session(parser: Parser, many: bool = False) -> None:
    """The session as the first argument, which may be left out while there is just one."""
    parser.add_argument(
        "session", nargs="*" if many else "?", metavar="SESSION", help="its name or id"
    )


def add_fields(
    parser: Parser,
    operation: str,
    *names: str,
    words: Mapping[str, str] = MappingProxyType({}),
    **other: str,
) -> None:
    """Options from fields of an operation: their type, choices and meaning are the table's.

    `other` maps an option's name to the field: `python="python_path"` is `--python`. `words` says
    what a field means here where the command does not pass on what is typed, or has a default.
    """
    known = operations()[operation]["fields"]
    for option, name in {**{name: name for name in names}, **other}.items():
        field = known[name]
        flag = "--" + option.replace("_", "-")
        said = words.get(name) or _as_help(field.get("words", ""))
        if field["type"] == "boolean":
            parser.add_argument(flag, dest=name, action="store_true", default=None, help=said)
        elif field["type"] == "list":
            parser.add_argument(
                flag, dest=name, action="append", metavar="TEXT", help=f"{said}; may be repeated"
            )
        else:
            parser.add_argument(
                flag,
                dest=name,
                type=_TYPES.get(field["type"], str),
                choices=field.get("choices"),
                metavar=None if "choices" in field else _metavar(name, field["type"]),
                help=said,
            )


def _metavar(name: str, type: str) -> str:
    return "SECONDS" if type == "number" else name.upper().rpartition("_")[2]


def _as_help(words: str) -> str:
    """A sentence of the table as the help of an option."""
    words = words.replace("%", "%%").replace("`", "").removesuffix(".")
    return words[:1].lower() + words[1:] if words[1:2].islower() or words[1:2] == " " else words
