"""`GET /docs`: complete, closed to other addresses, and every example is a call that exists."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest

from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.validation.params import examine
from debug_relay.protocol.version import API_PREFIX
from debug_relay.supervisor.http.router import Router
from tests.kit.client import Answer, Client

LOADS = {"src", "srcset", "data", "action", "background", "poster"}


class Page(HTMLParser):
    """The page's anchors, links, examples, and the tags that are open at its end."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.examples: list[str] = []
        self.texts: dict[str, str] = {"script": "", "style": ""}
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.ids += [known["id"] or ""] if "id" in known else []
        if tag == "a":
            self.links.append(known["href"] or "")
        self.loads += [f"{tag} {name}" for name in known if name in LOADS or name[:2] == "on"]
        self.loads += [tag] if tag in ("iframe", "base", "object") else []
        # Without an icon of its own a browser asks the relay for /favicon.ico.
        self.loads += [tag] if tag == "link" and known != {"rel": "icon", "href": "data:,"} else []
        if tag not in ("meta", "input", "link"):
            self.open.append(tag)
        if tag == "pre":
            self.examples.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.texts:
            self.texts[self.open[-1]] += data
        if self.open and self.open[-1] == "pre":
            self.examples[-1] += data


@pytest.fixture(scope="module")
def answer(shared_relay: object) -> Answer:
    return Client(shared_relay.url).get("/docs")  # type: ignore[attr-defined]


def test_it_is_complete_and_needs_nothing_else(answer: Answer) -> None:
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    page = Page(answer.raw.decode())
    assert page.open == []
    assert page.loads == []
    assert set(OPERATIONS) <= set(page.ids)
    assert {link for link in page.links if link[1:] not in page.ids} == set()
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    for text in page.texts.values():
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "](" not in answer.raw.decode()
    assert "`" not in answer.raw.decode().replace(page.texts["script"], "")


def test_each_example_is_a_call_that_exists(answer: Answer) -> None:
    router = Router(OPERATIONS, API_PREFIX)
    examples = Page(answer.raw.decode()).examples
    shown = set()
    for command in examples:
        words = shlex.split(command)
        verb = "POST" if "--json" in words else "GET"
        if "-X" in words:
            verb = words[words.index("-X") + 1]
        url = urlsplit(words[-1])
        found = router.match(verb, url.path)
        row = found.operation
        shown.add(row.name)
        body = json.loads(words[words.index("--json") + 1]) if "--json" in words else {}
        sent = [words[n + 1] for n, word in enumerate(words) if word == "--data-urlencode"]
        query = dict(text.split("=", 1) for text in sent)
        if not row.streams and row.kind == "json":
            examined = examine(row.params, found.path_values, query, body)
            assert examined.params is not None, (command, examined.fields)
    assert shown == set(OPERATIONS)
    assert re.search(r"curl -s --json .*/launch", answer.raw.decode())
