"""Where the probe cannot be, plain DAP goes on: the worker finds out by itself."""

from __future__ import annotations

from collections.abc import Callable

from tests.kit.client import Client
from tests.kit.source import Source

PROGRAM = """
    def main():
        for i in range(4):
            j = i * 2  # @line
        print(j)

    main()
"""
OFF = {"DEBUG_RELAY_PROBE": "off"}


def test_condition_steps_and_evaluate_by_plain_dap(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        session.break_at(program, program["line"], condition="i == 2")
        stopped = session.launch(program, env=OFF)
        assert stopped["current_location"]["line"] == program["line"]
        assert session.value("i") == "2"
        assert session.post("/evaluate", {"expression": "1/0"}).ok()["error"].startswith("Zero")
        for context in ("repl", "watch"):
            body = {"expression": "x y", "context": context}
            session.post("/evaluate", body).refused("EVALUATE_ERROR", 400)
        text = "(_ for _ in ()).throw(ValueError('one\\ntwo words'))"
        raised = session.post("/evaluate", {"expression": text}).ok()["error_details"]
        assert (raised["type"], raised["message"]) == ("ValueError", "one\ntwo words")
        assert session.step()["completed"] is True
        session.delete("/breakpoints").ok()
        assert session.resume()["exit_code"] == 0
        assert session.printed() == "6\n"


def test_hit_count_by_plain_dap(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        session.break_at(program, program["line"], hit_condition="==3")
        session.launch(program, env=OFF)
        assert session.value("i") == "2"


def test_the_switch_is_not_seen_by_the_program(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source("import os\nprint(sorted(n for n in os.environ if 'PROBE' in n))\n")
    with relay.session() as session:
        assert session.launch(program, env=OFF)["exit_code"] == 0
        assert session.printed() == "[]\n"


def test_variables_by_plain_dap(relay: Client, source: Callable[..., Source]) -> None:
    program = source("items = [1, {'a': 2}]\nprint(items)  # @line\n")
    with relay.session() as session:
        session.break_at(program, program["line"])
        session.launch(program, env=OFF)
        listed = session.get("/frames/0/variables", start=0, count=1).ok()
        (items,) = listed["variables"]
        assert (items["name"], items["value"], items["expandable"]) == (
            "items",
            "[1, {'a': 2}]",
            True,
        )
        assert items["indexed_variables"] is None, "nobody has counted"
        page = session.get(f"/variables/{items['variables_reference']}", filter="indexed").ok()
        assert [row["value"] for row in page["variables"]] == ["1", "{'a': 2}"]
        opened = session.post("/evaluate", {"expression": "items"}).ok()
        assert opened["variables_reference"] > 0
