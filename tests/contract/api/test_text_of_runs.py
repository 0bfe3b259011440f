"""Traces, exceptions and whole runs as text: the rows, the traceback, the frames with locals."""

from __future__ import annotations

from collections.abc import Callable

from tests.kit.client import Client, Session
from tests.kit.source import Source

PROGRAM = """
    def half(n):
        result = n / 2  # @inside
        return result

    print(half(4))
    print(half(6))
    half("x")  # @crash
"""
TEXT = {"Accept": "text/plain"}


def test_the_rows_of_a_trace(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        session.launch(program, stop_on_entry=True)
        at = [{"file": str(program), "line": program["inside"], "capture": ["n"]}]
        answer = session.post("/trace", {"at": at, "max_rows": 2}, headers=TEXT)
        shown = answer.raw.decode().splitlines()
        line = program["inside"]
        assert shown[:4] == [
            f"{program}:",
            f"  #1 line {line} half  n = 4",
            f"  #2 line {line} half  n = 6",
            "trace of 2 rows: max_rows were recorded",
        ]
        assert shown[4].startswith("paused (")
        again = session.get("/trace?format=text").raw.decode().splitlines()
        assert again[:4] == shown[:4]


def test_an_exception(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        assert session.launch(program)["stop_reason"] == "exception"
        shown = session.get("/exception?format=text").raw.decode().splitlines()
        assert shown[0].startswith("builtins.TypeError: unsupported operand")
        assert f'|   File "{program}", line {program["crash"]}, in <module>' in shown
        marked = session.get("/exception?format=markdown").raw.decode()
        assert "```" in marked


def test_a_run_that_crashes(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    at = [{"file": str(program), "line": program["inside"], "capture": ["n"]}]
    body = {"script": str(program), "trace": {"at": at}}
    shown = relay.post("/run", body, headers=TEXT).raw.decode().splitlines()
    assert shown[0] == "the program has ended (exit code 1, target exited)"
    assert shown[1:4] == ["output:", "| 2.0", "| 3.0"]
    assert f"  #3 line {program['inside']} half  n = 'x'" in shown
    frame = shown.index(f"#0 half at {program}:{program['inside']}")
    assert shown[frame + 1] == "  n: str = 'x'"


def test_a_run_that_is_well(relay: Client, source: Callable[..., Source]) -> None:
    answer = relay.post("/run?format=text", {"script": str(source("print('fine')\n"))})
    assert answer.raw.decode() == "the program has ended (exit code 0, target exited)\n" + (
        "output:\n| fine\n"
    )


def test_a_run_that_is_kept_stands_where_it_crashed(
    relay: Client, source: Callable[..., Source]
) -> None:
    body = {"script": str(source("raise MemoryError\n")), "keep_on_exception": True}
    shown = relay.post("/run", body, headers=TEXT).raw.decode().splitlines()
    head, _, kept = shown[0].rpartition(" ")
    with Session(relay, kept) as session:
        assert head == "the program is paused where it crashed; kept as session"
        assert "exception: MemoryError" in shown
        assert not any("has ended" in line for line in shown)
        assert session.status()["status"] == "paused"


def test_a_recursion_is_told_once_and_how_far_it_goes(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source("""
        def deep(n):
            if n:
                return deep(n - 1)  # @again
            return empty() / 0  # @crash

        def empty():
            return empty_too()

        def empty_too(*alike):
            return len(alike) if len(alike) > 8 else empty_too(*alike, 1)  # @end

        deep(30)
    """)
    again, crash, end = (program[name] for name in ("again", "crash", "end"))
    with relay.session() as session:
        session.break_at(program, end, condition="len(alike) == 8")
        body = {"script": str(program), "wait": 20, "snapshot": {"frames": 12}}
        shown = session.post("/launch", body, headers=TEXT).raw.decode().splitlines()
        at = shown.index(f"  #1 empty_too at {program}:{end}")
        assert shown[at + 1] == "  #2 to #8 the same"
        stack = session.get("/stacktrace", format="text", levels=45).raw.decode().splitlines()
        assert stack[1:7] == [
            f"#0 empty_too at {program}:{end}",
            "#1 to #8 the same",
            f"#9 empty at {program}:{end - 3}",
            f"#10 deep at {program}:{crash}",
            f"#11 deep at {program}:{again}",
            "#12 to #40 the same",
        ]
    ran = relay.post("/run", {"script": str(program)}, headers=TEXT).raw.decode().splitlines()
    # Of a recursion with locals the innermost calls are shown, and the first.
    at = ran.index(f"#1 deep at {program}:{again}")
    assert ran[at + 1 : at + 7] == [
        "  n: int = 1",
        f"#2 deep at {program}:{again}",
        "  n: int = 2",
        "… 27 frames: the frame above, 27 more times",
        f"#30 deep at {program}:{again}",
        "  n: int = 30",
    ]
