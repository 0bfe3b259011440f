"""What stands inside a body is as strict as the body itself."""

from __future__ import annotations

import pytest

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.models.execution import Trace
from debug_relay.protocol.models.program import Attach
from debug_relay.protocol.validation.params import convert


@pytest.mark.parametrize(
    ("params", "body", "field"),
    [
        (Trace, {"at": [{"file": "/a.py", "line": 1, "captur": ["x"]}]}, "at[0].captur"),
        (Trace, {"at": [{"file": "/a.py", "line": 0}]}, "at[0].line"),
        (
            Attach,
            {"port": 1, "path_mappings": [{"local": "/a", "remote": "/b", "x": 1}]},
            "path_mappings[0].x",
        ),
    ],
)
def test_unknown_and_wrong_fields_inside_are_named(params, body: dict, field: str):
    with pytest.raises(RelayError) as caught:
        convert(params, {"session_id": "s"}, {}, body)
    assert [problem.field for problem in caught.value.details["errors"]] == [field]
