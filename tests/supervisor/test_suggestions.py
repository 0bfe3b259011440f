"""What the relay suggests as calls is said on the command line as commands."""

from __future__ import annotations

import pytest

from debug_relay.protocol.calls import call_of
from debug_relay.supervisor.cli.client.suggestions import in_commands

S = "GET /api/v1/sessions/sess_0a1b2c3d"


@pytest.mark.parametrize(
    ("said", "command"),
    [
        (f"{call_of('session-status')} shows it.", "debug-relay status SESSION shows it."),
        (call_of("restart", "sess_1"), "debug-relay call restart sess_1"),
        (call_of("continue", "sess_1", thread_id=2), "debug-relay continue sess_1 --thread 2"),
        (f"{call_of('delete-session')}?force=true ends", "debug-relay rm SESSION --force ends"),
        (f"{S}/stacktrace?levels=1000", "debug-relay where sess_0a1b2c3d --frames 1000"),
        (f"{S}/snapshot?wait=30", "debug-relay wait sess_0a1b2c3d"),
        (f"{S}/frames/0/variables", "debug-relay locals sess_0a1b2c3d"),
        (f"{S}/frames/2/variables", "debug-relay locals sess_0a1b2c3d --frame 2"),
        (
            f"{S}/frames/0/variables?count=1000",
            "debug-relay call frame-variables sess_0a1b2c3d frame_id=0 count=1000",
        ),
        (
            f"{S}/variables/12?start=100",
            "debug-relay call variables sess_0a1b2c3d variables_reference=12 start=100",
        ),
        (f"{call_of('threads')}?locals=true", "debug-relay call threads SESSION locals=true"),
        (
            f'{call_of("set-exception-breakpoints")} {{"filters": ["raised"]}}, then',
            "debug-relay call set-exception-breakpoints SESSION filters='[\"raised\"]', then",
        ),
        (
            f'{call_of("create-session")} {{"mode": "attach", "pid": 12}}',
            "debug-relay attach 12",
        ),
        (call_of("set-breakpoints", "sess_1"), "debug-relay break sess_1 PLACE"),
        ("GET /api/v1/processes lists them.", "debug-relay ps lists them."),
        # No command makes these: a client does.
        (call_of("stream-output", "sess_1"), call_of("stream-output", "sess_1")),
        ("GET /api/v1/nothing", "GET /api/v1/nothing"),
        # What the program has printed stays as it is.
        (f"| {S}/status", f"| {S}/status"),
    ],
)  # fmt: skip
def test_a_call_is_a_command(said: str, command: str):
    assert in_commands(said) == command


def test_the_rest_of_a_page():
    asked = ("stacktrace", {"session_id": "shop", "levels": 5, "thread_id": None})
    assert (
        in_commands("… more: ?start_frame=5", asked)
        == "… more: debug-relay call stacktrace shop levels=5 start_frame=5"
    )
