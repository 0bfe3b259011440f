"""How a launched program ends with its session: not one line further, or by its own handler."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import Relay, eventually, marked
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

PLAIN = """
    import pathlib, sys

    x = 1  # @here
    pathlib.Path(sys.argv[1]).write_text("ran on")
"""
HANDLING = """
    import pathlib, signal, sys

    def tidy(number, frame):
        pathlib.Path(sys.argv[1]).write_text("tidied up")
        raise SystemExit(3)

    signal.signal(signal.SIGTERM, tidy)
    x = 1  # @here
    signal.pause()
"""


def at_breakpoint(client: Client, program: Source, trace: Path) -> Session:
    session = client.session()
    session.break_at(program, program["here"])
    assert session.launch(program, args=[str(trace)])["status"] == "paused"
    return session


def test_delete_at_a_breakpoint_runs_no_further_line(
    relay: Client, source: Callable[..., Source], tmp_path: Path, python: str
) -> None:
    program = source(PLAIN)
    session = relay.session(python_path=python)
    session.break_at(program, program["here"])
    session.launch(program, args=[str(tmp_path / "trace")])
    ended = session.delete().ok()
    assert (ended["final_status"], ended["exit_code"]) == ("terminated", -15)
    assert marked(session.id) == []
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("how", ["terminate", "delete"])
def test_a_sigterm_handler_gets_to_run(
    relay: Client, source: Callable[..., Source], tmp_path: Path, how: str
) -> None:
    session = at_breakpoint(relay, source(HANDLING), tmp_path / "trace")
    ended = (session.post("/terminate", {}) if how == "terminate" else session.delete()).ok()
    assert ended["exit_code"] == 3
    assert (tmp_path / "trace").read_text() == "tidied up"


def test_terminate_at_a_breakpoint_runs_no_further_line(
    relay: Client, source: Callable[..., Source], tmp_path: Path
) -> None:
    session = at_breakpoint(relay, source(PLAIN), tmp_path / "trace")
    ended = session.post("/terminate", {}).ok()
    assert (ended["status"], ended["exit_code"], ended["signal"]) == ("terminated", -15, "SIGTERM")
    assert not (tmp_path / "trace").exists()


def test_stopping_the_relay_runs_no_further_line(
    own_relay: Callable[..., Relay], source: Callable[..., Source], tmp_path: Path
) -> None:
    relay = own_relay()
    session = at_breakpoint(relay.client, source(PLAIN), tmp_path / "trace")
    assert relay.stop() == 0
    assert marked(session.id) == []
    assert not (tmp_path / "trace").exists()


def test_a_program_starts_with_the_usual_signals(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source("""
        import signal

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            assert signal.getsignal(number) is not signal.SIG_IGN, number
        with open("/proc/self/status") as file:
            print(next(line for line in file if line.startswith("SigIgn")).split()[1])
    """)
    with relay.session() as session:
        assert session.launch(program)["exit_code"] == 0
        ignored = int(session.printed("stdout"), 16)
        # SIGPIPE and SIGXFSZ: Python's own choice.
        assert ignored & ~(1 << 12 | 1 << 24) == 0


def test_deleted_twice_at_once(
    relay: Client, source: Callable[..., Source], tmp_path: Path
) -> None:
    program = source("""
        import pathlib, signal, sys, time

        def tidy(number, frame):
            time.sleep(0.5)
            pathlib.Path(sys.argv[1]).write_text("tidied up")
            raise SystemExit(3)

        signal.signal(signal.SIGTERM, tidy)
        print("ready", flush=True)
        time.sleep(600)
    """)
    session = relay.session()
    session.launch(program, wait=0, args=[str(tmp_path / "trace")])
    eventually(lambda: session.printed("stdout") == "ready\n")
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(session.delete) for _ in range(3)]
        answers = [one.result(20) for one in asked]
    # Who comes second hurries nothing: the program had its time.
    assert (tmp_path / "trace").read_text() == "tidied up"
    assert {answer.status for answer in answers} <= {200, 404}
    done = [answer.ok()["exit_code"] for answer in answers if answer.status == 200]
    assert done
    assert set(done) == {3}
