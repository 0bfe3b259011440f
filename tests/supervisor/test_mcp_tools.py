"""What each model reads of the tools, and that the tools say of themselves what is true."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

import pytest

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import ERRORS
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.supervisor.mcp import arguments, tools
from debug_relay.supervisor.mcp.calls import LONGEST_CHARACTERS, Form, bounded
from debug_relay.supervisor.mcp.suggestions import in_tools
from debug_relay.supervisor.mcp.tools import INSTRUCTIONS, TOOLS, perform

MOST_CHARACTERS = 6000


def test_the_tools_cost_little():
    pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    from debug_relay.supervisor.mcp.sdk import listed

    assert 8 <= len(TOOLS) <= 10
    shown = [
        listed(tool).model_dump(by_alias=True, mode="json", exclude_none=True)
        for tool in TOOLS.values()
    ]
    assert len(json.dumps(shown, separators=(",", ":"), ensure_ascii=False)) <= MOST_CHARACTERS
    assert len(INSTRUCTIONS) <= 600
    assert not any("outputSchema" in tool for tool in shown)


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
def test_a_tool_that_only_reads_uses_operations_that_only_read(tool: tools.Tool):
    rows = [OPERATIONS[name] for name in tool.operations]
    assert tool.reads == all(row.safe for row in rows)
    if tool.reads:
        assert {row.scope for row in rows} <= {
            "sessions:read",
            "artifacts:read",
            "processes:attach",
        }
    else:
        assert any("sessions:write" in row.scopes for row in rows)


class Recorded:
    """Answers each operation with nothing, and notes which there were."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data
        self.asked: list[str] = []

    async def reply(
        self, operation: str, fields: Mapping[str, Any], form: Form
    ) -> tuple[int, bytes]:
        self.asked.append(operation)
        known = set(OPERATIONS[operation].params.__struct_fields__)
        assert fields.keys() <= known, (operation, fields.keys() - known)
        if form == "text":
            return 200, b"text\n"
        return 200, json.dumps({"data": self.data.get(operation, {})}).encode()


SESSION = {"session_id": "sess_1a2b3c4d", "status": "paused"}
DATA = {
    "create-session": SESSION,
    "list-sessions": {"items": [SESSION]},
    "session-status": SESSION,
    "events": {"next_cursor": "x"},
    "list-breakpoints": {"breakpoints": [{"id": "bp_1"}]},
}
USES: list[tuple[str, dict[str, Any]]] = [
    ("debug_run", {"script": "a.py", "args": ["x"], "trace": {"at": []}, "exceptions": ["raised"]}),
    ("debug_start", {"module": "m", "breakpoints": [{}], "exceptions": ["raised", "ValueError"]}),
    ("debug_start", {"pid": 1}),
    *(("debug_list", {"what": what, "pid": 1}) for what in ("sessions", "processes", "stacks")),
    ("debug_breakpoints", {"set": [{}], "remove": ["bp_1"], "exceptions": []}),
    ("debug_breakpoints", {"remove": ["all"]}),
    *(
        ("debug_control", {"action": action, "line": 1, "input": "x", "thread_id": 1})
        for action in get_args(arguments.Action)
    ),
    ("debug_wait", {"session": "shop"}),
    *(
        ("debug_inspect", {"what": what, "frame": 1, "start": 1, "limit": 5})
        for what in get_args(get_type_hints(arguments.Inspect)["what"])
    ),
    ("debug_inspect", {"what": "variables", "ref": 1000}),
    ("debug_evaluate", {"expression": "1", "frame": 1, "timeout": 2}),
    ("debug_trace", {"at": [{}], "until": "x", "max_rows": 3, "then": "pause"}),
    ("debug_trace", {"step": "function"}),
    ("debug_end", {"terminate": True}),
]


async def progress(_passed: float, _words: str) -> None:
    pass


@pytest.mark.parametrize(("name", "given"), USES, ids=str)
async def test_a_tool_uses_the_operations_that_it_names(name: str, given: dict[str, Any]):
    calls = Recorded(DATA)
    answer = await perform(name, given, calls, progress)
    assert not answer.failed, answer.text
    assert set(calls.asked) <= set(TOOLS[name].operations)


async def test_a_long_call_tells_its_progress_and_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tools, "_PROGRESS_SECONDS", 0.02)
    monkeypatch.setattr(tools, "_LATE_SECONDS", 1.0)
    monkeypatch.setattr(arguments, "LONGEST_WAIT_SECONDS", 0.0)
    told: list[str] = []

    class Hung(Recorded):
        async def reply(self, *_: Any) -> tuple[int, bytes]:
            await asyncio.sleep(60)
            raise AssertionError

    async def tell(_passed: float, words: str) -> None:
        told.append(words)

    answer = await perform("debug_list", {"what": "sessions"}, Hung({}), tell)
    assert answer.failed
    assert "took too long" in answer.text
    assert len(told) >= 3
    assert "still running" in told[0]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "POST /api/v1/sessions/shop/step-over first",
            "debug_control action=step_over session=shop first",
        ),
        ("GET /api/v1/sessions/{session_id}/status.", "debug_inspect what=stop."),
        (
            "GET /api/v1/sessions/a/events?timeout=3&types=x,y&cursor=Wz-_9.",
            "debug_wait session=a.",
        ),
        ("POST …/input sends it", "debug_control action=input sends it"),
        (
            "GET /api/v1/sessions/s/frames/2/variables?count=9",
            "debug_inspect what=variables session=s frame=2 limit=9",
        ),
        ("DELETE /api/v1/sessions/s?force=true ends", "debug_end session=s force=true ends"),
        (
            'POST /api/v1/sessions {"mode": "attach", "pid": <its new pid>};',
            'debug_start pid="its new pid";',
        ),
        ("| GET /api/v1/sessions", "| GET /api/v1/sessions"),
        ("GET /api/v1/no/such/path", "GET /api/v1/no/such/path"),
        ("PATCH /api/v1/config says", "PATCH /api/v1/config says"),
    ],
)
def test_texts_name_tools(text: str, shown: str):
    assert in_tools(text) == shown


@pytest.mark.parametrize(
    ("suggestion", "shown"),
    [
        ("Wait 9 s. Or call POST /api/v1/sessions/s/lease {\"take_over\": true}, and repeat this "
         "call; GET /api/v1/sessions/s/snapshot?wait=30 waits for the next stop.",
         "Wait 9 s. debug_wait session=s waits for the next stop."),
        ("Connect it to debugger.uri of GET …/status, or by GET …/tunnel. These work: "
         "GET …/output, GET …/resources, POST …/input and POST …/restart.",
         "Connect it to debugger.uri of debug_inspect what=stop. These work: debug_inspect "
         "what=output, debug_control action=input and debug_control action=restart."),
        ("Try again when it runs other code, or with a larger connect_timeout.",
         "Try again when it runs other code."),
        ("GET …/modules lists the files; send frame_id for a frame's own source.",
         "Send frame for a frame's own source."),
        ("GET /api/v1/config says which.",
         "debug_list what=sessions shows what each session does."),
        ("kill -CONT 12 resumes it; then attach.", "kill -CONT 12 resumes it; then attach. Without "
         "a shell on that machine, ask the person who runs it."),
    ],
)  # fmt: skip
def test_a_refusal_suggests_what_a_client_of_tools_can_do(suggestion: str, shown: str):
    assert in_tools(f"error X: y\nnext: {suggestion}") == f"error X: y\nnext: {shown}"


def test_no_suggestion_names_a_path_or_an_argument_that_no_tool_takes():
    said = [row.suggestion for row in ERRORS.values()]
    said += [
        f"{call_of(name)} does it; {call_of(name, 'sess_1')} too."
        for name in OPERATIONS.keys() - {"index"}
    ]
    for suggestion in said:
        shown = in_tools(f"next: {suggestion}")
        assert "/api/" not in shown
        for name, words in re.findall(r"\b(debug_\w+)((?: \w+=[^\s;,.]+)*)", shown):
            given = dict(word.split("=") for word in words.split())
            assert given.keys() <= TOOLS[name].schema["properties"].keys(), shown


def test_answers_are_bounded():
    assert bounded("x" * LONGEST_CHARACTERS) == "x" * LONGEST_CHARACTERS
    cut = bounded("line\n" * LONGEST_CHARACTERS)
    assert len(cut) <= LONGEST_CHARACTERS
    assert "more characters were cut" in cut
