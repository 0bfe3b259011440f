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
Unknown fields and paths are refused with the right name. Relative files start at "cwd". Below: VERB
path body, without R.

## 1. A test fails
POST /run {{"module": "pytest", "args": ["-q", "-x", "tests/test_shop.py"], "cwd": "/app", \
"exceptions": {{"filters": ["user_unhandled"]}}}}
The assertion, and your own frames with their locals. "venv" or "python_path" choose the Python.

## 2. A value is wrong at the nth time
POST /run {{"script": "/app/main.py", "trace": {{"at": [{{"file": "/app/main.py", \
"text": "balance += amount", "capture": ["n", "amount", "balance"], "condition": "n == 873"}}]}}}}
A row for each time that the condition holds, before the line runs. "until" instead ends the trace
with the last rows before it became true; "budget": 1500 bounds their characters. What functions get
and return: "at": [{{"function": "Account.fee", "file": "/app/bank.py"}}], "returns": true.

## 3. A process hangs (pid)
POST /sessions {{"name": "hang", "mode": "attach", "pid": PID}}
GET /sessions/hang/threads?locals=true
DELETE /sessions/hang
Each thread: own frames, locals, what it waits for, who holds that; deadlocks. The DELETE detaches.
If an attach is not wanted or not possible: GET processes/PID/stacks?locals=true.

## 4. An exception is swallowed
POST /run {{"script": "/app/main.py", "exceptions": {{"filters": ["raised"]}}}}
The first exception raised in your code, with each frame's locals, in pools and threads too.
"types": ["ValueError"] instead of filters looks for some; "on_stop": "continue" lists all;
"debug_subprocesses": true looks into child processes, too (any run takes it).

## 5. Who changes this
POST /run {{"script": "/app/main.py", "trace": {{"step": {{"files": ["/app/main.py"]}}, \
"capture": ["account.balance"], "when": "changed"}}}}
One row for each change: the line and function that made it, the value before and after. To stop
there instead, with all locals: "breakpoints": [{{"watch": "self.balance", "in": {{"files": \
["/app/main.py"]}}, "condition": "self.balance < 0"}}].

## 6. An asyncio task never ends
POST /run {{"script": "/app/main.py", "timeout": 3}}
At the timeout: threads and pending tasks, with frames, locals and what each waits for. For a
running server as in 3, with GET /sessions/hang/tasks?locals=true.

## 7. 100 % CPU (pid)
GET /processes/PID/stacks?locals=true
The thread that "has the interpreter" is the busy one; ask twice and compare its locals.

## 8. A program crashes
POST /run {{"script": "/app/main.py"}}
Exit code, output, the exception with each frame's locals. "keep_on_exception": true keeps the
session, paused there.

## Step by step
POST /sessions {{"name": "s", "mode": "launch", "script": "/app/main.py", "breakpoints": \
[{{"file": "/app/main.py", "text": "balance += amount", "condition": "n == 873"}}], "wait": 30}}
The reply is the first stop. Breakpoints take line, text or function; condition, hit_condition,
log_message. Then, below /sessions/s:
- POST step-over, step-into, step-out, continue, run-to (with a line); all take "wait"
- POST evaluate {{"expression": "order.lines[0]"}}; GET frames/1/variables; GET variables/REF for a
  "(ref REF)"; GET threads, stacktrace, output?tail=20
- GET snapshot?wait=30 is the next stop, when a reply said "not stopped yet".
- DELETE ends a launched program, and detaches from an attached one, which runs on as before.
GET processes?match=WORDS finds a pid. All operations: {url}/openapi.json (500 kB).
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
