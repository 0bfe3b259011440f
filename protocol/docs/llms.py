"""`/llms.txt`: eight recipes for language models; and what `GET /` says first.

An agent pays for each character that it reads, so the page has at most 5,000. A test runs every
recipe as it stands here, on programs of its own.
"""

from __future__ import annotations

from typing import Final

_PAGE: Final = """# OpenCode Debug Relay: debug Python programs over HTTP

R={url}
Every call takes ?format=text: a third of the characters of JSON, and a reply that ends at a stop
shows the place, the source, the locals and the callers. POST bodies are JSON:
    curl -s "$R/run?format=text" --json '{{"script": "/app/main.py"}}'
Unknown fields and paths are refused with the right name. Below: VERB path body, without R.

## 1. A test fails
POST /run {{"module": "pytest", "args": ["-q", "-x", "tests/test_shop.py"], "cwd": "/app", \
"exceptions": {{"filters": ["user_unhandled"]}}}}
One call: the assertion, the program's frames with their locals, the output.

## 2. A value is wrong at the nth time
POST /run {{"script": "/app/main.py", "trace": {{"at": [{{"file": "/app/main.py", \
"text": "total += price", "capture": ["n", "price", "total"], "condition": "n == 873"}}]}}}}
One row where the condition holds. Without it: the last rows before `until` became true.

## 3. A process hangs (pid)
GET /processes/PID/stacks?locals=true
Every thread: own frames, locals, what it waits for and who holds that. Nothing is stopped.

## 4. An exception is swallowed
POST /run {{"script": "/app/main.py", "exceptions": {{"filters": ["raised"]}}}}
What was raised, where, with the locals, also in threads and pools.

## 5. Who changes this
POST /run {{"script": "/app/main.py", "trace": {{"step": {{"files": ["/app/main.py"]}}, \
"capture": ["self.balance"], "when": "changed"}}}}
One row for each change: line, function, the value before and after.

## 6. An asyncio task never ends
POST /run {{"script": "/app/main.py", "timeout": 3}}
At the timeout: every task with its frames, locals and what it waits for. A running server:
POST /sessions {{"name": "srv", "mode": "attach", "pid": PID}}
GET /sessions/srv/tasks?locals=true
DELETE /sessions/srv

## 7. 100 % CPU (pid)
GET /processes/PID/stacks?locals=true
The busy thread is marked; ask twice and compare the locals. To look deeper:
POST /sessions {{"name": "busy", "mode": "attach", "pid": PID}}
POST /sessions/busy/pause {{}}
POST /sessions/busy/evaluate {{"expression": "len(queue)"}}
DELETE /sessions/busy
An attached program runs on as it was before.

## 8. A program crashes
POST /run {{"script": "/app/main.py", "args": ["--once"]}}
Exit code, output, the exception and each frame's locals. "keep_on_exception": true keeps the
session, paused there.

## Step by step
POST /sessions {{"name": "s", "mode": "launch", "script": "/app/main.py", "breakpoints": \
[{{"file": "/app/main.py", "text": "total += price", "condition": "price < 0"}}], "wait": 30}}
The reply is the first stop. Breakpoints take line, text or function; condition, hit_condition,
log_message. "exceptions": {{"filters": ["uncaught"]}} stops there too. Then, under /sessions/s:
POST /step-over {{}} | /step-into | /step-out | /run-to {{"line": 12}} | /continue {{"wait": 30}}
POST /evaluate {{"expression": "order.lines[0]"}}
GET /frames/1/variables | /variables/REF for a "(ref REF)" | /threads | /output?tail=20
GET /snapshot?wait=30 is the next stop, when a reply said "not stopped yet".
DELETE /sessions/s ends a launched program and detaches from an attached one.
GET /processes?match=WORDS finds a pid. All operations: {url}/openapi.json (500 kB).
"""


def llms_text(url: str) -> str:
    return _PAGE.format(url=url)


def first_calls(url: str) -> list[str]:
    """Three calls for a reader who knows nothing: the recipes, a run, a session."""
    launch = '{"mode": "launch", "script": "/path/to/program.py", "stop_on_entry": true, "wait": 9}'
    return [
        f"curl -s {url}/llms.txt",
        f"curl -s '{url}/run?format=text' --json '{{\"script\": \"/path/to/program.py\"}}'",
        f"curl -s '{url}/sessions?format=text' --json '{launch}'",
    ]


def index_text(version: str, url: str) -> str:
    calls = "\n".join(f"  {call}" for call in first_calls(url))
    return (
        f"OpenCode Debug Relay {version}: debug Python programs over HTTP, at {url}\n"
        "Add ?format=text to any call: it costs a third of JSON, and a reply that ends at a stop\n"
        "shows the place, the source and the locals.\n"
        f"{calls}\n"
        "/llms.txt has eight recipes: a test fails, a wrong value at the nth time, a hang by pid,\n"
        "a swallowed exception, who changes this, asyncio, 100 % CPU, a crash.\n"
        "All operations: /docs in a browser, or /openapi.json (500 kB).\n"
    )
