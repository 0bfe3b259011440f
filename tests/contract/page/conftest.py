"""One Chromium for the tests of the page, and the page's words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.browser import CHROMIUM, Browser, Tab
from tests.kit.client import Client
from tests.kit.relay import Relay


class Page:
    """The live page in one tab."""

    def __init__(self, browser: Browser, client: Client) -> None:
        self.origin = f"http://{client.host}:{client.port}"
        self.tab: Tab = browser.tab()
        self.tab.looks()
        self.tab.open(f"{self.origin}/")

    def text(self, selector: str) -> str:
        found = self.tab.js(f"document.querySelector({json.dumps(selector)})?.innerText")
        return str(found or "")

    def until(self, selector: str, words: str, within: float = 20) -> None:
        """Until this part of the page shows these words."""
        part = f"document.querySelector({json.dumps(selector)})"
        # A part that is hidden has an innerText too.
        shows = f"{part}?.checkVisibility() && {part}.innerText.includes({json.dumps(words)})"
        self.tab.until(shows, within)

    def at_line(self, line: int) -> None:
        """Until the source shows this line as the present one."""
        number = "document.querySelector('#source tr.here td.number')?.innerText"
        self.tab.until(f"{number} === '{line}' && !document.querySelector('#stop.old')")

    def allowed(self) -> set[str]:
        """The buttons that would do something."""
        found = self.tab.js(
            "[...document.querySelectorAll('#buttons button')]"
            ".filter(one => one.getAttribute('aria-disabled') === 'false').map(one => one.id)"
        )
        return {name.removeprefix("do-") for name in found}

    def click(self, selector: str) -> None:
        self.tab.js(f"document.querySelector({json.dumps(selector)}).click()")

    def fill(self, selector: str, text: str) -> None:
        self.tab.js(f"document.querySelector({json.dumps(selector)}).focus()")
        self.tab.type(text)
        self.tab.press("Enter")
        self.tab.js("document.activeElement.blur()")

    def choose(self, name: str) -> None:
        self.until("#sessions", name)
        self.tab.js(
            "[...document.querySelectorAll('#sessions button')]"
            f".find(one => one.innerText.includes({json.dumps(name)})).click()"
        )
        self.until("#title", name)

    def close(self) -> None:
        """It has asked nobody else for anything, and the browser has nothing to complain about."""
        foreign = [
            url
            for url in self.tab.requested
            if not url.startswith((self.origin, self.origin.replace("http", "ws"), "data:"))
        ]
        assert foreign == []
        assert self.tab.complaints == []
        self.tab.close()


class Opens:
    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.pages: list[Page] = []

    def __call__(self, client: Client) -> Page:
        self.pages.append(Page(self.browser, client))
        return self.pages[-1]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (Debian: chromium)")
    one = Browser()
    yield one
    one.close()


@pytest.fixture(scope="package")
def followed_relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    relay = Relay(tmp_path_factory.mktemp("page") / "data", forked=True).start()
    yield relay
    assert relay.stop() == 0


@pytest.fixture
def relay(followed_relay: Relay) -> Iterator[Client]:
    """A relay of these tests alone: a browser keeps connections open, which looks like a leak."""
    client = followed_relay.client
    yield client
    for item in client.get("/sessions", limit=1000).ok()["items"]:
        client.delete(f"/sessions/{item['session_id']}", force="true")


@pytest.fixture
def page(browser: Browser) -> Iterator[Any]:
    """Opens the page of a relay in a tab of its own."""
    opens = Opens(browser)
    yield opens
    for one in opens.pages:
        one.close()
