"""Finds the operation for a verb and a path, with a trie over path segments.

The trie is built from the operations table. The router decodes percent-encoding; it neither
validates values nor runs anything.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.operation_row import Operation, path_variables
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.refusals import Problem
from debug_relay.supervisor.http.path_guess import meant, segments_of

# These are served without the prefix too, where browsers and other programs look for them.
ROOT_OPERATIONS: Final = (
    "index", "docs", "llms", "openapi", "metrics", "mcp",
    "stream-output", "stream-events", "logs", "debug", "tunnel",
)  # fmt: skip

BROKEN_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
# An unknown path is compared with routes up to this length: a longer one is not a typing
# mistake, and comparing is quadratic.
_COMPARED_CHARACTERS: Final = 120
# The least similarity of a route that is suggested in place of an unknown one.
_SIMILAR: Final = 0.5


class Match(NamedTuple):
    operation: Operation
    path_values: dict[str, str]


class _Leaf(NamedTuple):
    operation: Operation
    variables: list[str]


class _Node:
    __slots__ = ("leaves", "literals", "variable")

    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.variable: _Node | None = None
        self.leaves: dict[str, _Leaf] = {}

    def child(self, segment: str) -> _Node:
        if not segment.startswith("{"):
            return self.literals.setdefault(segment, _Node())
        if self.variable is None:
            self.variable = _Node()
        return self.variable


class Router:
    def __init__(self, operations: Mapping[str, Operation], prefix: str) -> None:
        self._root = _Node()
        self._prefix = prefix
        self._verbs: dict[str, list[str]] = {}  # template → verbs
        for operation in operations.values():
            for path in operation.paths:
                self._add(operation, prefix + path.rstrip("/"))
                if operation.name in ROOT_OPERATIONS:
                    self._add(operation, path)

    def match(self, method: str, raw_path: str) -> Match:
        """The route of a path as it was sent, still percent-encoded; its query is ignored."""
        path = raw_path.partition("?")[0]
        if not path.startswith("/"):
            raise self._not_found(method, path)
        segments = [_decoded(segment) for segment in path[1:].split("/")]
        # One slash at the path's end is ignored; a second one is not, and // is not the root.
        if len(segments) > 1 and not segments[-1] and segments[-2]:
            segments.pop()
        found = _find(self._root, segments, 0, ())
        if found is None:
            raise self._not_found(method, path)
        leaves, values = found
        leaf = leaves.get("GET" if method == "HEAD" else method)
        if leaf is None:
            raise _wrong_verb(method, path, leaves)
        return Match(leaf.operation, dict(zip(leaf.variables, values, strict=True)))

    def _add(self, operation: Operation, template: str) -> None:
        node = self._root
        for segment in template[1:].split("/"):
            node = node.child(segment)
        if operation.verb in node.leaves:
            raise ValueError(f"two operations answer {operation.verb} {template}")
        node.leaves[operation.verb] = _Leaf(operation, path_variables(template))
        self._verbs.setdefault(template, []).append(operation.verb)

    def _not_found(self, method: str, path: str) -> RelayError:
        wanted = "GET" if method == "HEAD" else method
        sent = path[:_COMPARED_CHARACTERS].rstrip("/")
        if sent.startswith("/") and not sent.startswith(self._prefix + "/"):
            sent = self._prefix + "/" + "/".join(segments_of(sent))
        found = meant(wanted, segments_of(sent))
        if found is not None:
            template, verb = self._prefix + found.template, str(OPERATIONS[found.operation].verb)
            filled = _filled(template, _alike(template, sent)).replace("{frame_id}", "0")
            advice = f"Probably meant: {verb} {filled}{found.body}"
        else:
            template, filled = self._closest(sent)
            verbs = self._verbs[template]
            verb = wanted if wanted in verbs else verbs[0]
            advice = f"The closest is {verb} {filled}"
        shown = path[:_COMPARED_CHARACTERS] + ("…" if len(path) > _COMPARED_CHARACTERS else "")
        return RelayError(
            Code.NOT_FOUND,
            f"There is no {method} {shown}.",
            f"{advice}."
            if advice.endswith("/llms.txt")
            else f"{advice}; GET {self._prefix}/llms.txt shows the usual calls.",
            closest=f"{verb} {template}",
        )

    def _closest(self, path: str) -> tuple[str, str]:
        """The most similar route, and that route filled with the values of the path."""
        given = path.split("/")
        filled = {_filled(template, given): template for template in self._candidates()}
        for best in difflib.get_close_matches(path, filled, n=1, cutoff=_SIMILAR):
            return filled[best], best
        overview = f"{self._prefix}/llms.txt"
        fallback = overview if overview in self._verbs else next(self._candidates())
        return fallback, fallback

    def _candidates(self) -> Iterator[str]:
        return (template for template in self._verbs if template.startswith(self._prefix + "/"))


def _find(
    node: _Node, segments: list[str], at: int, values: tuple[str, ...]
) -> tuple[dict[str, _Leaf], tuple[str, ...]] | None:
    """Tries literals first, then the variable; no deeper than the trie."""
    if at == len(segments):
        return (node.leaves, values) if node.leaves else None
    segment = segments[at]
    literal = node.literals.get(segment)
    if literal is not None:
        found = _find(literal, segments, at + 1, values)
        if found is not None:
            return found
    if node.variable is None or not segment:
        return None
    return _find(node.variable, segments, at + 1, (*values, segment))


def _decoded(segment: str) -> str:
    # We decode after the split, so %2F is a character of its segment.
    if "%" not in segment and segment.isascii():
        return segment
    raw = segment.encode("utf-8", "surrogateescape")
    try:
        if BROKEN_ESCAPE.search(raw):
            raise ValueError("a % that two hexadecimal digits do not follow")
        return unquote_to_bytes(raw).decode("utf-8")
    except ValueError as error:
        shown = ascii(segment[:_COMPARED_CHARACTERS])
        problem = "is not percent-encoded UTF-8"
        raise RelayError(
            Code.INVALID_PARAMETER,
            f"The path's part {shown} {problem}: {error}",
            "Encode the part as UTF-8 and then with percent signs; a percent sign itself is %25.",
            errors=[Problem("path", problem, shown)],
        ) from None


def _wrong_verb(method: str, path: str, leaves: dict[str, _Leaf]) -> RelayError:
    allow = sorted({*leaves, "HEAD"} if "GET" in leaves else leaves)
    shown = path[:_COMPARED_CHARACTERS]
    return RelayError(
        Code.METHOD_NOT_ALLOWED,
        f"{shown} does not take {method}.",
        f"Use {next(iter(leaves))} {shown}; allowed: {', '.join(allow)}.",
        allow=allow,
    )


def _alike(template: str, path: str) -> list[str]:
    """The segments of a path as far as it follows the template, but for an s at their ends: what
    comes after another word is no value of the template's.
    """
    given = path.split("/")
    for at, (part, sent) in enumerate(zip(template.split("/"), given, strict=False)):
        if not part.startswith("{") and part.rstrip("s") != sent.rstrip("s"):
            return given[:at]
    return given


def _filled(template: str, given: list[str]) -> str:
    parts = template.split("/")
    return "/".join(
        quote(given[at], safe="%")
        if part.startswith("{") and at < len(given) and given[at]
        else part
        for at, part in enumerate(parts)
    )
