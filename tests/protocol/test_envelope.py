"""Replies are valid JSON whatever is spliced in."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.wire.envelope import (
    encode_json,
    error_body,
    failure,
    success,
    timestamp,
    timestamp_of,
)

ANY_TEXT = st.text(st.characters(), max_size=40)  # lone surrogates too
TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")


@given(request_id=ANY_TEXT)
def test_any_request_id(request_id: str):
    envelope = json.loads(success(b'{"a":[1,2]}', request_id))
    assert set(envelope) == {"success", "data", "error", "meta"}
    assert (envelope["success"], envelope["data"], envelope["error"]) == (True, {"a": [1, 2]}, None)
    shown = request_id.encode("utf-8", "backslashreplace").decode()
    assert envelope["meta"]["request_id"] == shown
    assert TIME.match(envelope["meta"]["timestamp"])


@pytest.mark.parametrize(
    "request_id", ['"', '"}', "\\", "%s %b %d", "\0", "\n", "é\udcff", "\U0001f600", "x" * 10_000]
)
def test_odd_request_ids(request_id: str):
    for envelope in (success(b"null", request_id), failure(b"null", request_id)):
        assert isinstance(json.loads(envelope)["meta"]["request_id"], str)


@given(data=st.dictionaries(st.text(), st.text() | st.integers(-1000, 1000), max_size=4))
def test_data_is_spliced_as_it_is(data: dict):
    assert json.loads(success(encode_json(data), "r"))["data"] == data


def test_a_percent_sign_in_data_is_data():
    assert json.loads(success(b'"100%b %d"', "r"))["data"] == "100%b %d"


@given(message=ANY_TEXT, value=ANY_TEXT | st.integers() | st.binary(max_size=5) | st.none())
def test_any_error(message: str, value: object):
    error = RelayError(Code.INVALID_REQUEST, message, None, value=value, thing=object())
    envelope = json.loads(failure(error_body(error), "r"))
    assert (envelope["success"], envelope["data"]) == (False, None)
    assert envelope["error"]["code"] == "INVALID_REQUEST"
    assert set(envelope["error"]) == {"code", "message", "details"}
    # JSON has no null that tells nothing.
    assert ("value" in envelope["error"]["details"]) is (value is not None)


def test_an_error_says_what_to_do_next():
    body = json.loads(error_body(RelayError(Code.SESSION_NOT_FOUND, "gone", session_id="s")))
    assert body["details"]["session_id"] == "s"
    assert "GET /api/v1/sessions" in body["details"]["suggestion"]
    own = RelayError(Code.SESSION_NOT_FOUND, "gone", "Do this.")
    assert own.details["suggestion"] == "Do this."
    assert own.status == 404


@given(moment=st.datetimes(min_value=datetime(1970, 1, 2), timezones=st.just(UTC)))
def test_times_have_milliseconds(moment: datetime):
    text = timestamp(moment)
    assert TIME.match(text)
    parsed = datetime.fromisoformat(text)
    assert 0 <= (moment - parsed).total_seconds() < 0.001


def test_times_are_utc():
    assert timestamp_of(0.0015) == "1970-01-01T00:00:00.001Z"
    assert TIME.match(timestamp())
