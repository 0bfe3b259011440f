"""The user story's acceptance criteria for launching, stepping, looking and output, by name.

One program of two files, debugged as its user would. Sessions, errors and safety stand in
test_acceptance.py.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

MAIN = """
    import sys
    import prices

    def total(items):
        amount = 0
        for item in items:
            amount += prices.of(item)  # @call
            print("so far", amount)  # @after
        return amount  # @sum

    def main():
        items = ["tea", "milk"]
        amount = total(items)  # @first
        print("done", amount, sys.argv[1:], file=sys.stderr)  # @last
        return amount

    main()  # @module
"""
PRICES = """
    LIST = {"tea": 5, "milk": 2}

    def of(name):
        price = LIST[name]  # @lookup
        return price
"""
ROWS = 100_000


class Shop(NamedTuple):
    main: Source
    prices: Source


@pytest.fixture
def shop(source: Callable[..., Source]) -> Shop:
    return Shop(source(MAIN, "main.py"), source(PRICES, "prices.py"))


@pytest.fixture
def session(relay: Client, shop: Shop, python: str) -> Session:
    return relay.session(python_path=python, project_root=str(shop.main.path.parent))


def at(reply: Any) -> tuple[str, int, str]:
    place = reply["current_location"]
    return place["path"].rpartition("/")[2], place["line"], place["function"]


def variable(session: Session, name: str, frame_id: int = 0) -> Any:
    listed = session.get(f"/frames/{frame_id}/variables").ok()["variables"]
    return next(one for one in listed if one["name"] == name)


def children(session: Session, parent: Any, **query: Any) -> Any:
    return session.get(f"/variables/{parent['variables_reference']}", **query).ok()


# -- launching


def test_ac_pl_1_2_3_6_a_script_is_debugged_as_it_was_asked_for(
    session: Session, shop: Shop, python: str
) -> None:
    """Within two seconds, with its arguments and environment, by the named interpreter."""
    session.break_at(shop.main, shop.main["module"])
    began = time.monotonic()
    reply = session.launch(shop.main, args=["--fast", "two words"], env={"SHOP": "corner"})
    # The machine of the tests has other work to do meanwhile.
    assert time.monotonic() - began < 2.0 * 3
    assert at(reply) == ("main.py", shop.main["module"], "<module>")
    assert session.value("sys.argv[1:]") == "['--fast', 'two words']"
    assert session.value("__import__('os').environ['SHOP']") == "'corner'"
    assert session.value("sys.executable") == repr(python)


def test_ac_pl_4_relative_imports_go_by_the_working_directory(
    session: Session, shop: Shop, source: Callable[..., Source]
) -> None:
    folder = source("NAME = 'there'\n", "elsewhere/near.py").path.parent
    source("import near\nprint(near.NAME)\n", "elsewhere/near_main.py")
    session.launch(module="near_main", cwd=str(folder))
    assert session.printed("stdout") == "there\n"


def test_ac_pl_5_a_syntax_error_has_its_line(
    session: Session, source: Callable[..., Source]
) -> None:
    broken = source("x = 1\nif x == 1\n    pass\n", "broken.py")
    details = session.try_launch(broken).refused("LAUNCH_SYNTAX_ERROR", 400)["details"]
    assert (details["file"], details["line"], details["text"]) == (str(broken), 2, "if x == 1")


# -- execution


def test_ac_ec_1_continue_goes_to_the_next_breakpoint_or_the_end(
    session: Session, shop: Shop
) -> None:
    session.break_at(shop.main, shop.main["call"])
    session.break_at(shop.main, shop.main["last"])
    reply = session.launch(shop.main)
    places = [at(reply)[1]]
    while (reply := session.resume())["status"] == "paused":
        places.append(at(reply)[1])
    assert places == [shop.main["call"], shop.main["call"], shop.main["last"]]
    assert (reply["status"], reply["exit_code"]) == ("terminated", 0)


def test_ac_ec_2_3_4_6_mf_3_every_step_says_where_it_came_to(session: Session, shop: Shop) -> None:
    """Over stays in the function, into follows into the imported module, out ends at the caller."""

    def stepped(how: str) -> Any:
        reply = session.step(how)
        assert reply["current_location"] == session.status()["current_location"], how
        frame = session.get("/stacktrace", levels=1).ok()["frames"][0]
        assert at(reply)[1:] == (frame["line"], frame["name"]), how
        return reply

    session.break_at(shop.main, shop.main["call"])
    session.launch(shop.main)
    reply = stepped("over")
    assert (at(reply), reply["stop_reason"]) == (("main.py", shop.main["after"], "total"), "step")
    assert session.value("amount") == "5"
    session.resume()
    assert at(stepped("into")) == ("prices.py", shop.prices["lookup"], "of")
    reply = stepped("out")
    assert at(reply)[::2] == ("main.py", "total")
    assert (reply["return_value"]["value"], reply["return_value"]["type"]) == ("2", "int")


def test_ac_ec_5_pause_stops_it_within_a_second(
    session: Session, source: Callable[..., Source]
) -> None:
    session.launch(source("while True: pass\n", "busy.py"), wait=0)
    eventually(lambda: session.status()["status"] == "running")
    began = time.monotonic()
    reply = session.post("/pause").ok()
    assert time.monotonic() - began < 1.0
    assert (reply["status"], reply["stop_reason"]) == ("paused", "pause")
    assert at(reply)[0] == "busy.py"


# -- looking


def test_ac_si_1_mf_1_2_4_the_stack_leads_through_all_modules(session: Session, shop: Shop) -> None:
    """Breakpoints hold in imported modules, and the source of every frame can be read."""
    assert session.break_at(shop.prices, shop.prices["lookup"])["verified"] is True
    assert at(session.launch(shop.main)) == ("prices.py", shop.prices["lookup"], "of")
    stack = session.get("/stacktrace").ok()
    assert [(one["source"]["path"], one["line"], one["name"]) for one in stack["frames"]] == [
        (str(shop.prices), shop.prices["lookup"], "of"),
        (str(shop.main), shop.main["call"], "total"),
        (str(shop.main), shop.main["first"], "main"),
        (str(shop.main), shop.main["module"], "<module>"),
    ]
    assert stack["total_frames"] == 4
    for frame in stack["frames"]:
        read = session.get("/source", frame_id=frame["id"]).ok()
        file = shop.prices if read["path"] == str(shop.prices) else shop.main
        assert read["lines"] == file.text.splitlines()
        assert read["path"] == frame["source"]["path"]


def test_ac_si_2_4_5_locals_and_expressions_have_value_and_type(
    session: Session, shop: Shop
) -> None:
    session.break_at(shop.main, shop.main["after"])
    session.launch(shop.main)
    assert session.locals() == {"items": "['tea', 'milk']", "amount": "5", "item": "'tea'"}
    assert session.locals(frame_id=1) == {"items": "['tea', 'milk']"}
    for expression, value, kind in (
        ("amount * 2 + len(items)", "12", "int"),
        ("[item.upper() for item in items]", "['TEA', 'MILK']", "list"),
        ("prices.LIST['milk'] / 4", "0.5", "float"),
    ):
        answer = session.post("/evaluate", {"expression": expression}).ok()
        assert (answer["result"], answer["type"]) == (value, kind)
    answer = session.post("/evaluate", {"expression": "price"}).ok()
    assert answer["error"] == "NameError: name 'price' is not defined"
    assert answer["error_details"]["type"] == "NameError"
    error = session.post("/evaluate", {"expression": "amount +"}).refused("EVALUATE_ERROR", 400)
    assert "SyntaxError" in error["message"]


def test_ac_si_3_6_7_values_can_be_opened(session: Session, source: Callable[..., Source]) -> None:
    """Complex values are shown part by part, large ones by pages; a value in itself is marked."""
    program = source(f"""
        class Node:
            def __init__(self, name, below=()):
                self.name = name
                self.below = list(below)
        tree = Node("root", [Node("leaf")])
        rows = list(range({ROWS}))
        text = "x" * {ROWS}
        ring = [1]
        ring.append(ring)
        print()  # @here
    """)
    session.break_at(program, program["here"])
    session.launch(program)
    tree = variable(session, "tree")
    assert tree["expandable"] is True
    fields = {one["name"]: one for one in children(session, tree)["variables"]}
    assert fields["name"]["value"] == "'root'"
    (leaf,) = [one for one in children(session, fields["below"])["variables"] if one["name"] == "0"]
    inner = {one["name"]: one["value"] for one in children(session, leaf)["variables"]}
    assert inner["name"] == "'leaf'"

    rows, text = variable(session, "rows"), variable(session, "text")
    assert (rows["truncated"], rows["expandable"]) == (True, True)
    assert (rows["length"], rows["indexed_variables"]) == (ROWS, ROWS)
    assert text["truncated"] is True
    assert max(len(rows["value"]), len(text["value"])) < 10_000
    page = children(session, rows, start=ROWS - 3, count=2)
    assert [one["value"] for one in page["variables"]] == [str(ROWS - 3), str(ROWS - 2)]
    assert page["has_more"] is True

    listed = children(session, variable(session, "ring"))["variables"]
    (again,) = [one for one in listed if one["name"] == "1"]
    assert again["circular"] is True
    assert again["value"] == "<circular: ring>"


# -- output


def test_ac_oh_1_2_3_what_is_printed_is_kept_with_its_time(session: Session, shop: Shop) -> None:
    session.launch(shop.main, args=["now"])
    assert session.printed("stdout") == "so far 5\nso far 7\n"
    assert session.printed("stderr") == "done 7 ['now']\n"
    times = [entry["timestamp"] for entry in session.get("/output").ok()["entries"]]
    moments = [datetime.fromisoformat(text) for text in times]
    assert moments == sorted(moments)


def test_ac_oh_4_large_output_is_read_by_pages(
    session: Session, source: Callable[..., Source]
) -> None:
    program = source("for n in range(1000):\n    print(n, flush=True)\n", "much.py")
    session.launch(program)
    text, query = "", {"limit": 7}
    for _ in itertools.count():
        page = session.get("/output", **query).ok()
        assert len(page["entries"]) <= 7
        text += "".join(entry["output"] for entry in page["entries"])
        if not page["has_more"]:
            break
        query = {"limit": 7, "cursor": page["next_cursor"]}
    assert text == "".join(f"{n}\n" for n in range(1000))
