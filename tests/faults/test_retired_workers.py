"""An ended session's worker retires: files answer as it did, and workers stay few."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import psutil
import pytest

from tests.kit.client import Session
from tests.kit.relay import Relay, children, eventually, is_zygote
from tests.kit.source import Source

Write = Callable[..., Source]

READS = (
    "", "/status", "/output", "/output?tail=1", "/events?limit=1000", "/history",
    "/history?limit=1", "/history?max_bytes=1024", "/breakpoints", "/breakpoints/bp_1",
    "/exception-breakpoints", "/watch", "/resources", "/export", "/ping", "/status?format=text",
    "/history?format=text", "/breakpoints?format=text", "/watch?format=text",
    "/resources?format=text",
)  # fmt: skip


def replies(session: Session) -> dict[str, bytes]:
    """All that may be asked of an ended session, byte for byte, except the time of the call and the
    address at which the worker listened.
    """
    asked = session.called(X_Request_ID="same")
    found = {path: asked.get(path).raw.partition(b',"meta":')[0] for path in READS}
    found[""] = re.sub(rb',"debugger":{[^}]*}', b"", found[""])
    return found


def resources(session: Session) -> Any:
    return session.get("/resources").ok()


def workers(relay: Relay) -> int:
    """How many live; the relay is also the parent of what they have kept running."""
    return sum(not is_zygote(pid) and is_worker(pid) for pid in children(relay.pid))


def is_worker(pid: int) -> bool:
    try:
        return "debug_relay.worker" in psutil.Process(pid).cmdline()
    except psutil.NoSuchProcess:
        return False


@pytest.mark.long
def test_a_retired_worker_is_not_missed(own_relay: Callable[..., Relay], source: Write) -> None:
    relay = own_relay()
    program = source("""
        import os

        print("begun", os.environ["API_TOKEN"], flush=True)
        for i in range(3):
            x = i * i  # @here
    """)
    session = relay.client.session()
    session.break_at(program, program["here"])
    session.post("/watch", {"expression": "x + 1"}).ok()
    session.launch(program, env={"API_TOKEN": "s3cr3t"})
    for _ in range(3):
        ended = session.resume()
    assert ended["status"] == "terminated"
    # The one figure that goes on by itself.
    eventually(lambda: not resources(session)["limits"]["output_bytes_per_second"]["used"])
    before = replies(session)
    assert workers(relay) == 1
    eventually(lambda: workers(relay) == 0)
    after = replies(session)
    assert [path for path in READS if before[path] != after[path]] == []
    assert workers(relay) == 0
    # What acts has a worker again, which goes on where the last one ended.
    session.break_at(program, program["here"], condition="i > 0")
    assert workers(relay) == 1
    [breakpoint] = session.get("/breakpoints").ok()["breakpoints"]
    assert (breakpoint["id"], breakpoint["condition"]) == ("bp_1", "i > 0")
    assert session.status()["status"] == "terminated"
    eventually(lambda: workers(relay) == 0)
    assert replies(session)["/resources"] == before["/resources"]
    again = session.post("/restart", {"wait": 20}).ok()
    assert (again["status"], again["stop_id"]) == ("paused", 4)
    assert session.printed() == "begun s3cr3t\n" * 2
    assert [one["stop_id"] for one in session.get("/history").ok()["items"]] == [4, 3, 2, 1]
    seqs = [event["seq"] for event in session.events()]
    assert seqs == list(range(1, len(seqs) + 1))
    # The next relay finds the ended one as this one left it.
    session.delete("/breakpoints").ok()
    session.resume()
    eventually(lambda: workers(relay) == 0)
    before = replies(session)
    relay.stop()
    relay.start()
    after = replies(Session(relay.client, session.id))
    assert [path for path in READS if before[path] != after[path]] in ([], ["/export"])


LEAVER = """
    import subprocess, sys
    left = subprocess.Popen(["sleep", "600"], start_new_session=True)
    print(left.pid, flush=True)
"""
CHATTER = """
    import subprocess, sys
    code = "import time\\nwhile True: print('x' * 100_000, flush=True); time.sleep(0.01)"
    left = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    print(left.pid, flush=True)
"""
TRACED = """
    for i in range(300):
        x = i * i  # @body
    print("traced")
"""


def traced(relay: Relay, program: Source) -> Session:
    session = relay.client.session()
    session.launch(program, stop_on_entry=True)
    spot = {"file": str(program), "line": program["body"], "condition": "x >= 0", "capture": ["x"]}
    ended = session.post("/trace", {"at": [spot], "max_rows": 1000, "budget": 500}).ok()
    assert (ended["status"], ended["ended"], ended["total"]) == ("terminated", "ended", 299)
    assert ended["warnings"], "the first row has no x"
    return session


def pages(session: Session) -> list[bytes]:
    """All rows of its trace, and each refusal, as bytes."""
    asked = session.called(X_Request_ID="same")
    found, cursor = [asked.get("/trace", limit=120)], True
    while cursor:
        cursor = found[-1].ok()["next_cursor"]
        found += [asked.get("/trace", limit=120, cursor=cursor)] if cursor else []
    found += [asked.get("/trace", format="text"), asked.get("/trace", cursor="abc")]
    return [one.raw.partition(b',"meta":')[0] for one in found]


ANN: Final = {"X_Agent": "ann", "X_Lease_Key": "known to ann alone"}


def leased(relay: Relay, ttl: float) -> Session:
    """Ended, and ann drives it."""
    session = relay.client.session()
    ann = session.called(**ANN)
    ann.post("/lease", {"ttl": ttl}).ok()
    assert ann.launch(code="print(1)")["exit_code"] == 0
    return session


def lease_events(session: Session) -> list[tuple[str | None, str]]:
    bodies = [event["body"] for event in session.events("session")]
    return [(one.get("previous_holder"), one["message"]) for one in bodies if "lease" in one]


def test_rows_of_a_trace_are_read_without_a_worker(
    own_relay: Callable[..., Relay], source: Write
) -> None:
    relay = own_relay(env={"OPENCODE_DEBUG_MAX_SESSIONS": "1"})
    program = source(TRACED)
    session = traced(relay, program)
    before = pages(session)
    assert len(before) == 5
    # Without a trace there is a refusal, by worker or supervisor.
    other = relay.client.session()
    other.launch(code="print(1)")
    refused = other.get("/trace").refused("INVALID_SESSION_STATE")
    eventually(lambda: workers(relay) == 0)
    assert pages(session) == before
    assert other.get("/trace").refused("INVALID_SESSION_STATE") == refused
    assert workers(relay) == 0
    # The session's next worker, and the next relay, know them too.
    session.called(If_Stop="0").get("/trace").refused("STOP_CHANGED")
    assert (workers(relay), pages(session)) == (1, before)
    relay.stop()
    relay.start()
    session = Session(relay.client, session.id)
    assert (pages(session), workers(relay)) == (before, 0)
    # A new run begins beside the rows of the last one, until a trace of its own.
    stopped = session.post("/restart", {"wait": 20}).ok()
    assert stopped["status"] == "paused"
    assert session.get("/trace").ok()["total"] == 299
    spot = {"file": str(program), "line": program["body"]}
    assert session.post("/trace", {"at": [spot], "max_rows": 2}).ok()["total"] == 2


def test_a_lease_outlives_the_worker(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay(env={"OPENCODE_DEBUG_MAX_SESSIONS": "1"})
    session = leased(relay, 300)
    before = session.get().ok()["lease"]
    short = leased(relay, 6)
    relay.client.session().delete().ok()  # their workers give their places to it
    eventually(lambda: workers(relay) == 0)
    assert session.get().ok()["lease"] == before
    assert short.get().ok()["lease"]["holder"] == "ann"
    # A new relay knows it; who drives is asked of a worker, which has it again.
    relay.kill()
    relay.start()
    session, short = (Session(relay.client, one.id) for one in (session, short))
    assert session.get().ok()["lease"] == before
    session.called(X_Agent="ann").post("/restart").refused("SESSION_LEASED", 423)
    refused = session.called(X_Agent="bob").post("/restart").refused("SESSION_LEASED", 423)
    assert refused["details"]["holder"] == "ann"
    assert 200 < refused["details"]["seconds_left"] < 300
    # It lapses without a worker, and that is told once.
    [_, lapsed] = eventually(lambda: len(told := lease_events(short)) == 2 and told)
    assert lapsed == ("ann", "The lease has lapsed")
    assert short.get().ok()["lease"] is None
    eventually(lambda: workers(relay) == 0)
    assert short.called(X_Agent="bob").post("/restart", {"wait": 20}).ok()["exit_code"] == 0
    assert session.called(**ANN).post("/restart", {"wait": 20}).ok()["exit_code"] == 0
    assert len(lease_events(short)) == 2
    assert session.called(**ANN).delete("/lease").ok()["holder"] is None


def test_what_a_program_leaves_running_ends_with_the_worker(
    own_relay: Callable[..., Relay], source: Write
) -> None:
    relay = own_relay()
    program = source(LEAVER)
    session, kept = relay.client.session(), relay.client.session()
    chatter = source(CHATTER, "chatter.py")
    assert kept.launch(chatter, keep_children=True)["exit_code"] == 0
    assert session.launch(program)["exit_code"] == 0
    left, spared = (
        psutil.Process(int(one.printed("stdout").split()[0])) for one in (session, kept)
    )
    try:
        assert [one["pid"] for one in resources(session)["processes"]] == [left.pid]
        eventually(lambda: workers(relay) == 0)
        assert not left.is_running()
        [swept] = [event["body"] for event in session.events("process")]
        assert (swept["reason"], swept["swept"][0]["pid"]) == ("swept", left.pid)
        assert f"sleep 600 (pid {left.pid})" in session.printed("console")
        assert "keep_children" in session.printed("console")
        assert resources(session)["processes"] == []
        # What is kept is not the relay's to end, and is shown for as long as it lives. It prints on
        # into the program's pipes, and that does not end it.
        written = spared.io_counters().write_chars
        eventually(lambda: spared.io_counters().write_chars > written + (1 << 21))
        shown = resources(kept)
        assert [one["pid"] for one in shown["processes"]] == [spared.pid]
        assert "no limit holds" in shown["note"]
    finally:
        spared.kill()
    eventually(lambda: resources(kept)["processes"] == [])
    before = psutil.Process(relay.pid).num_fds()
    kept.delete().ok()
    assert psutil.Process(relay.pid).num_fds() <= before


@pytest.mark.long
def test_workers_do_not_outnumber_the_sessions_that_may_be_open(
    own_relay: Callable[..., Relay], source: Write
) -> None:
    """12 ended sessions: plain ones and of each kind that gives its worker something to do."""
    relay = own_relay(env={"OPENCODE_DEBUG_MAX_SESSIONS": "4"})
    leaver, loop = source(LEAVER), source(TRACED, "traced.py")
    hung = relay.client.session()
    assert hung.launch(code="print('hung')")["exit_code"] == 0
    stopped = relay.worker(hung.id)
    stopped.suspend()
    most = 0

    def run(number: int) -> Session:
        nonlocal most
        if number % 6 == 1:
            session = leased(relay, 300)
        elif number % 6 == 2:
            session = traced(relay, loop)
        else:
            session = relay.client.session()
            program = {"script": str(leaver)} if number % 6 == 0 else {"code": f"print({number})"}
            assert session.launch(**program)["exit_code"] == 0
        most = max(most, workers(relay))
        return session

    with ThreadPoolExecutor(4) as pool:
        sessions = list(pool.map(run, range(12)))
    assert most <= 4 + 4
    # As many as may be open: even a worker that hangs gives its place to them.
    living = [relay.client.session() for _ in range(4)]
    eventually(lambda: not stopped.is_running(), timeout=20)
    eventually(lambda: workers(relay) == 4)
    assert {session.delete().ok()["final_status"] for session in living} == {"terminated"}
    eventually(lambda: workers(relay) == 0, timeout=20)
    assert (hung.status()["status"], hung.printed()) == ("terminated", "hung\n")
    assert {session.status()["exit_code"] for session in sessions} == {0}
    assert [sessions[n].printed() for n in (3, 4, 5, 9)] == [f"{n}\n" for n in (3, 4, 5, 9)]
    left = [int(session.printed("stdout")) for session in sessions[::6]]
    assert [pid for pid in left if psutil.pid_exists(pid)] == []
    assert {session.get().ok()["lease"]["holder"] for session in sessions[1::6]} == {"ann"}
    assert {session.get("/trace").ok()["total"] for session in sessions[2::6]} == {299}
    assert workers(relay) == 0
