"""Web servers as users have them: launched, and attached to while they serve."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.apps import Request, Served, Started
from tests.kit.client import Client, Session
from tests.kit.relay import eventually

# The packages are installed beside the relay, not for whatever `python3` is on PATH.
OWN = {"python_path": sys.executable}
Start = Callable[[str], Started]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Started] = []

    def begin(name: str) -> Started:
        started.append(Started(Served(name, tmp_path)))
        return started[-1]

    yield begin
    for one in started:
        one.end()


def break_at_handler(session: Session, served: Served) -> None:
    breakpoint = session.break_at(served.handler, served.handler["handler"])
    assert breakpoint["verified"] is True


def stops_at_handler(session: Session, served: Served, n: int) -> None:
    """A request comes; it is looked at there and answered rightly afterwards."""
    request = Request(served, n)
    eventually(lambda: session.status()["status"] == "paused", what="stopped by the request")
    assert session.line() == served.handler["handler"]
    assert session.locals()["n"] == str(n)
    assert session.step()["current_location"]["line"] == served.handler["handler"] + 1
    assert session.value("doubled") == str(2 * n)
    assert session.resume(wait=0)["status"] == "running"
    assert request.answer() == str(2 * n)


@pytest.mark.parametrize("name", ["flask", "django", "uvicorn"])
def test_launched(relay: Client, tmp_path: Path, name: str) -> None:
    served = Served(name, tmp_path)
    with relay.session(**OWN) as session:
        break_at_handler(session, served)
        session.try_launch(wait=0, **served.launch()).ok()
        served.until_up()
        stops_at_handler(session, served, 4)
        # A breakpoint that does not hold is passed, and a pause comes to an idle server.
        (breakpoint,) = session.get("/breakpoints").ok()["breakpoints"]
        session.patch(f"/breakpoints/{breakpoint['id']}", {"condition": "n > 100"}).ok()
        assert served.ask(5) == "10"
        assert session.post("/pause", {"wait": 10}).ok()["status"] == "paused"
        session.resume(wait=0)
        ended = session.post("/terminate").ok()
        assert ended["exit_code"] in (0, -15)  # uvicorn ends in order first
        assert "Traceback" not in session.printed()


BY_A_CHILD = ["flask --debug", "django with reload", "uvicorn --reload", "gunicorn"]


@pytest.mark.parametrize("name", BY_A_CHILD)
def test_served_by_a_child(relay: Client, tmp_path: Path, name: str) -> None:
    """What serves is another process than what was launched: debugged in the same session."""
    served = Served(name, tmp_path)
    with relay.session(**OWN) as session:
        break_at_handler(session, served)
        session.try_launch(wait=0, debug_subprocesses=True, **served.launch()).ok()
        served.until_up()
        stops_at_handler(session, served, 4)
        assert session.post("/terminate", {"grace": 10}).ok()["exit_code"] in (0, -15)
        assert "Traceback" not in session.printed()


def test_a_child_that_serves_undebugged(relay: Client, tmp_path: Path) -> None:
    """It can be attached to by the pid that is told, beside the session of its parent."""
    served = Served("gunicorn", tmp_path)
    with relay.session(**OWN) as session, relay.session() as other:
        session.try_launch(wait=0, **served.launch()).ok()
        served.until_up()
        assert served.ask(3) == "6"
        # Told by the parent, which may do so after its child serves.
        child = session.events("subprocess", timeout=10)[-1]["body"]["pid"]
        other.post("/attach", {"pid": child, "connect_timeout": 30}).ok()
        break_at_handler(other, served)
        stops_at_handler(other, served, 4)
        other.post("/detach").ok()
        assert served.ask(5) == "10"
        assert session.post("/terminate", {"grace": 10}).ok()["exit_code"] in (0, -15)
        assert "Traceback" not in session.printed()


@pytest.mark.parametrize("name", ["flask", "django", "uvicorn", "gunicorn"])
def test_attached_to_while_it_serves(relay: Client, start: Start, name: str) -> None:
    one = start(name)
    served = one.served
    assert served.ask(1) == "2"
    pid = one.children()[0] if name == "gunicorn" else one.pid
    with relay.session() as session:
        session.post("/attach", {"pid": pid, "connect_timeout": 30}).ok()
        break_at_handler(session, served)
        stops_at_handler(session, served, 4)
        request = Request(served, 5)
        eventually(lambda: session.status()["status"] == "paused")
        session.post("/detach").ok()
        assert request.answer() == "10"
        assert served.ask(6) == "12"
    assert one.alive
    assert "Traceback" not in one.log.read_text()
