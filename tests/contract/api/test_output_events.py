"""What a program printed and what happened in its session: complete, in order, live."""

from __future__ import annotations

import base64
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import Relay
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")


def bodies(session: Session, type: str) -> list[Any]:
    return [event["body"] for event in session.events(type)]


def wait_for(session: Session, type: str, cursor: str | None = None) -> Any:
    """The first event of this type, now or when it comes."""
    return session.events(type, cursor=cursor, timeout=20)[0]["body"]


def read_on(session: Session, path: str, items: str, **query: Any) -> tuple[list[Any], int]:
    """All pages from the beginning, and how many entries were dropped."""
    found: list[Any] = []
    dropped, cursor = 0, None
    while True:
        more = {"cursor": cursor} if cursor else {}
        page = session.get(path, **query, **more).ok()
        found += page[items]
        dropped += page["dropped"]
        cursor = page["next_cursor"]
        if not page["has_more"]:
            return found, dropped


# -- output


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("pass", 0),
        ("os._exit(7)", 7),
        ("raise SystemExit(3)", 3),
        ("os.kill(os.getpid(), 9)", -9),
        ("__import__('ctypes').string_at(0)", -11),
        ("raise ValueError('over')", 1),
    ],
)
def test_nothing_printed_is_lost_however_it_ends(
    relay: Client, source: Callable[..., Source], ending: str, code: int
) -> None:
    program = source(f"import os, sys\nfor n in range(20_000):\n    print(n)\n{ending}\n")
    with relay.session() as session:
        ended = session.launch(program, stop_on_exception=False)
        assert ended["exit_code"] == code
        entries, dropped = read_on(session, "/output", "entries", limit=1000, category="stdout")
        assert dropped == 0
        # An entry is a line, or what there was of it when it was read.
        text = "".join(entry["output"] for entry in entries)
        assert text == "".join(f"{n}\n" for n in range(20_000))
        assert all(TIME.match(entry["timestamp"]) for entry in entries)
        times = [entry["timestamp"] for entry in entries]
        assert times == sorted(times)


def test_categories_are_told_apart_and_keep_their_order(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        import sys
        for n in range(50):
            print("out", n, flush=True)
            print("err", n, file=sys.stderr, flush=True)
    """)
    with relay.session(python_path=python) as session:
        session.launch(program)
        assert session.printed("stdout") == "".join(f"out {n}\n" for n in range(50))
        assert session.printed("stderr") == "".join(f"err {n}\n" for n in range(50))
        together = session.get("/output", limit=1000).ok()["entries"]
        assert [e["output"] for e in together if e["category"] == "stdout"] == [
            f"out {n}\n" for n in range(50)
        ]
        session.get("/output", category="nonsense").refused("INVALID_PARAMETER", 400)


@pytest.mark.parametrize("options", [[], ["-I"], ["-E", "-X", "dev"]])
def test_what_is_printed_is_there_at_once(
    relay: Client, source: Callable[..., Source], python: str, options: list[str]
) -> None:
    program = source("""
        import sys

        print("asked", end="")
        print("what", file=sys.stderr)
        print("said")
        x = 1  # @here
        """)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"])
        session.launch(program, python_args=options)
        assert session.printed("stderr") == "what\n"
        assert session.printed("stdout") == "askedsaid\n"


def test_a_program_may_want_to_print_as_it_does_into_any_pipe(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source("import os\nprint('soon')\nx = 1  # @here\nprint(len(os.environ))\n")
    with relay.session() as session:
        session.break_at(program, program["here"])
        session.launch(program, env={"PYTHONUNBUFFERED": None})
        assert session.printed() == ""
        session.resume()
        assert session.printed().startswith("soon\n")


def test_bytes_that_are_no_text_survive(relay: Client, source: Callable[..., Source]) -> None:
    program = source(r"""
        import sys
        sys.stdout.buffer.write(b"before\n\xff\xfe\x00\n" + "täxt €\n".encode() + b"\xe2\x82")
        sys.stdout.buffer.flush()
    """)
    with relay.session() as session:
        session.launch(program)
        entries = session.get("/output").ok()["entries"]
        raw = b"".join(
            base64.b64decode(e["output"]) if e["encoding"] == "base64" else e["output"].encode()
            for e in entries
        )
        assert raw == b"before\n\xff\xfe\x00\n" + "täxt €\n".encode() + b"\xe2\x82"
        assert [e["encoding"] for e in entries] == [None, "base64", None, "base64"]


def test_a_character_that_comes_in_pieces_is_whole(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source("""
        import os, sys
        for byte in "€uro\\n".encode():
            os.write(1, bytes([byte]))
            sys.stdin.readline()
    """)
    with relay.session() as session:
        session.launch(program, wait=0)
        session.post("/input", {"input": "\n" * 7}).ok()
        wait_for(session, "terminated")
        entries = session.get("/output", category="stdout").ok()["entries"]
        assert {entry["encoding"] for entry in entries} == {None}
        assert session.printed("stdout") == "€uro\n"


def test_a_line_without_its_end_is_there_while_the_program_waits(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        import sys
        name = input("Your name? ")
        sys.stdout.write("hello " + name)
    """)
    with relay.session(python_path=python) as session:
        session.launch(program, wait=0)
        assert wait_for(session, "output")["output"] == "Your name? "
        page = session.get("/output").ok()
        assert "".join(entry["output"] for entry in page["entries"]) == "Your name? "
        assert page["has_more"] is False
        written = session.post("/input", {"input": "Ada\n"}).ok()
        assert written["bytes_written"] == 4
        wait_for(session, "terminated")
        rest = session.get("/output", cursor=page["next_cursor"]).ok()
        assert "".join(entry["output"] for entry in rest["entries"]) == "hello Ada"


def test_pages_join_without_gaps_while_the_program_writes(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source("for n in range(30_000):\n    print(n)\n")
    with relay.session() as session:
        session.launch(program, wait=0)
        seen: list[str] = []
        cursor: dict[str, str] = {}
        ended = False
        while True:
            page = session.get("/output", limit=1000, **cursor).ok()
            assert len(page["entries"]) <= 1000
            assert page["dropped"] == 0
            seen += [entry["output"] for entry in page["entries"]]
            cursor = {"cursor": page["next_cursor"]}
            if page["has_more"]:
                continue
            if ended:
                break
            ended = bool(session.events("terminated", timeout=0.05))
        # Cut anywhere by the reader, but nothing twice and nothing missing.
        assert "".join(seen) == "".join(f"{n}\n" for n in range(30_000))


def test_limit_and_has_more(relay: Client, source: Callable[..., Source]) -> None:
    program = source("for n in range(25):\n    print(n)\n")
    with relay.session() as session:
        session.launch(program)
        sizes = []
        query: dict[str, Any] = {"limit": 10}
        for _ in range(3):
            page = session.get("/output", **query).ok()
            sizes.append((len(page["entries"]), page["has_more"]))
            query["cursor"] = page["next_cursor"]
        assert sizes == [(10, True), (10, True), (5, False)]
        since = session.get("/output", limit=10, since=page["next_cursor"]).ok()
        assert (since["entries"], since["has_more"]) == ([], False)
        session.get("/output", limit=1001).refused("INVALID_PARAMETER", 400)
        session.get("/output", limit=0).refused("INVALID_PARAMETER", 400)


def test_the_end_of_a_long_output_is_one_call(relay: Client, source: Callable[..., Source]) -> None:
    program = source("""
        import sys
        print("warned", file=sys.stderr)
        for n in range(30_000):
            print(n)
    """)
    with relay.session() as session:
        assert session.launch(program, wait=30)["exit_code"] == 0
        page = session.get("/output", tail=3).ok()
        assert [one["output"] for one in page["entries"]] == ["29997\n", "29998\n", "29999\n"]
        assert (page["has_more"], page["dropped"]) == (False, 0)
        assert session.get("/output", cursor=page["next_cursor"], tail=3).ok()["entries"] == []
        warned = session.get("/output", tail=3, category="stderr").ok()["entries"]
        assert [one["output"] for one in warned] == ["warned\n"]
        session.get("/output", tail=0).refused("INVALID_PARAMETER", 400)


def test_a_flood_keeps_the_newest_and_counts_what_it_dropped(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    line = "x" * 92 + "\n"
    program = source(f"""
        import sys
        for n in range(200_000):
            sys.stdout.write("%06d " % n + {line!r})
    """)
    relay = own_relay(env={"OPENCODE_DEBUG_OUTPUT__MAX_BYTES": "1048576"})
    with relay.client.session() as session:
        first = session.get("/output").ok()["next_cursor"]
        assert session.launch(program, wait=60)["exit_code"] == 0
        entries, dropped = read_on(session, "/output", "entries", limit=1000)
        assert 500_000 < sum(len(entry["output"]) for entry in entries) <= 1048576
        # At least: a line that was read in two pieces is two entries.
        assert dropped + len(entries) >= 200_000
        # The newest, without a gap; of the very first perhaps only the end.
        lines = "".join(entry["output"] for entry in entries).splitlines()[1:]
        numbers = [int(line[:6]) for line in lines]
        assert numbers == list(range(200_000 - len(numbers), 200_000))
        # A cursor that points at what is gone still works and says how much that was.
        page = session.get("/output", cursor=first, limit=1).ok()
        assert page["dropped"] == dropped
        assert page["entries"] == entries[:1]
        # However much is printed, events about it stay few and the others are all there.
        assert len(bodies(session, "terminated")) == 1


def test_a_line_longer_than_all_pages_is_read_in_pieces(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source("print('y' * 3_000_000)\n")
    with relay.session() as session:
        session.launch(program)
        entries, dropped = read_on(session, "/output", "entries", limit=10)
        assert dropped == 0
        assert "".join(entry["output"] for entry in entries) == "y" * 3_000_000 + "\n"


# -- events


def test_the_events_of_a_whole_session_in_order_and_without_gaps(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        print("one", flush=True)
        x = 1  # @here
        print("two", flush=True)
    """)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"])
        stopped = session.launch(program)
        session.resume()
        events = session.events()
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert all(TIME.match(event["timestamp"]) for event in events)
        assert [body["status"] for body in bodies(session, "session")] == [
            "launching",
            "running",
            "running",
            "terminated",
        ]
        assert [
            event["type"]
            for event in events
            if event["type"] not in ("session", "thread", "module")
        ] == ["breakpoint", "output", "stopped", "continued", "output", "terminated"]
        (body,) = bodies(session, "stopped")
        assert body == {
            "reason": "breakpoint",
            "description": "Paused on breakpoint",
            "thread_id": stopped["thread_id"],
            "preserve_focus_hint": False,
            "text": None,
            "all_threads_stopped": True,
            "hit_breakpoint_ids": ["bp_1"],
            "pid": stopped["pid"],
            "stop_id": stopped["stop_id"],
            "current_location": stopped["current_location"],
        }
        assert bodies(session, "terminated") == [
            {"exit_code": 0, "end_reason": "target_exited", "restart": False}
        ]
        assert bodies(session, "output")[0] == {
            "category": "stdout",
            "output": "one\n",
            "source": None,
            "line": None,
            "column": None,
        }
        (continued,) = bodies(session, "continued")
        assert set(continued) == {"pid", "thread_id", "all_threads_continued", "caller"}
        assert continued["all_threads_continued"] is True


def test_a_failed_end_says_how(relay: Client, source: Callable[..., Source]) -> None:
    program = source("import os\nos.kill(os.getpid(), 15)\n")
    with relay.session() as session:
        session.launch(program)
        assert bodies(session, "terminated") == [
            {
                "exit_code": -15,
                "signal": "SIGTERM",
                "end_reason": "target_exited",
                "restart": False,
                "error": "Process exited with code -15 (SIGTERM)",
            }
        ]


def test_an_exception_stop_tells_of_the_exception(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        def convert(text):
            return int(text)  # @here

        convert("abc")
    """)
    with relay.session(python_path=python) as session:
        session.launch(program)
        (body,) = bodies(session, "stopped")
        message = "invalid literal for int() with base 10: 'abc'"
        assert body["reason"] == "exception"
        assert body["description"] == "Paused on exception"
        assert body["text"] == f"ValueError: {message}"
        info = body["exception_info"]
        assert (info["exception_id"], info["description"]) == ("ValueError", message)
        assert info["break_mode"] in ("always", "unhandled")
        details = info["details"]
        assert details["type_name"] == "ValueError"
        assert details["message"] == message
        assert "convert" in details["stack_trace"]


def test_breakpoint_thread_and_subprocess_events(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        import subprocess, sys, threading

        thread = threading.Thread(target=print, args=("in a thread",))
        thread.start()
        thread.join()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        x = 1  # @here
    """)
    with relay.session(python_path=python) as session:
        id = session.break_at(program, program["here"])["id"]
        session.launch(program)
        session.delete(f"/breakpoints/{id}")
        session.resume()
        told = bodies(session, "breakpoint")
        assert [body["reason"] for body in told] == ["new", "removed"]
        assert {body["breakpoint"]["id"] for body in told} == {id}
        assert {body["breakpoint"]["line"] for body in told} == {program["here"]}
        (child,) = bodies(session, "subprocess")
        assert child["command"][1:] == ["-c", "pass"]
        assert child["pid"] > 0
        threads = bodies(session, "thread")
        assert {body["reason"] for body in threads} >= {"started"}
        started = [body["thread_id"] for body in threads if body["reason"] == "started"]
        assert len(started) == len(set(started)) >= 2


def test_types_are_filtered_and_unknown_ones_refused(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source("print('said')\n")
    with relay.session() as session:
        session.launch(program)
        types = [event["type"] for event in session.events("output", "terminated")]
        assert types == ["output", "terminated"]
        error = session.get("/events", types="terminate").refused("INVALID_PARAMETER", 400)
        assert "terminated" in error["details"]["suggestion"]


def test_event_pages_join_by_their_cursor(relay: Client, source: Callable[..., Source]) -> None:
    program = source("""
        for n in range(12):
            x = n  # @here
    """)
    with relay.session() as session:
        session.break_at(program, program["here"])
        answer = session.launch(program)
        while answer["status"] == "paused":
            answer = session.resume()
        whole = session.events()
        paged, dropped = read_on(session, "/events", "events", limit=7)
        assert (paged, dropped) == (whole, 0)
        page = session.get("/events", limit=7).ok()
        assert (len(page["events"]), page["has_more"]) == (7, True)
        assert page["session_status"] == "terminated"


@pytest.mark.parametrize("cursor", ["garbage", "12", "!!", "eyJvZmZzZXQiOjEwMH0=", "A" * 199])
def test_a_garbage_cursor_is_refused(relay: Client, cursor: str) -> None:
    with relay.session() as session:
        for path in ("/events", "/output"):
            error = session.get(path, cursor=cursor).refused("INVALID_PARAMETER", 400)
            assert error["details"]["errors"][0]["field"] == "cursor"
            assert "next_cursor" in error["details"]["suggestion"]


def test_a_long_poll_answers_at_once_on_news(relay: Client, source: Callable[..., Source]) -> None:
    program = source("input()\nprint('news', flush=True)\ninput()\n")
    with relay.session() as session:
        session.launch(program, wait=0)
        cursor = session.get("/events", limit=1000).ok()["next_cursor"]
        answers: list[Any] = []

        def poll() -> None:
            began = time.monotonic()
            query = {"types": "output", "timeout": 30, "cursor": cursor}
            page = session.get("/events", **query).ok()
            answers.append((page["events"], time.monotonic() - began))

        pollers = [threading.Thread(target=poll) for _ in range(3)]
        for poller in pollers:
            poller.start()
        session.post("/input", {"input": "\n"}).ok()
        for poller in pollers:
            poller.join(30)
        assert len(answers) == 3
        for events, took in answers:
            assert [event["body"]["output"] for event in events] == ["news\n"]
            assert took < 10


def test_a_long_poll_without_news_answers_after_its_timeout(relay: Client) -> None:
    with relay.session() as session:
        cursor = session.get("/events", limit=1000).ok()["next_cursor"]
        began = time.monotonic()
        page = session.get("/events", cursor=cursor, timeout=0.3).ok()
        assert 0.3 <= time.monotonic() - began < 5
        assert (page["events"], page["has_more"]) == ([], False)
        assert page["session_status"] == "created"
        # Its cursor is as good as the one before.
        assert session.get("/events", cursor=page["next_cursor"]).ok()["events"] == []
        session.get("/events", timeout=301).refused("INVALID_PARAMETER", 400)


def test_a_long_poll_on_a_session_that_is_deleted_ends_at_once(relay: Client) -> None:
    session = relay.session()
    answers: list[Any] = []
    # Waits for what the end of a session does not bring.
    poller = threading.Thread(
        target=lambda: answers.append(session.get("/events", types="breakpoint", timeout=30))
    )
    poller.start()
    session.delete().ok()
    poller.join(20)
    answers[0].refused("SESSION_NOT_FOUND", 404)


def test_output_events_of_a_flood_are_few_and_say_when_they_are_cut(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source("for n in range(300_000):\n    print(n)\n")
    with relay.session() as session:
        session.launch(program)
        outputs = bodies(session, "output")
        assert 1 <= len(outputs) < 200
        assert all(len(body["output"].encode()) <= 65536 for body in outputs)
        assert any(body.get("truncated") for body in outputs)
        seqs = [event["seq"] for event in session.events()]
        assert seqs == list(range(1, len(seqs) + 1))


def test_lone_surrogates_and_odd_text_in_output_survive(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(r"""
        import sys
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogatepass")
        print("a\ud800b")
        print("nul \x00 and \U0001f600 and \u2028 in a line")
        print("carriage\rreturn")
    """)
    with relay.session(python_path=python) as session:
        session.launch(program)
        lone, *others = session.get("/output").ok()["entries"]
        assert lone["encoding"] == "base64"
        assert base64.b64decode(lone["output"]) == b"a\xed\xa0\x80b\n"
        assert [entry["output"] for entry in others] == [
            "nul \x00 and \U0001f600 and \u2028 in a line\n",
            "carriage\rreturn\n",
        ]
        assert "\U0001f600" in "".join(body["output"] for body in bodies(session, "output"))
