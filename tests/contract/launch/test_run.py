"""`POST /run`: one call from nothing to an answer, and nothing left behind."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

CRASH = """
    class Order:
        def __init__(self, price):
            self.price = price

    def total(orders):
        sum_so_far = 0
        for order in orders:
            sum_so_far += order.price
        return sum_so_far

    def main():
        orders = [Order(3), Order(None)]
        return total(orders)

    print("begin", flush=True)
    main()
"""


def run(relay: Client, what: Any, **fields: Any) -> Any:
    body = {"script": str(what)} if isinstance(what, Source) else {"code": what}
    return relay.post("/run", {**body, **fields}).ok()


def nothing_is_left(relay: Client) -> None:
    assert relay.get("/sessions").ok()["items"] == []


def test_a_program_that_ends(relay: Client, source: Write, python: str) -> None:
    program = source("""
        import sys
        print("in", input(), sys.argv[1:])
        sys.stderr.write("err\\n")
        sys.exit(3)
    """)
    told = run(relay, program, python_path=python, args=["a b"], stdin_inputs=["typed"])
    assert (told["exit_code"], told["signal"], told["end_reason"]) == (3, None, "target_exited")
    assert sorted(told["output"].splitlines()) == ["err", "in typed ['a b']"]
    assert (told["exception"], told["trace"], told["session_id"]) == (None, None, None)
    nothing_is_left(relay)


def test_a_crash_with_the_whole_stack(relay: Client, source: Write, python: str) -> None:
    told = run(relay, source(CRASH), python_path=python)
    assert told["exit_code"] == 1
    assert told["output"].startswith("begin\nTraceback")
    crash = told["exception"]
    assert crash["type"].rpartition(".")[2] == "TypeError"
    assert "NoneType" in crash["message"]
    assert [frame["name"] for frame in crash["frames"]] == ["total", "main", "<module>"]
    locals_ = {one["name"]: one["value"] for one in crash["frames"][0]["locals"]}
    assert locals_["sum_so_far"] == "3"
    assert {one["name"] for one in crash["frames"][1]["locals"]} == {"orders"}
    assert crash["total_frames"] == 3
    nothing_is_left(relay)


def test_a_crash_that_is_kept(relay: Client, source: Write) -> None:
    told = run(relay, source(CRASH), keep_on_exception=True)
    assert told["exit_code"] is None
    assert told["output"] == "begin\n"
    with Session(relay, told["session_id"]) as session:
        assert session.status()["stop_reason"] == "exception"
        assert session.value("sum_so_far") == "3"
        assert session.resume()["exit_code"] == 1


def test_rows_from_the_first_line_on(relay: Client, source: Write, python: str) -> None:
    program = source("""
        x = 1
        for i in range(3):
            x += i  # @body
        print(x)
    """)
    spot = {"file": str(program), "line": program["body"], "capture": ["x", "i"]}
    told = run(relay, program, python_path=python, trace={"at": [spot]})
    assert [row["values"] for row in told["trace"]["rows"]] == [
        {"x": "1", "i": "0"}, {"x": "1", "i": "1"}, {"x": "2", "i": "2"},
    ]  # fmt: skip
    assert (told["trace"]["ended"], told["exit_code"], told["output"]) == ("ended", 0, "4\n")
    told = run(relay, program, python_path=python, trace={"step": "function", "max_rows": 4})
    assert [row["line"] for row in told["trace"]["rows"]] == [1, 2, 3, 2]
    assert (told["trace"]["ended"], told["exit_code"]) == ("max_rows", 0)
    nothing_is_left(relay)


def test_a_crash_while_it_is_traced(relay: Client, source: Write) -> None:
    program = source(CRASH)
    told = run(relay, program, trace={"step": {"files": [str(program)]}})
    assert told["trace"]["ended"] == "exception"
    assert told["exception"]["frames"][0]["name"] == "total"
    assert told["exit_code"] == 1


def test_time_is_up(relay: Client, python: str) -> None:
    told = run(relay, "print('on', flush=True)\nwhile True: pass", python_path=python, timeout=0.7)
    assert (told["end_reason"], told["signal"], told["exit_code"]) == ("timeout", "SIGTERM", -15)
    (thread,) = told["threads"]
    (frame,) = thread["frames"]
    assert (frame["name"], frame["line"], thread["live"]) == ("<module>", 2, True)
    assert told["output"] == "on\n"
    nothing_is_left(relay)


def test_what_nobody_looks_at_does_not_hold_it(relay: Client, source: Write) -> None:
    program = source("""
        import threading

        def worker():
            raise KeyError("in a thread")

        breakpoint()
        thread = threading.Thread(target=worker)
        thread.start()
        thread.join()
        raise ValueError("at the end")
    """)
    told = run(relay, program, timeout=20)
    assert told["exit_code"] == 1
    assert told["exception"]["type"].endswith("KeyError")
    assert "ValueError: at the end" in told["output"]


def test_a_deep_stack_is_told_in_part(relay: Client) -> None:
    told = run(relay, "def deep(n):\n    n or 1 / n\n    deep(n - 1)\ndeep(300)", timeout=30)
    crash = told["exception"]
    assert crash["type"].endswith("ZeroDivisionError")
    assert crash["total_frames"] == 302
    # Of the recursion the innermost calls, and the first.
    assert [frame["id"] for frame in crash["frames"]] == [0, 1, 2, 300, 301]
    assert crash["folded"] == [{"first": 3, "count": 297, "libraries": [], "repeats": 1}]


def test_a_recursion_without_end_is_told_in_a_few_lines(relay: Client, python: str) -> None:
    """Its traceback alone is 100 KB, as two functions call each other."""
    code = """
def depth(node):
    return 1 + max(depth(kid) for kid in node)

tree = []
tree.append(tree)
print("before")
depth(tree)
"""
    body = {"code": code, "python_path": python}
    text = relay.post("/run?format=text", body).raw.decode()
    assert "exception: RecursionError" in text
    assert "the 2 frames above, " in text
    assert "File" not in text
    assert ".0:" not in text
    assert len(text) < 1000, text
    assert len(relay.post("/run", body | {"output_bytes": 0}).raw) < 5000


def test_frames_of_libraries_below_the_top_are_folded(relay: Client, python: str) -> None:
    """Also those of the library in which the exception was raised."""
    code = """
import asyncio
async def main():
    try:
        await asyncio.wait_for(asyncio.sleep(9), 0.05)
    except asyncio.TimeoutError:
        pass
    try:
        {}["x"]
    except KeyError as error:
        raise ValueError(7) from error
asyncio.run(main())
"""
    body = {"code": code, "python_path": python, "exceptions": {"types": ["TimeoutError"]}}
    crash = relay.post("/run", body).ok()["exception"]
    assert [frame["name"] for frame in crash["frames"][1:]] == ["main", "<module>"]
    # The traceback of a cause stays, in short; the last is told by the frames.
    text = relay.post("/run?format=text", {"code": code, "python_path": python}).raw.decode()
    assert text.count("Traceback") == 1
    assert "| KeyError: 'x'" in text
    assert "direct cause" in text
    assert "exception: ValueError: 7" in text
    # A prompt before it, and a message of several lines, do not hide it.
    code = "input('n? ')\nraise ValueError('one\\ntwo')"
    body = {"code": code, "python_path": python, "stdin_inputs": ["7"]}
    lines = relay.post("/run?format=text", body).raw.decode().splitlines()
    assert lines[1:4] == ["output:", "| n? ", "exception: ValueError: one\\ntwo"]


def test_the_end_of_much_output(relay: Client) -> None:
    code = "for i in range(50000): print('line', i)"
    told = run(relay, code, output_bytes=1000)
    assert len(told["output"]) == 1000
    assert told["output"].endswith("line 49999\n")
    whole = sum(len(f"line {i}\n") for i in range(50000))
    assert told["output_left_out"] == whole - 1000


def test_it_counts_while_it_runs_and_ends_when_its_caller_leaves(
    own_relay: Callable[..., Relay], tmp_path: Path
) -> None:
    relay = own_relay(env={"OPENCODE_DEBUG_SESSIONS__MAX_SESSIONS": "1"})
    mark = tmp_path / "began"
    code = f"import time; open({str(mark)!r}, 'w').close(); time.sleep(100)"
    body = json.dumps({"code": code}).encode()
    with socket.create_connection((relay.client.host, relay.client.port)) as caller:
        caller.sendall(
            b"POST /api/v1/run HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (relay.client.port, len(body), body)
        )
        eventually(mark.exists)
        relay.client.post("/sessions", {}).refused("SESSION_LIMIT_REACHED", 429)
        relay.client.post("/run", {"code": "1"}).refused("SESSION_LIMIT_REACHED", 429)
    eventually(lambda: relay.client.get("/sessions").ok()["items"] == [])
    eventually(lambda: relay.workers() == [])


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "INVALID_REQUEST"),
        ({"script": "/no/such.py"}, "LAUNCH_SCRIPT_NOT_FOUND"),
        ({"code": "1 +"}, "LAUNCH_SYNTAX_ERROR"),
        ({"code": "1", "trace": {}}, "INVALID_REQUEST"),
        ({"code": "1", "trace": {"at": [{"file": "/a.py", "line": 0}]}}, "INVALID_REQUEST"),
        (
            {"code": "1", "trace": {"at": [{"file": "/no/a.py", "line": 1}]}},
            "BREAKPOINT_FILE_NOT_FOUND",
        ),
    ],
)
def test_what_is_refused_leaves_nothing(relay: Client, body: dict[str, Any], code: str) -> None:
    relay.post("/run", body).refused(code, 400)
    nothing_is_left(relay)


POOL = """
    import concurrent.futures, json

    def parse(text):
        return json.loads(text)["price"]  # @parse

    def work(text):
        try:
            return parse(text)
        except ValueError:
            return None

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        done = list(pool.map(work, ['{"price": 3}', "oops", '{"price": 4}']))
    print(sum(one is not None for one in done), "of", len(done))
"""


def test_a_swallowed_exception_in_one_call(relay: Client, source: Write, python: str) -> None:
    program = source(POOL)
    asked = {"python_path": python, "exceptions": {"types": ["ValueError"], "raised_in": "user"}}
    answer = run(relay, program, **asked)
    assert (answer["end_reason"], answer["output"]) == ("on_stop", "")
    frame = next(one for one in answer["exception"]["frames"] if one["name"] == "parse")
    assert frame["line"] == program["parse"]
    assert {"name": "text", "type": "str", "value": "'oops'"} in frame["locals"]
    # All of them are listed, and one of another kind that ends the program is shown whole.
    program = source(POOL + "    work('no')\n    work('')\n    {}['x']\n", "fails.py")
    answer = run(relay, program, on_stop="continue", **asked)
    assert (answer["stops"], answer["exit_code"]) == (3, 1)
    place = (str(program.path), program["parse"], "parse")
    assert [(row["path"], row["line"], row["function"]) for row in answer["raised"]] == [place]
    assert (answer["raised"][0]["type"], answer["raised"][0]["times"]) == ("JSONDecodeError", 3)
    assert answer["exception"]["type"] == "KeyError"
    text = relay.post(
        "/run?format=text", {"script": str(program.path), "on_stop": "continue", **asked}
    ).raw.decode()
    assert "it stopped at 3 exceptions:\n  " in text
    nothing_is_left(relay)


def test_an_uncaught_exception_ends_by_itself(relay: Client, source: Write) -> None:
    answer = run(relay, source(CRASH), exceptions={"filters": ["uncaught"]})
    assert (answer["exit_code"], answer["stops"]) == (1, 0)
    assert answer["exception"]["frames"][0]["name"] == "total"


def test_the_first_stop_of_a_run(relay: Client, source: Write, python: str) -> None:
    """Relative files are found in `cwd`, in `project_root`, or beside the script."""
    program = source(POOL, "job.py")
    folder = str(program.path.parent)
    at = [{"file": "job.py", "text": "json.loads", "condition": "len(text) == 4"}]
    for where in ({"cwd": folder}, {"project_root": folder}):
        answer = run(relay, program, python_path=python, breakpoints=at, **where)
        assert answer["end_reason"] == "on_stop"
        assert {row["name"]: row["value"] for row in answer["stop"]["locals"]} == {"text": "'oops'"}
    more = {"on_stop": "continue", "breakpoints": [{"function": "parse", "file": "job.py"}]}
    answer = run(relay, program, python_path=python, **more)
    assert (answer["stops"], answer["exit_code"], answer["output"]) == (3, 0, "2 of 3\n")
    rows = {"at": [{"file": "job.py", "line": program["parse"], "capture": ["text"]}]}
    answer = run(relay, program, python_path=python, trace=rows)
    assert answer["trace"]["total"] == 3
    nothing_is_left(relay)


def test_what_was_never_hit_is_told(relay: Client, source: Write, tmp_path: Path) -> None:
    text = CRASH.replace("None", "4")
    program = source(f"{text}\n    if not __name__:\n        main()  # @unused\n")
    points: list[Any] = [{"function": "totl"}, {"file": str(tmp_path / "later.py"), "line": 2}]
    points.append({"file": str(program), "line": program["unused"]})
    body = {"script": str(program), "breakpoints": points}
    text = relay.post("/run?format=text", body).raw.decode()
    functions, file, line = (told for told in text.splitlines() if told.startswith("warning: "))
    assert "total" in functions
    assert file.startswith("warning: bp_2: ")
    assert line == f"warning: bp_3: {program}:{program['unused']} was never reached"


def test_a_watchpoint_in_a_function_of_the_script(relay: Client, source: Write) -> None:
    """No program runs when it is set; and its files may be relative, too."""
    program = source(CRASH.replace("None", "4"))
    folder, name = str(Path(str(program)).parent), Path(str(program)).name

    def asked(**scope: Any) -> dict[str, Any]:
        point = {"watch": "sum_so_far", "in": scope, "condition": "sum_so_far > 3"}
        return {"script": name, "cwd": folder, "breakpoints": [point]}

    (change,) = relay.post("/run", asked(function="total")).ok()["stop"]["value_changes"]
    assert (change["before"], change["after"]) == ("3", "7")
    body = {"mode": "launch", "wait": 20, **asked(files=[name])}
    with Session(relay, relay.post("/sessions", body).ok(201)["session_id"]) as session:
        assert session.status()["stop_reason"] == "breakpoint"


def test_a_child_that_fails(relay: Client, python: str) -> None:
    code = r"""
import subprocess, sys
print(subprocess.run([sys.executable, "-c", "def f(n): return 1 / n\nf(0)"], stderr=-3).returncode)
"""
    body = {"code": code, "python_path": python, "debug_subprocesses": True}
    text = relay.post("/run?format=text", body).raw.decode()
    assert re.search(r"^exception in child process \d+: ZeroDivisionError", text, re.MULTILINE)
    assert re.search(r"\bf\b", text.partition("exception in child")[2])


def test_a_hang_in_one_call(relay: Client, source: Write, python: str) -> None:
    program = source("""
        import asyncio

        async def waits(queue, name):
            return await queue.get()

        async def main():
            queue = asyncio.Queue()
            await asyncio.gather(waits(queue, "a"), waits(queue, "b"))

        asyncio.run(main())
    """)
    body = {"script": str(program), "python_path": python, "timeout": 4}
    text = relay.post("/run?format=text", body, within=30).raw.decode()
    assert "waits for event loop" in text
    assert "waits for queue queue (get) <asyncio.Queue 0 items" in text
    assert "name = 'a'" in text
    assert len(text) < 2000
