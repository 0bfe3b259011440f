"""Whatever one client sends, others are answered within a quarter of a second."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from debug_relay.protocol.docs.examples import PATH_VALUES
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.validation.json_body import MOST_VALUES
from tests.contract.api.largest_bodies import bodies
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source
from tests.kit.watch import health_watched

MOST_SECONDS = 0.25
LENGTH = 10 * 1024 * 1024


def filled(item: bytes, count: int = LENGTH) -> bytes:
    """An object with a long list of equal items."""
    count = min(count, (LENGTH - 20) // (len(item) + 1))
    return b'{"args":[%b]}' % b",".join([item] * count)


def named(name: bytes, count: int, last: bytes = b'"z":1') -> bytes:
    return b"{%b%b}" % (b"".join(b'"%d%b":1,' % (number, name) for number in range(count)), last)


# Bodies of whatever call: what is wrong or slow about them as JSON. Each is made when it is sent.
SHAPES = {
    "empty lists": lambda: filled(b"[]"),
    "empty objects": lambda: filled(b"{}", MOST_VALUES // 2 - 2),
    "objects": lambda: filled(b'{"a":"b"}', MOST_VALUES // 2 - 2),
    "numbers": lambda: filled(b"0", MOST_VALUES - 2),
    "long numbers": lambda: filled(b"1" * 52, MOST_VALUES - 2),
    "texts": lambda: filled(b'"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"', MOST_VALUES - 2),
    "names": lambda: named(b"", MOST_VALUES - 3),
    "long names": lambda: named(b"x" * 100_000, 100),
    "similar names": lambda: named(b"_timeout_minutes_x", 100_000),
    "one name twice": lambda: named(b"", MOST_VALUES - 3, b'"0":2'),
    "one long name": lambda: b'{"%b":1}' % (b"x" * (LENGTH - 10)),
    "a long text": lambda: b'{"name":"%b"}' % (b"x" * (LENGTH - 20)),
    "a long wrong text": lambda: b'{"project_root":"%b\\u0000"}' % (b"/" * (LENGTH - 30)),
    "escapes": lambda: b'{"name":"%b\\ud800"}' % (b"\\n" * (LENGTH // 2 - 20)),
    "one number": lambda: b'{"wait":%b}' % (b"9" * (LENGTH - 20)),
    "open brackets": lambda: b"[" * LENGTH,
    "brackets": lambda: b"[" * (LENGTH // 2) + b"]" * (LENGTH // 2),
    "spaces": lambda: b" " * (LENGTH - 2) + b"{]",
}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    relay = Relay(tmp_path_factory.mktemp("watched") / "data", forked=True).start()
    yield relay
    assert relay.stop() == 0


def test_the_worst_json(watched: Relay) -> None:
    held = {}
    for shape, made in SHAPES.items():
        body = made()
        with health_watched(watched) as longest:
            answer = watched.client.post("/sessions", body)
        answer.refused("INVALID_REQUEST", 400)
        assert len(answer.raw) < 128 * 1024, shape
        held[shape] = longest.seconds
    assert max(held.values()) < MOST_SECONDS, held


def test_the_worst_body_of_each_operation(watched: Relay) -> None:
    """As long as its fields allow, once sound and once wrong in each place."""
    held, tried = {}, set()
    with watched.client.session() as session:
        values = {**PATH_VALUES, "session_id": session.id}
        for row in OPERATIONS.values():
            is_tried = row.verb == "GET" or row.params in tried
            if is_tried or row.name in ("shutdown", "delete-session"):
                continue
            tried.add(row.params)
            for what, body in bodies(row.params, row.paths):
                with health_watched(watched) as longest:
                    answer = watched.client.call(row.verb, row.path.format(**values), body)
                assert answer.status < 500, answer.raw[:1000]
                if answer.status == 201:
                    watched.client.delete(f"/sessions/{answer.body['data']['session_id']}").ok()
                assert len(answer.raw) < 1024 * 1024, f"{row.name}, {what}"
                held[row.name, what] = longest.seconds
    assert len(held) > 40
    assert max(held.values()) < MOST_SECONDS, held


def test_what_is_large_and_right(watched: Relay, tmp_path: object) -> None:
    program = f"{tmp_path}/program.py"
    with open(program, "w") as file:
        file.write("x = 1\n" * 10_000)
    places = [
        {"file": program, "line": line, "log_message": "a" * 500} for line in range(1, 10_001)
    ]
    held = {}

    def call(verb: str, path: str, body: object = None) -> None:
        with health_watched(watched) as longest:
            assert watched.client.call(verb, path, body).status == 200
        held[verb, path] = longest.seconds

    with watched.client.session(project_root=str(tmp_path)) as session:
        of_session = f"/sessions/{session.id}"
        call("POST", f"{of_session}/breakpoints", {"breakpoints": places})
        call("GET", f"{of_session}/breakpoints?format=text")
        call("GET", f"{of_session}/export")
        call("PUT", "/breakpoint-profiles/large", {"breakpoints": places})
        call("GET", "/breakpoint-profiles/large")
        call("DELETE", "/breakpoint-profiles/large")
        labels = {f"{number}".rjust(255): "x" * 1024 for number in range(64)}
        call("PATCH", of_session, {"labels": labels})
    assert max(held.values()) < MOST_SECONDS, held


def test_a_pattern_without_an_end(watched: Relay) -> None:
    """The command line is anybody's, and the engine would take longer than there are years."""
    argument = "a" * 64 + "!"
    other = subprocess.Popen([sys.executable, "-c", "input()", argument], stdin=subprocess.PIPE)
    try:
        with watched.client.session() as session, health_watched(watched) as longest:
            error = session.post("/attach", {"match": "(a+)+$"})
            told = error.refused("INVALID_REQUEST", 400)["details"]["errors"][0]
            assert (told["field"], told["value"]) == ("match", "(a+)+$")
        assert longest.seconds < MOST_SECONDS
    finally:
        other.communicate(b"\n")
    eventually(lambda: watched.below() == [], what="the search has ended, and the worker")


def test_a_worker_looks_for_secrets_beside_its_event_loop(
    watched: Relay, source: Callable[..., Source]
) -> None:
    """By processor time, which other load does not change: looking takes about 0.5 s."""
    program = source("first = 1  # @first\nsecond = 2\nthird = 3\n")
    with watched.client.session() as session:
        session.break_at(program, program["first"])
        worker = watched.worker(session.id).pid
        before = busy_seconds(worker)
        session.launch(program, args=[f"--option={number}" for number in range(150_000)])
        after = busy_seconds(worker)
        loop = after[worker] - before[worker]
        others = sum(after.values()) - sum(before.values()) - loop
        assert loop < others, (loop, others)
        session.step()
        session.post("/exception-breakpoints", {"filters": []}).ok()  # is on disk when it answers
        assert sum(busy_seconds(worker).values()) - sum(after.values()) < others / 2


def busy_seconds(pid: int) -> dict[int, float]:
    """The processor time of each thread of a process."""
    return {
        int(task.name): int((task / "schedstat").read_text().split()[0]) / 1e9
        for task in Path(f"/proc/{pid}/task").iterdir()
    }
