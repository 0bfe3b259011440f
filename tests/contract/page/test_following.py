"""A person on the live page: follows an agent's session, takes over, steps, and hands back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.contract.page.conftest import Page
from tests.kit.browser import Tab
from tests.kit.client import Client
from tests.kit.relay import Relay
from tests.kit.running import Running
from tests.kit.source import Source

PROGRAM = '''
    """Prices of orders."""
    import time

    class Order:
        def __init__(self, items):
            self.items = items  # the prices

        def total(self):
            net = 0
            for price in self.items:
                net += price  # @sum
                print("added", price, flush=True)  # @print
            return net

    def main():
        orders = [Order([1.5, 2.25, 10]), Order([99.0])]
        while True:
            for order in orders:
                print(f"total <b>{order.total()}</b>", flush=True)  # @call
            time.sleep(0.05)

    main()
'''
HOSTILE = """
    import sys

    class E(Exception): pass

    def f(n, many):
        if n == 0:
            print("\\x1b[31mred\\x1b[0m plain\\n1%\\r100%", flush=True)
            print("bell\\x07 nul\\x00 \\u202ertl <b>", flush=True)
            sys.stdout.buffer.write(b"no \\xffutf8 \\xc3\\xa9\\n")
            sys.stdout.flush()
            raise E("<script>\\x1b[31m\\u202e")
        f(n - 1, many)

    def g(many):
        f(300, many)

    g(list(range(1200)))
"""
PRINTS = """
import sys, time
while True:
    for stream in (sys.stdout, sys.stderr):
        print("tick", file=stream, flush=True)
    time.sleep(0.001)
"""
TICKS = """
    import time
    print("up", flush=True)
    n = 0
    while True:
        n += 1
        time.sleep(0.01)
"""
# Every text against its background, by the formula of WCAG 2; large text needs 3, other text 4.5.
CONTRAST = """
(() => {
  const rgb = text => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const over = (top, under) => {
    const a = top.length > 3 ? top[3] : 1;
    return [0, 1, 2].map(at => top[at] * a + under[at] * (1 - a));
  };
  const behind = node => {
    const layers = [];
    let opacity = 1;
    for (let at = node; at; at = at.parentElement) {
      layers.unshift(rgb(getComputedStyle(at).backgroundColor));
      opacity *= Number(getComputedStyle(at).opacity);
    }
    return [layers.reduce((under, top) => over(top, under), [255, 255, 255]), opacity];
  };
  const bad = [];
  let count = 0;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement, style = getComputedStyle(node);
    const box = node.getBoundingClientRect();
    if (!walk.currentNode.data.trim() || !box.width || !box.height || box.right < 0) continue;
    if (rgb(style.color)[3] === 0 || ["SCRIPT", "STYLE"].includes(node.tagName)) continue;
    const [ground, opacity] = behind(node), ink = rgb(style.color);
    const shown = over([...ink.slice(0, 3), (ink.length > 3 ? ink[3] : 1) * opacity], ground);
    const [a, b] = [light(shown), light(ground)].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.6 && style.fontWeight >= 700);
    count++;
    if ((a + 0.05) / (b + 0.05) < (isLarge ? 3 : 4.5))
      bad.push([walk.currentNode.data.trim().slice(0, 40), ((a + 0.05) / (b + 0.05)).toFixed(2)]);
  }
  return {bad, count};
})()
"""

# Buttons that are too small for a finger (WCAG 2.2). The marks beside the source are as high as its
# lines are.
SMALL = """
[...document.querySelectorAll("button:not([data-line])")].filter(one => one.checkVisibility())
  .map(one => [one.innerText, one.getBoundingClientRect()])
  .filter(([, box]) => box.width < 24 || box.height < 24)
  .map(([words, box]) => [words, box.width, box.height])
"""


def audited(tab: Tab) -> int:
    """Every text can be read, every control has a name and room for a finger, and nothing is wider
    than the window.
    """
    found = tab.js(CONTRAST)
    assert found["bad"] == []
    nodes = tab.command("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "textbox", "region", "navigation", "toolbar", "dialog", "link"}
    nameless = [
        (node["role"]["value"], node.get("nodeId"))
        for node in nodes
        if not node["ignored"] and node["role"]["value"] in roles
        if not node.get("name", {}).get("value", "").strip()
    ]
    assert nameless == []
    small = tab.js(SMALL)
    assert small == []
    assert tab.js("document.documentElement.scrollWidth <= innerWidth")
    assert tab.js(
        "[...document.querySelectorAll('h1')].length === 1 && document.documentElement.lang"
    )
    return int(found["count"])


def test_a_person_takes_over_and_hands_back(
    relay: Client, source: Callable[..., Source], page: Callable[[Client], Page], tmp_path: Path
) -> None:
    agent = relay.called(X_Agent="agent-7")
    program = source(PROGRAM)
    with agent.session(name="<i>orders</i>") as session:
        [line] = [
            session.break_at(program, program["sum"])["line"],
        ]
        session.post("/watch", {"expression": "len(self.items)"}).ok()
        session.launch(program)
        one = page(relay)
        tab = one.tab
        one.until("#sessions", "<i>orders</i>")  # text, not HTML
        one.at_line(line)
        one.until("#driver", "nobody drives it")
        one.until("#watches", "len(self.items) = 3")
        one.until("#frames", "total program.py")
        tab.until("document.querySelectorAll('#source .keyword').length > 5")
        assert "comment" in tab.js(
            "document.querySelector('#source tr.here span:last-child').className"
        )
        tab.until(f"document.querySelector('button[data-line=\"{line}\"].set') !== null")
        # What the agent does is seen as it does it.
        session.step()
        one.at_line(line + 1)
        one.until("#locals .changed", "net = 1.5")
        one.until("#locals .changed", "was 0")
        session.step()
        one.until("#output pre", "added 1.5")
        one.until("#events", "stopped by agent-7")
        one.until("#stops", "3 · step")
        # The page only looks, whatever is pressed.
        assert one.allowed() == {"take"}
        stop = session.status()["stop_id"]
        for key in "cnio":
            tab.press(key)
        one.click("#do-continue")
        assert tab.js("document.querySelector('#evaluate-form').hidden")
        assert session.status()["stop_id"] == stop
        assert session.get().ok().get("lease") is None

        tab.press("t")
        one.until("#driver", "you drive it, since")
        assert one.allowed() == {"back", "continue", "step-over", "step-into", "step-out", "end"}
        error = session.post("/step-over").refused("SESSION_LEASED", 423)
        assert error["details"]["front"] == "page"
        tab.press("n")
        one.at_line(line)
        one.until("#events", "(human)")
        tab.press("F10")
        one.at_line(line + 1)
        one.until("#locals .changed", "was 1.5")
        one.fill("#evaluate", "self.items[0] + 1")
        one.until("#output pre", "» self.items[0] + 1\n2.5")
        one.fill("#watch", "net * 2")
        one.until("#watches", "net * 2 = 7.5")
        one.click("#watches li:last-child .remove")
        tab.until("!document.querySelector('#watches').innerText.includes('net * 2')")
        one.until("#watches", "len(self.items) = 3")
        one.click("#locals .twist[aria-expanded]")
        one.until("#locals ul ul", "items = [1.5, 2.25, 10]")
        tab.press("[")
        one.until("#locals-title", "Locals of main")
        one.until("#locals", "orders = ")
        assert one.text("#source tr.here td.number") == str(program["call"])
        tab.press("b")
        mark = f"document.querySelector('button[data-line=\"{program['call']}\"].set')"
        tab.until(f"{mark}?.disabled === false")
        assert {bp["line"] for bp in session.get("/breakpoints").ok()["breakpoints"]} == {
            line,
            program["call"],
        }
        one.click("#stops li:last-child button")  # the first stop, as it was then
        one.until("#locals", "net = 0")
        one.until("#age", "as it was at stop 1")
        audited(tab)
        tab.press("c")
        one.at_line(line)

        for name, looks in {
            "light": {}, "dark": {"dark": True},
            "phone": {"width": 390, "height": 844, "phone": True},
            "phone-dark": {"width": 390, "height": 844, "phone": True, "dark": True},
        }.items():  # fmt: skip
            tab.looks(**looks)  # type: ignore[arg-type]
            count = audited(tab)
            tab.screenshot(tmp_path / f"{name}.png")
            assert (tmp_path / f"{name}.png").stat().st_size > 10_000
            print(f"{name}: {count} texts, 0 hard to read; {tmp_path / name}.png")
        tab.looks()

        session.post("/lease", {"take_over": True}).ok()
        one.until("#note", "agent-7 has taken over")
        one.until("#driver", "agent-7 drives it")
        assert one.allowed() == {"take"}
        one.click("#do-take")
        one.until("#driver", "you drive it")
        tab.press("h")
        one.until("#driver", "nobody drives it")
        session.step()
        one.at_line(line + 1)
        assert len(tab.sockets) == 1
    one.until("#empty", "deleted")


def test_hostile_and_long_things(
    relay: Client, source: Callable[..., Source], page: Callable[[Client], Page]
) -> None:
    deep = source(HOSTILE)
    with relay.session(name="deep\u202e<img src=x>") as session, relay.session(name="quiet"):
        session.launch(deep, stop_on_exception="uncaught", wait=20)
        one = page(relay)
        tab = one.tab
        one.choose("deep\\u202e<img src=x>")
        one.until("#exception", "E: <script>\\x1b[31m\\u202e")
        # What a terminal would obey is left out, and what is no UTF-8 is one sign, not others.
        one.until(
            "#output pre",
            "red plain\n1%\n100%\nbell\\x07 nul\\x00 \\u202ertl <b>\nno \ufffdutf8 é\n",
        )
        assert tab.js("document.querySelectorAll('img, #chosen script, #chosen b').length") == 0
        one.until("#frames", "50 of 303 frames are shown.")
        one.click("#frames .rest button")
        tab.until("document.querySelectorAll('#frames li').length === 303")
        one.click("#frames li:nth-child(301) button")
        one.until("#locals", "n = 300")
        values = "[...document.querySelectorAll('#locals li')]"
        many = f"{values}.find(one => one.innerText.includes('many'))"
        tab.js(f"{many}.querySelector('.twist').click()")
        one.until("#locals", "100 of 1200 values are shown.")
        tab.js(f"{many}.querySelector('.rest button').click()")
        one.until("#locals", "1100 of 1200 values are shown.")
        # The events are in their order, whether they came before the page or after.
        numbers = tab.js("[...document.querySelectorAll('#events li')].map(one => one.dataset.seq)")
        assert numbers == sorted(numbers, key=int, reverse=True)
        # Another session shows nothing of this one.
        one.choose("quiet")
        one.until("#title", "quiet")
        assert "script" not in one.text("#chosen")
        assert tab.js("document.querySelector('#stop').checkVisibility()") is False
        # A session that has no event is seen while another one prints all the time.
        with relay.session(name="printer") as printer:
            printer.launch(code=PRINTS, wait=0)
            one.choose("printer")
            one.until("#output pre", "tick")
            with relay.session(name="eventless"):
                one.until("#sessions", "eventless", within=8)
            one.until("#output pre", "[what was printed before is not shown]")


def test_seven_tabs_at_once(
    relay: Client, source: Callable[..., Source], page: Callable[[Client], Page]
) -> None:
    program = source(PROGRAM)
    with relay.called(X_Agent="agent-7").session(name="seven") as session:
        session.break_at(program, program["sum"])
        session.launch(program)
        pages = [page(relay) for _ in range(7)]
        for one in pages:
            one.at_line(program["sum"])
        for line in (program["print"], program["sum"] - 1, program["sum"]):
            session.step()
            for one in pages:
                one.at_line(line)
        pages[3].tab.press("t")
        pages[3].until("#driver", "you drive it")
        for one in pages[4:]:
            one.until("#driver", "drives it through page")  # each tab is a driver of its own
        pages[3].tab.press("n")
        for one in pages:
            one.at_line(program["print"])
            assert len(one.tab.sockets) == 1
        pages[5].tab.press("t")
        pages[3].until("#note", "has taken over")
        pages[5].tab.press("h")
        for one in pages:
            one.until("#driver", "nobody drives it")


def test_a_program_that_waits_for_a_line_gets_it(
    relay: Client, source: Callable[..., Source], page: Callable[[Client], Page]
) -> None:
    with relay.session(name="asks") as session:
        session.launch(source("print('hello', input('who? '))"), wait=0)
        one = page(relay)
        one.until("#place", "waits for input: who?")
        assert one.tab.js("document.querySelector('#stdin-form').hidden")
        one.tab.press("t")
        one.tab.until("!document.querySelector('#stdin-form').hidden")
        one.fill("#stdin", "ann")
        one.until("#output pre", "hello ann")
        one.until("#state", "terminated (exit code 0)")
        assert one.tab.js("document.querySelector('#stdin-form').hidden")


def test_attaching_to_a_process_of_the_list(
    relay: Client, start: Callable[..., Running], page: Callable[[Client], Page]
) -> None:
    running = start(TICKS)
    one = page(relay)
    one.until("#link", "connected")
    one.tab.press("a")
    buttons = "[...document.querySelectorAll('#processes td button')]"
    button = f"{buttons}.find(one => one.innerText.endsWith('{running.pid}'))"
    one.tab.until(f"Boolean({button})")
    one.tab.js(f"{button}.click()")
    one.until("#state", "running")
    one.until("#driver", "you drive it, since")
    one.tab.press("p")
    one.until("#state", "paused")
    one.until("#locals", "n = ")
    assert one.text("#do-end") == "Detach"
    one.click("#do-end")
    assert one.text("#do-end") == "Really?"
    one.click("#do-end")
    one.until("#state", "created")
    assert running.alive
    [item] = relay.get("/sessions").ok()["items"]
    relay.delete(f"/sessions/{item['session_id']}").ok()
    one.until("#sessions-title", "No sessions")


@pytest.mark.slow
def test_the_page_comes_back_with_the_relay(
    own_relay: Callable[..., Relay], source: Callable[..., Source], page: Any
) -> None:
    relay = own_relay()
    program = source(PROGRAM)
    session = relay.client.session(name="survivor")
    session.break_at(program, program["sum"])
    session.launch(program)
    one = page(relay.client)
    one.at_line(program["sum"])
    port = urlsplit(relay.url).port
    assert port is not None
    relay.kill()
    one.until("#link", "does not answer")
    relay.start(port=port)
    one.until("#link", "connected")
    one.tab.complaints.clear()  # Chromium logs each request that nobody answered
    relay.client.post(f"/sessions/{session.id}/step-over", {}).ok()
    one.at_line(program["print"])
