"""Setting variables wherever they lie: what was set is read again, and told as it is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

PROGRAM = r"""
    import array, collections, dataclasses, types

    CONSTANT = 1

    class Key:
        def __init__(self, n):
            self.n = n
        def __repr__(self):
            return "Key(%d)" % self.n

    class Base:
        shared = 1

    class Thing(Base):
        __slots__ = ("slot",)
        def __init__(self):
            self.plain, self.slot, self._kept = 1, 2, 3
        @property
        def kept(self):
            return self._kept
        @kept.setter
        def kept(self, value):
            self._kept = value
        @property
        def fixed(self):
            return 7
        @property
        def deaf(self):
            return 8
        @deaf.setter
        def deaf(self, value):
            pass

    class Doubles(list):
        def __setitem__(self, at, value):
            list.__setitem__(self, at, value * 2)

    class Lies(dict):
        def __getitem__(self, key):
            return "a lie"

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        x: int = 1

    def outer():
        cell = 1
        def inner():
            local = 2
            return cell + local  # @inner
        return inner() + cell

    def main():
        a_list, a_tuple, a_set = [1, [2, {"k": 3}]], (1, [2]), {1}
        a_dict = {"a": 1, 2: 2, (1, 2): 3, None: 4, 1.5: 5, b"x": 6, True: 7, "\n'": 8}
        keyed = {Key(1): 1, Key(1): 2, Key(2): 3}
        ordered, a_deque = collections.OrderedDict(a=1), collections.deque([1, 2])
        an_array, frozen = array.array("i", [1, 2]), Frozen()
        thing, doubles, lies = Thing(), Doubles([1]), Lies(a=1)
        thing.__dict__["\ud800"] = 9
        proxy, names = types.MappingProxyType({"k": 1}), types.SimpleNamespace(a=1)
        print(outer(), CONSTANT)
        class Body:
            held = 1
            print("body", held)  # @body
        return thing  # @main

    main()
    print(CONSTANT)  # @module
"""


def children(session: Session, reference: int) -> dict[str, Any]:
    listed = session.get(f"/variables/{reference}").ok()["variables"]
    return {row["name"]: row for row in listed}


def put(session: Session, reference: int, name: str, value: str) -> str:
    """As the reply tells it, which is as the next page does."""
    body = {"name": name, "value": value}
    told = str(session.post(f"/variables/{reference}/set", body).ok()["value"])
    assert children(session, reference)[name]["value"] == told
    return told


def scope(session: Session, name: str, frame_id: int = 0) -> int:
    found = session.get(f"/frames/{frame_id}/scopes").ok()["scopes"]
    return next(int(one["variables_reference"]) for one in found if one["name"] == name)


def test_every_kind_of_place(relay: Client, source: Callable[..., Source], python: str) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        for place in ("inner", "body", "main", "module"):
            session.break_at(program, program[place])
        session.launch(program)
        here = scope(session, "Locals")
        assert put(session, here, "local", "local + 10") == "12"
        assert put(session, here, "cell", "cell + 20") == "21"
        assert session.locals(1)["cell"] == "21"
        assert put(session, scope(session, "Locals", 1), "cell", "22") == "22"
        assert put(session, scope(session, "Globals"), "CONSTANT", "99") == "99"
        above = scope(session, "Locals", 2)
        assert put(session, above, "a_set", "{4}") == "{4}"
        assert session.resume()["current_location"]["line"] == program["body"]
        assert session.printed() == "56 99\n"
        assert put(session, scope(session, "Locals"), "held", "'set'") == "'set'"
        session.resume()
        assert "body set\n" in session.printed()

        page = children(session, scope(session, "Locals"))
        at = {name: row["variables_reference"] for name, row in page.items()}
        for name in ("a_list", "a_deque", "an_array"):
            assert put(session, at[name], "1", "44") == "44", name
        for key in children(session, at["a_dict"]):
            assert put(session, at["a_dict"], key, "44") == "44", key
        assert put(session, at["ordered"], "'a'", "[1]") == "[1]"
        assert put(session, at["keyed"], "Key(2)", "44") == "44"
        assert put(session, at["doubles"], "0", "4") == "8"
        assert put(session, at["lies"], "'a'", "4") == "4"
        assert put(session, at["names"], "a", "names") == "<circular: names>"
        for name in ("plain", "slot", "_kept", r"\ud800"):
            assert put(session, at["thing"], name, "44") == "44", name
        thing = children(session, at["thing"])
        for name, value in (("kept", "45"), ("deaf", "8")):
            inside = thing[name]["variables_reference"]
            assert put(session, inside, name, "45") == value
        assert put(session, thing["class attributes"]["variables_reference"], "shared", "5") == "5"
        assert session.value("Base.shared") == "5"

        for name, child, why in (
            ("a_tuple", "0", "a tuple cannot be changed"),
            ("a_set", "0", "a set cannot be changed"),
            ("proxy", "'k'", "a mappingproxy cannot be changed"),
            ("keyed", "Key(1)", "2 keys read Key(1)"),
            ("frozen", "x", "cannot assign to field"),
            ("thing", "fixed", "fixed was not set: AttributeError"),
        ):
            body = {"name": child, "value": "0"}
            answer = session.post(f"/variables/{at[name]}/set", body)
            assert why in answer.refused("EVALUATE_ERROR", 400)["message"], name
        for name, child in (("a_list", "9"), ("a_dict", "'new'"), ("thing", "new")):
            body = {"name": child, "value": "0"}
            session.post(f"/variables/{at[name]}/set", body).refused("VARIABLE_NOT_FOUND", 404)
        session.resume()
        assert put(session, scope(session, "Locals"), "CONSTANT", "'end'") == "'end'"
        session.resume()
        assert session.printed().endswith("end\n")


def test_a_refusal_says_what_happened_and_nothing_ran_for_it(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        class Hides:
            said = None
            @property
            def word(self):
                if self.said is not None:
                    raise LookupError("hidden")
                return self.said
            @word.setter
            def word(self, value):
                self.said = value

        def asked():
            calls.append(1)
            return 5

        calls, a_list, a_tuple, hides = [], [1], (1,), Hides()
        print(hides.said)  # @here
    """)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"])
        session.launch(program)
        here = scope(session, "Locals")
        at = {name: row["variables_reference"] for name, row in children(session, here).items()}

        def refused(reference: int, name: str, value: str, code: str = "EVALUATE_ERROR") -> Any:
            answer = session.post(f"/variables/{reference}/set", {"name": name, "value": value})
            return answer.refused(code)

        # The value is not evaluated for a place that is not there.
        for reference, name in ((here, "nobody"), (at["a_list"], "7"), (at["a_list"], "²")):
            refused(reference, name, "asked()", "VARIABLE_NOT_FOUND")
        assert session.value("calls") == "[]"
        # Why, and what would do instead: the value is not always to blame.
        error = refused(here, "calls", "1 +")
        assert "column" in error["details"]["suggestion"]
        error = refused(at["a_tuple"], "0", "asked()")
        assert "context repl" in error["details"]["suggestion"]
        error = refused(at["hides"], "word", "'said'")
        assert "was set, but" in error["message"]
        assert "LookupError: hidden" in error["message"]
        assert session.value("hides.said, calls") == "('said', [1])"
