"""Calls that suggestions name are those of the table, whoever writes them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import debug_relay.protocol
from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import ERRORS, Code, RelayError
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.version import API_PREFIX
from debug_relay.supervisor.http.router import Router

TOP = Path(debug_relay.protocol.__file__).parent.parent
ROUTER = Router(OPERATIONS, API_PREFIX)
CALLS = re.compile(r"\b(GET|POST|PUT|PATCH|DELETE) (/api/v1[^\s;,?]*[\w}])")


def test_a_call_has_its_whole_path() -> None:
    base = f"{API_PREFIX}/sessions"
    assert call_of("launch", "sess_1") == f"POST {base}/sess_1/launch"
    assert call_of("threads") == f"GET {base}/{{session_id}}/threads"
    assert call_of("list-sessions") == f"GET {base}"
    assert call_of("pause", "s", thread_id=7) == f"POST {base}/s/threads/7/pause"
    assert call_of("frame-variables", frame_id=2).endswith("/frames/2/variables")
    for wrong in ({"no": 1}, {"thread_id": 1}):
        with pytest.raises(ValueError, match="none of"):
            call_of("launch", "s", **wrong)


def test_every_call_in_the_code_is_there() -> None:
    named = set()
    for folder in ("protocol", "supervisor", "worker"):
        for file in (TOP / folder).rglob("*.py"):
            text = file.read_text("utf-8")
            named |= set(re.findall(r"call_of\(\s*[\"']([\w-]+)", text))
            assert not re.search(r"(GET|POST|PUT|PATCH|DELETE) …", re.sub("#.*", "", text)), file
    assert named
    assert named <= OPERATIONS.keys()


def test_every_call_in_the_catalogue_is_there() -> None:
    found = [call for row in ERRORS.values() for call in CALLS.findall(row.suggestion)]
    assert len(found) > 15
    for verb, path in found:
        ROUTER.match(verb, path)


def test_the_session_is_filled_in_where_it_is_known() -> None:
    error = RelayError(Code.THREAD_NOT_FOUND, "none")
    assert "{session_id}" in error.for_session(None).details["suggestion"]
    assert (
        f"{API_PREFIX}/sessions/sess_1/threads" in error.for_session("sess_1").details["suggestion"]
    )
