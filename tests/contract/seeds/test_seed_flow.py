"""The basic bash session that the API's users were promised, as they would type it.

The flow of the API document's §8.1 in our own words; where the document itself is at hand, its
block is run too, with nothing changed but paths and port.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.client import Client
from tests.kit.documented_flows import bash, documented, needs_document, needs_tools
from tests.kit.source import Source

PROGRAM = """
    import argparse
    import csv


    def load(path):
        with open(path, newline="") as file:
            return list(csv.DictReader(file))


    def total(data):
        result = 0
        for row in data:
            result += int(row["amount"])
        return result


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--input", required=True)
        options = parser.parse_args()
        data = load(options.input)
        # line 25 has to be the one that processes


        amount = total(data)
        print("total", amount)


    main()
"""

FLOW = """
set -eu
SESSION=$(curl -s -X POST "$BASE_URL/sessions" -H "Content-Type: application/json" \\
  -d '{"name": "flow", "project_root": "'"$PROJECT"'"}')
ID=$(echo "$SESSION" | jq -r .data.session_id)
curl -s -X POST "$BASE_URL/sessions/$ID/breakpoints" -H "Content-Type: application/json" \\
  -d '{"breakpoints": [{"source": {"path": "'"$PROJECT"'/main.py"}, "line": 25}]}' \\
  | jq -e '.data.breakpoints[0].verified'
curl -s -X POST "$BASE_URL/sessions/$ID/launch" -H "Content-Type: application/json" \\
  -d '{"script": "'"$PROJECT"'/main.py", "args": ["--input", "data.csv"], "cwd": "'"$PROJECT"'"}' \\
  | jq -r .data.status
while [ "$(curl -s "$BASE_URL/sessions/$ID" | jq -r .data.status)" != paused ]; do sleep 0.05; done
curl -s "$BASE_URL/sessions/$ID" | jq -c '.data.current_location | [.line, .function]'
curl -s "$BASE_URL/sessions/$ID/stacktrace" | jq -c '[.data.frames[].name]'
REF=$(curl -s "$BASE_URL/sessions/$ID/scopes?frame_id=0" \\
  | jq -r '.data.scopes[0].variables_reference')
curl -s "$BASE_URL/sessions/$ID/variables?variables_reference=$REF" \\
  | jq -c '[.data.variables[].name]'
curl -s -X POST "$BASE_URL/sessions/$ID/evaluate" -H "Content-Type: application/json" \\
  -d '{"expression": "len(data)"}' | jq -r .data.result
curl -s -X POST "$BASE_URL/sessions/$ID/step-over" | jq -c '.data.current_location.line'
curl -s -X POST "$BASE_URL/sessions/$ID/continue" | jq -r .success
while [ "$(curl -s "$BASE_URL/sessions/$ID" | jq -r .data.status)" != terminated ]
do sleep 0.05; done
curl -s "$BASE_URL/sessions/$ID/output" | jq -c '[.data.entries[].output]'
curl -s -X DELETE "$BASE_URL/sessions/$ID" | jq -c '.data.deleted'
"""


@pytest.fixture
def project(source: Callable[..., Source], tmp_path: Path) -> Path:
    program = source(PROGRAM, "main.py")
    assert program.text.splitlines()[24].strip() == "amount = total(data)"
    (tmp_path / "data.csv").write_text("name,amount\na,1\nb,41\n")
    return tmp_path


@needs_tools
def test_the_basic_flow(relay: Client, project: Path) -> None:
    said = bash(FLOW, BASE_URL=relay.url, PROJECT=str(project)).splitlines()
    assert said[0] == "true"
    assert said[1] in ("running", "paused")
    assert said[2:] == [
        '[25,"main"]',
        '["main","<module>"]',
        '["data","options","parser"]',
        "2",
        "26",
        "true",
        '["total 42\\n"]',
        "true",
    ]


@needs_tools
@needs_document
def test_the_documents_own_flow(relay: Client, project: Path) -> None:
    said = bash(documented("8.1 Basic Debug Session", "bash", relay.url, project))
    assert "Paused!" in said
    assert "Program terminated" in said
    assert '"output": "total 42\\n"' in said
    assert '"deleted": true' in said
