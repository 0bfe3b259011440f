"""The further sessions that the API's users were promised: conditions, exceptions, many files.

The flows of the API document's §8.2 to §8.5 in our own words; where the document itself is at
hand, its blocks are run too, with nothing changed but paths and port.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.kit.client import Client, Session
from tests.kit.documented_flows import at_lines, bash, documented, needs_document, needs_tools, run

PROCESSOR = at_lines(
    {
        1: "class Item:\n    size = 2",
        4: "    def __init__(self, name):\n        self.name = name",
        38: "def main():\n    items = []\n    total = 0",
        41: "    for number in range(102):",
        42: '        items.append(Item(f"item-{number}"))',
        44: "    for i, item in enumerate(items):",
        45: "        total += item.size",
        47: "    for i, item in enumerate(items[:3]):",
        48: "        total += 1",
        50: '    print("total", total)\n\n\nmain()',
    }
)

BUGGY = """\
def parse(problematic_var):
    return int(problematic_var)


def main():
    for text in ("1", "two"):
        print(parse(text), flush=True)


main()
"""

MANY_FILES = {
    "main.py": at_lines(
        {
            1: "from models.data import Data\nfrom utils.helpers import double",
            13: "def main():\n    data = Data(20)",
            15: "    result = double(data)",
            16: '    print("result", result)',
            19: "main()",
        }
    ),
    "utils/__init__.py": "",
    "utils/helpers.py": at_lines({40: "def double(data):", 42: "    return data.times(2)"}),
    "models/__init__.py": "",
    "models/data.py": at_lines(
        {
            1: "class Data:\n    def __init__(self, value):\n        self.value = value",
            76: "    def times(self, factor):",
            78: "        return self.value * factor",
        }
    ),
}

VERBOSE = at_lines(
    {
        1: "import argparse",
        4: "def load():\n    return [3, 4, 5]",
        18: "def main():\n    parser = argparse.ArgumentParser()",
        20: '    parser.add_argument("--verbose", action="store_true")',
        21: "    options = parser.parse_args()",
        22: "    data = load()",
        25: "    total = sum(data)",
        26: '    print("total", total if options.verbose else "")',
        29: "main()",
    }
)

CONDITIONS = """
set -eu
post() { curl -s -X POST "$BASE_URL/$1" -H "Content-Type: application/json" -d "$2"; }
ID=$(post sessions '{"name": "conditions"}' | jq -r .data.session_id)
FILE="$PROJECT/processor.py"
post "sessions/$ID/breakpoints" \\
  '{"breakpoints": [{"source": {"path": "'"$FILE"'"}, "line": 42,
   "condition": "len(items) > 100"}]}'
post "sessions/$ID/breakpoints" \\
  '{"breakpoints": [{"source": {"path": "'"$FILE"'"}, "line": 45, "hit_condition": "== 50"}]}'
post "sessions/$ID/breakpoints" '{"breakpoints": [{"source": {"path": "'"$FILE"'"}, "line": 48,
   "log_message": "Processing item {i}: {item.name}"}]}'
post "sessions/$ID/launch" '{"script": "'"$FILE"'"}'
"""

EXCEPTION = """
set -eu
post() { curl -s -X POST "$BASE_URL/$1" -H "Content-Type: application/json" -d "$2"; }
ID=$(post sessions '{"name": "exception"}' | jq -r .data.session_id)
post "sessions/$ID/launch" \\
  '{"script": "'"$PROJECT"'/buggy_script.py", "stop_on_exception": true, "wait": 20}' \\
  | jq -r '.data.stop_reason'
curl -s "$BASE_URL/sessions/$ID" | jq -r '.data.exception.type'
curl -s "$BASE_URL/sessions/$ID/stacktrace" | jq -c '[.data.frames[].name]'
REF=$(curl -s "$BASE_URL/sessions/$ID/scopes?frame_id=0" | jq '.data.scopes[0].variables_reference')
curl -s "$BASE_URL/sessions/$ID/variables?variables_reference=$REF" \\
  | jq -c '.data.variables[] | [.name, .value]'
post "sessions/$ID/evaluate" '{"expression": "type(problematic_var)"}' | jq -r .data.result
post "sessions/$ID/evaluate" '{"expression": "repr(problematic_var)"}' | jq -r .data.result
curl -s -X DELETE "$BASE_URL/sessions/$ID" | jq .data.deleted
"""

WHEN_PAUSED = """
while [ "$(curl -s "$BASE_URL/sessions/$SESSION_ID" | jq -r .data.status)" != paused ]; do
  sleep 0.05
done
"""

FILES = (
    """
set -eu
post() { curl -s -X POST "$BASE_URL/$1" -H "Content-Type: application/json" -d "$2"; }
SESSION_ID=$(post sessions '{"name": "files", "project_root": "'"$PROJECT"'"}' \\
  | jq -r .data.session_id)
post "sessions/$SESSION_ID/breakpoints" '{"breakpoints": [
   {"source": {"path": "main.py"}, "line": 15},
   {"source": {"path": "utils/helpers.py"}, "line": 42},
   {"source": {"path": "models/data.py"}, "line": 78}]}' >/dev/null
post "sessions/$SESSION_ID/launch" '{"script": "main.py", "cwd": "'"$PROJECT"'"}' >/dev/null
"""
    + WHEN_PAUSED
    + """
curl -s "$BASE_URL/sessions/$SESSION_ID/stacktrace?levels=20" | jq -c '.data.frames[].source.path'
post "sessions/$SESSION_ID/step-into" '{}' | jq -c .data.current_location.line
post "sessions/$SESSION_ID/continue" '{}' >/dev/null
"""
)

CLIENT = """
import sys

import requests

url, project = sys.argv[1:]


def call(method, path, **sent):
    answer = requests.request(method, url + path, timeout=30, **sent).json()
    assert answer["success"], answer["error"]
    return answer["data"]


session = call("POST", "/sessions", json={"name": "client", "project_root": project})
base = "/sessions/" + session["session_id"]
cursor = call("GET", base + "/events")["next_cursor"]
call("POST", base + "/breakpoints", json={
    "breakpoints": [{"source": {"path": project + "/main.py"}, "line": 25}]
})
call("POST", base + "/launch", json={
    "script": project + "/main.py", "args": ["--verbose"], "stop_on_exception": True, "wait": 20
})
session = call("GET", base)
print("at", session["current_location"]["line"])
for frame in call("GET", base + "/stacktrace")["frames"]:
    print("frame", frame["name"], frame["line"])
for scope in call("GET", base + "/scopes", params={"frame_id": 0})["scopes"]:
    if scope["name"] == "Locals":
        reference = {"variables_reference": scope["variables_reference"]}
        for entry in call("GET", base + "/variables", params=reference)["variables"]:
            print("local", entry["name"], entry["value"], entry["type"])
print("value", call("POST", base + "/evaluate", json={"expression": "len(data) * 2"})["result"])
print("end", call("POST", base + "/continue", json={"wait": 20})["status"])
page = call("GET", base + "/events", params={"cursor": cursor, "timeout": 5})
print("events", sorted({event["type"] for event in page["events"]} & {"stopped", "terminated"}))
print("said", call("GET", base + "/output")["entries"][-1]["output"].strip())
print("deleted", call("DELETE", base)["deleted"])
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def the_only_session(relay: Client) -> Session:
    """The one that a script has made and left."""
    [item] = relay.get("/sessions").ok()["items"]
    return Session(relay, item["session_id"])


def stop_of(session: Session) -> int:
    """The line of the first stop, also when it came after the launch's reply."""
    [stopped] = session.events("stopped", timeout=20)
    assert stopped["body"]["reason"] == "breakpoint"
    return session.line()


def conditions_hold(relay: Client) -> None:
    session = the_only_session(relay)
    assert stop_of(session) == 42
    assert session.value("len(items)") == "101"
    assert session.resume()["current_location"]["line"] == 45
    assert session.value("i") == "49"
    assert session.resume()["status"] == "terminated"
    assert session.printed("stdout") == "total 207\n"
    logged = session.printed("console").splitlines()
    assert logged == [f"Processing item {i}: item-{i}" for i in range(3)]
    ids = [one["id"] for one in session.get("/breakpoints").ok()["breakpoints"]]
    assert ids == ["bp_1", "bp_2", "bp_3"]


@needs_tools
def test_conditions(relay: Client, project: Path) -> None:
    write(project, {"processor.py": PROCESSOR})
    bash(CONDITIONS, BASE_URL=relay.url, PROJECT=str(project))
    conditions_hold(relay)


@needs_tools
@needs_document
def test_the_documents_conditions(relay: Client, project: Path) -> None:
    write(project, {"processor.py": PROCESSOR})
    bash(documented("8.2 Conditional Breakpoint Debugging", "bash", relay.url, project))
    conditions_hold(relay)


@needs_tools
def test_an_exception(relay: Client, project: Path) -> None:
    write(project, {"buggy_script.py": BUGGY})
    said = bash(EXCEPTION, BASE_URL=relay.url, PROJECT=str(project)).splitlines()
    assert said == [
        "exception",
        "ValueError",
        '["parse","main","<module>"]',
        '["problematic_var","\'two\'"]',
        "<class 'str'>",
        "\"'two'\"",
        "true",
    ]


@needs_tools
@needs_document
def test_the_documents_exception(relay: Client, project: Path) -> None:
    write(project, {"buggy_script.py": BUGGY})
    said = bash(documented("8.3 Exception Debugging", "bash", relay.url, project))
    assert "=== Exception caught! ===" in said
    assert '"type": "ValueError"' in said
    crash = said.split("=== Variables at crash ===")[1]
    assert '"name": "problematic_var"' in crash
    diagnosis = said.split("=== Diagnosing cause ===")[1]
    assert "<class 'str'>" in diagnosis
    assert "'two'" in diagnosis
    assert '"deleted":true' in said.replace(" ", "")
    assert relay.get("/sessions").ok()["total"] == 0


def many_files_hold(relay: Client, project: Path) -> None:
    session = the_only_session(relay)
    end = session.get("/events", limit=1000).ok()
    stops = sum(event["type"] == "stopped" for event in end["events"])
    if stops < 3:
        session.events("stopped", cursor=end["next_cursor"], timeout=20)
    shown = session.status()["current_location"]
    assert (shown["path"], shown["line"]) == (str(project / "models/data.py"), 78)
    frames = session.get("/stacktrace").ok()["frames"]
    assert [Path(frame["source"]["path"]).name for frame in frames] == [
        "data.py",
        "helpers.py",
        "main.py",
        "main.py",
    ]
    assert session.resume()["exit_code"] == 0
    assert session.printed("stdout") == "result 40\n"


@needs_tools
def test_many_files(relay: Client, project: Path) -> None:
    write(project, MANY_FILES)
    said = bash(FILES, BASE_URL=relay.url, PROJECT=str(project)).splitlines()
    assert said[:2] == [f'"{project}/main.py"'] * 2
    assert said[2] == "42"
    many_files_hold(relay, project)


@needs_tools
@needs_document
def test_the_documents_many_files(relay: Client, project: Path) -> None:
    write(project, MANY_FILES)
    script = documented("8.4 Multi-File Debugging", "bash", relay.url, project)
    # The document polls where it says so; how, it shows in §8.1.
    assert script.count("# When paused") == 1
    said = bash(script.replace("# When paused", WHEN_PAUSED + "# When paused"))
    assert f'"file": "{project}/main.py"' in said.split("=== Multi-file stack trace ===")[1]
    assert f'"path":"{project}/utils/helpers.py"' in said.replace(" ", "")
    many_files_hold(relay, project)


def test_a_python_client(relay: Client, project: Path) -> None:
    pytest.importorskip("requests")
    write(project, {"main.py": VERBOSE, "client.py": CLIENT})
    said = run(sys.executable, str(project / "client.py"), relay.url, str(project)).splitlines()
    assert said[:3] == ["at 25", "frame main 25", "frame <module> 29"]
    assert "local data [3, 4, 5] list" in said
    assert said[-5:] == [
        "value 6",
        "end terminated",
        "events ['stopped', 'terminated']",
        "said total 12",
        "deleted True",
    ]


@needs_document
def test_the_documents_python_client(relay: Client, project: Path) -> None:
    pytest.importorskip("requests")
    client = documented("8.5 Python Script Client Example", "python", relay.url, project)
    write(project, {"main.py": VERBOSE, "client.py": client})
    said = run(sys.executable, str(project / "client.py"))
    assert "Set 1 breakpoint(s)" in said
    assert "Paused at: " in said
    assert "Stack trace (2 frames):\n  main at " in said
    assert "  data = [3, 4, 5] (list)\n" in said
    assert "Evaluation result: 6 (int)\n" in said
    assert "Program terminated\nProgram output (1 entries):\n  [stdout] total 12\n" in said
    assert said.endswith("Session cleaned up\n")
    assert relay.get("/sessions").ok()["total"] == 0
