"""The stop reports of the past: what was true two stops ago can still be read."""

from __future__ import annotations

from collections.abc import Callable

from tests.kit.client import Client
from tests.kit.source import Source

PROGRAM = """
    def main():
        for i in range(1000):
            j = i * 2  # @line
            print(i)

    main()
"""


def test_newest_first_and_by_pages(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        assert session.get("/history").ok() == {
            "items": [],
            "next_cursor": None,
            "has_more": False,
            "dropped": 0,
        }
        session.break_at(program, program["line"])
        session.launch(program)
        for _ in range(4):
            session.resume()
        page = session.get("/history", limit=2).ok()
        assert [item["stop_id"] for item in page["items"]] == [5, 4]
        assert page["has_more"] is True
        older = session.get("/history", cursor=page["next_cursor"]).ok()
        assert [item["stop_id"] for item in older["items"]] == [3, 2, 1]
        assert (older["next_cursor"], older["has_more"]) == (None, False)
        values = {row["name"]: row["value"] for row in page["items"][1]["locals"]}
        assert values == {"i": "3", "j": "4"}
        assert page["items"][1]["output"] == [{"category": "stdout", "text": "2\n"}]


def test_it_outlives_the_program(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        session.break_at(program, program["line"])
        session.launch(program)
        session.delete("/breakpoints").ok()
        assert session.resume()["status"] == "terminated"
        (item,) = session.get("/history").ok()["items"]
        assert item["current_location"]["line"] == program["line"]
        assert all(row["variables_reference"] == 0 for row in item["locals"])


def test_a_hundred_are_kept_and_the_rest_counted(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        session.break_at(program, program["line"])
        session.launch(program)
        for _ in range(104):
            session.resume()
        seen: list[int] = []
        page = session.get("/history", limit=60).ok()
        while True:
            seen += [item["stop_id"] for item in page["items"]]
            if not page["has_more"]:
                break
            page = session.get("/history", limit=60, cursor=page["next_cursor"]).ok()
        assert seen == list(range(105, 5, -1))
        assert page["dropped"] == 5


def test_a_page_keeps_its_bound(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        session.break_at(program, program["line"])
        session.launch(program)
        for _ in range(20):
            session.resume()
        for most in (1024, 4000, 20000):
            answer = session.get("/history", max_bytes=most)
            assert len(answer.raw) <= most
            page = answer.ok()
            assert page["items"]
            assert page["has_more"] is True


def test_a_cursor_of_something_else_is_told(relay: Client) -> None:
    with relay.session() as session:
        error = session.get("/history", cursor="nonsense").refused("INVALID_PARAMETER", 400)
        assert error["details"]["errors"][0]["field"] == "cursor"
