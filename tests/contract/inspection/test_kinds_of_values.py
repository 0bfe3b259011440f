"""Values of many kinds of the standard library: each tells its data, and can be opened to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

PROGRAM = """
    import array, collections, contextvars, ctypes, functools, io, queue, threading, weakref
    import xml.etree.ElementTree as ET

    class Point(ctypes.Structure):
        _fields_ = [("x", ctypes.c_int), ("tag", ctypes.c_char * 4)]

    class Line(ctypes.Structure):
        _fields_ = [("start", Point), ("name", ctypes.c_char_p), ("next", ctypes.POINTER(Point))]

    class Said(ctypes.Structure):
        _fields_ = [("x", ctypes.c_int)]
        def __repr__(self):
            return "SAID %d" % self.x

    class Plain:
        pass

    def stray(kind, at=8):
        pointer = kind()
        ctypes.c_size_t.from_buffer(pointer).value = at
        return pointer

    def main():
        point = Point(1, b"ab")
        line = Line(point, b"first", ctypes.pointer(point))
        broken = Line(point)
        ctypes.c_size_t.from_buffer(broken, Line.name.offset).value = 8
        numbers = (ctypes.c_int * 100000)(*range(1000))
        names = (ctypes.c_char_p * 2)(b"a", None)
        buffer = ctypes.create_string_buffer(b"hello", 8)
        wide = ctypes.c_wchar_p("w\\u00efde")
        lost, lost_text = stray(ctypes.POINTER(Point)), stray(ctypes.c_char_p)
        null, said = ctypes.POINTER(ctypes.c_int)(), Said(3)
        bounded = collections.deque([1], maxlen=3)
        made = collections.defaultdict(list, a=[1])
        view, words = memoryview(array.array("i", [7, 8])), io.StringIO("abc")
        plain = Plain()
        reference, each = weakref.ref(plain), zip([1], [2])
        entries = queue.SimpleQueue()
        entries.put("entry")
        local = threading.local()
        local.mine = 5
        thread = threading.current_thread()
        number = contextvars.ContextVar("number")
        number.set(9)
        context = contextvars.copy_context()
        element = ET.fromstring("<a x='1'><b/></a>")
        never = lambda x, *, y: x
        key = functools.cmp_to_key(lambda a, b: 0)
        return  # @stop

    main()
"""

READ = {
    "point": "Point(x=1, tag=b'ab')",
    "broken": "Line(start=Point(x=1, tag=b'ab'), name=c_char_p(0x8, not readable), "
    "next=<LP_Point: null>)",
    "names": "<c_char_p_Array_2 [c_char_p(b'a'), c_char_p(None)]>",
    "buffer": "<c_char_Array_8 b'hello\\x00\\x00\\x00'>",
    "wide": "c_wchar_p('wïde')",
    "lost": "<LP_Point to 0x8, not readable>",
    "lost_text": "c_char_p(0x8, not readable)",
    "null": "<LP_c_int: null>",
    "said": "SAID 3",
    "bounded": "deque([1], maxlen=3)",
    "made": "defaultdict(<class 'list'>, {'a': [1]})",
    "words": "<_io.StringIO of 3 at 0: 'abc'>",
    "never": "<function main.<locals>.<lambda>(x, *, y) at program.py:48>",
}
INSIDE = {
    "point": {"x": "1", "tag": "b'ab'"},
    "wide": {"value": "'wïde'"},
    "lost": {},
    "view": {"0": "7", "1": "8"},
    "reference": {"()": "<__main__.Plain>"},
    "local": {"mine": "5"},
    "element": {"0": "<Element 'b' at", "attrib": "{'x': '1'}", "tag": "'a'"},
}
OF_PYDEVD = ("additional_info", "stop_reason", "__pydevd_id__", "pydev_do_not_trace")


def test_what_holds_data_shows_it_and_no_stray_pointer_is_followed(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["stop"])
        session.launch(program)
        found = {row["name"]: row for row in rows(session, "/frames/0/variables")}
        assert {name: found[name]["value"] for name in READ} == READ
        line = found["line"]["value"]
        assert line.startswith("Line(start=Point(x=1, tag=b'ab'), name=c_char_p(b'first'), next=<")
        assert line.endswith(": Point(x=1, tag=b'ab')>)")
        for name, wanted in INSIDE.items():
            inside = {row["name"]: row["value"] for row in opened(session, found[name])}
            for part, value in wanted.items():
                assert inside[part].startswith(value), (name, inside)
        assert found["numbers"]["length"] == 100000
        far = opened(session, found["numbers"], start=999, count=2)
        assert [(row["name"], row["value"]) for row in far] == [("999", "999"), ("1000", "0")]
        assert "'entry'" in str(opened(session, found["entries"]))
        assert "9" in [row["value"] for row in opened(session, found["context"])]
        assert any(row["value"].startswith("(<") for row in opened(session, found["each"]))
        # What the debugger keeps in a thread is not the program's.
        assert not {row["name"] for row in opened(session, found["thread"])} & set(OF_PYDEVD)
        opened(session, found["key"])
        assert all(row["truncated"] is False for row in opened(session, found["line"]))
        # A field is set like any other variable.
        reference = found["point"]["variables_reference"]
        session.post(f"/variables/{reference}/set", {"name": "x", "value": "40 + 2"}).ok()
        assert session.value("point.x, line.next.contents.x") == "(42, 42)"
        assert session.resume()["exit_code"] == 0


def opened(session: Session, row: Any, **query: Any) -> list[Any]:
    return rows(session, f"/variables/{row['variables_reference']}", **query)


def rows(session: Session, path: str, **query: Any) -> list[Any]:
    return list(session.get(path, **query).ok()["variables"])
