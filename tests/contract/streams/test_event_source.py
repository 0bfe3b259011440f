"""A real browser's EventSource: it follows, resumes by itself, and foreign pages get nothing."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from tests.kit.browser import Browser, needs_chromium
from tests.kit.client import Session
from tests.kit.relay import Relay
from tests.kit.source import Source

PROGRAM = """
    for n in range(3):
        print("before", n)
    input()
    for n in range(3):
        print("after", n)
    input()
"""
FOLLOW = """
    window.told = []; window.opened = 0; window.failed = 0;
    window.source = new EventSource({path});
    source.onopen = () => opened++;
    source.onerror = () => failed++;
    source.addEventListener({event}, e => told.push([e.lastEventId, JSON.parse(e.data)]));
"""


@needs_chromium
def test_a_browser_follows_over_the_death_of_the_relay(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay()
    session = relay.client.session()
    session.launch(source(PROGRAM), wait=0)
    output = f"/api/v1/sessions/{session.id}/output/stream"
    origin = f"http://{relay.client.host}:{relay.client.port}"
    browser = Browser()
    try:
        tab = browser.tab(f"{origin}/api/v1/health")
        tab.js(FOLLOW.format(path=repr(output), event="'output'"))
        printed = "told.map(([id, entry]) => entry.output).join('')"
        tab.until(f"{printed} === 'before 0\\nbefore 1\\nbefore 2\\n'")
        # A page of another origin, and one of another port, gets nothing of it.
        for foreign in ("about:blank", origin.replace("127.0.0.1", "localhost")):
            other = browser.tab(foreign if foreign == "about:blank" else f"{foreign}/api/v1/health")
            other.js(FOLLOW.format(path=repr(origin + output), event="'output'"))
            other.until("failed > 0")
            assert other.js("[opened, told.length]") == [0, 0]
            other.close()
        port = urlsplit(relay.url).port
        assert port is not None
        relay.kill()
        tab.until("source.readyState === EventSource.CONNECTING")
        relay.start(port=port)
        Session(relay.client, session.id).post("/input", {"input": "\n"}).ok()
        tab.until(f"{printed}.includes('after 2')")
        expected = "".join(f"{when} {n}\n" for when in ("before", "after") for n in range(3))
        assert tab.js(printed) == expected  # nothing is lost, nothing comes twice
        ids = tab.js("told.map(([id]) => id)")
        assert len(set(ids)) == len(ids)
        assert tab.js("opened") == 2
    finally:
        browser.close()
