"""What an agent pays: seven jobs, each solved by the calls of its recipe in `/llms.txt`.

A recipe is sent as it stands there; only files, pids and the names of sessions are others. The
answers must hold the cause of the fault, and may cost no more than the guide promises.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from debug_relay.protocol.docs.llms import llms_text
from tests.kit.client import Client
from tests.kit.relay import eventually

PROGRAMS = Path(__file__).parent / "programs"
CALLS, CHARACTERS = 3, 1500  # one job, in text
ALL_CALLS, ALL_CHARACTERS, ALL_JSON = 12, 6000, 20_000  # the seven jobs together
_CALL = re.compile(r"^(GET|POST|DELETE) (/\S*)(?: (\{.*\}))?$", re.MULTILINE)


@dataclass
class Job:
    recipe: int  # the number in /llms.txt
    program: str
    facts: list[str]  # what the answers must hold
    words: dict[str, str] = field(default_factory=dict)  # what the recipe says otherwise
    runs: bool = False  # the program is running already


JOBS = {
    "a test fails": Job(1, "check_shop.py", ["assert 0.0 == 24", "paid", "test_a_basket"]),
    "a wrong value at the nth time": Job(
        2,
        "nth.py",
        ["n = 873", "amount = nan"],
        {"n == 873": "amount != amount"},
    ),
    "a server hangs": Job(
        3, "deadlock.py", ["ann-to-bob", "bob-to-ann", "transfer", "deadlock: "], runs=True
    ),
    "a swallowed exception in a pool": Job(4, "pool.py", ["ValueError", "'9;3'", "parse"]),
    "who corrupts an attribute": Job(5, "corrupted.py", ["monthly", "120", "124"]),
    "an asyncio task never ends": Job(
        6, "crawler.py", ["consumer", "producers = 2", "ended = 1", "queue pages"]
    ),
    "100 % CPU": Job(
        7, "spinning.py", ["next_port", "position = ", "has the interpreter"], runs=True
    ),
}


def recipe(number: int) -> str:
    page = llms_text("http://127.0.0.1:5679/api/v1")
    section = page.partition(f"## {number}. ")[2].partition("\n## ")[0]
    assert section, f"there is no recipe {number}"
    return section


class Agent:
    """Solves one job, and counts what it pays."""

    def __init__(self, relay: Client, job: Job, folder: Path, format: str) -> None:
        self.relay, self.job, self.folder, self.format = relay, job, folder, format
        self.calls = self.characters = 0
        self.seen = ""

    def solve(self) -> None:
        if not self.job.runs:
            self._follow(None)
            return
        script = str(self.folder / self.job.program)
        with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE) as running:
            try:
                assert running.stdout is not None
                assert running.stdout.readline()  # it is where it hangs
                eventually(lambda: len(list(Path(f"/proc/{running.pid}/task").iterdir())) > 2)
                self._follow(running.pid)
            finally:
                running.kill()

    def _follow(self, pid: int | None) -> None:
        for verb, path, body in self._sent(pid):
            answer = self.relay.call(verb, path, body, within=100)
            assert answer.status < 300, answer.raw.decode()
            self.calls += 1
            self.characters += len(answer.raw.decode())
            self.seen += answer.raw.decode()

    def _sent(self, pid: int | None) -> Iterator[tuple[str, str, Any]]:
        text = recipe(self.job.recipe)
        words = {
            "/app/main.py": str(self.folder / self.job.program),
            "tests/test_shop.py": self.job.program,
            '"/app"': f'"{self.folder}", "python_path": "{sys.executable}"',
            "PID": str(pid),
            **self.job.words,
        }
        for before, after in words.items():
            text = text.replace(before, after)
        text = re.sub(r"\bhang\b", f"hang-{pid}", text)
        for verb, path, body in _CALL.findall(text):
            sent = json.loads(body or "null")
            if isinstance(sent, dict) and "pid" in sent:
                sent["connect_timeout"] = 60  # on a busy machine
            yield verb, f"{path}{'&' if '?' in path else '?'}format={self.format}", sent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The programs, away from the configuration of this repository's own tests."""
    return Path(shutil.copytree(PROGRAMS, tmp_path / "programs"))


def test_the_page_is_short_and_each_recipe_has_a_call(relay: Client) -> None:
    page = relay.get("/llms.txt")
    assert page.status == 200
    assert len(page.raw.decode()) <= 5000
    assert relay.url in page.raw.decode()
    assert all(_CALL.search(recipe(number)) for number in range(1, 9))
    index = relay.get("/", format="text").raw.decode()
    assert "/llms.txt" in index
    assert len(index) < 1000
    lost = relay.post("/attach", {"pid": 1}).refused("NOT_FOUND", 404)
    assert "/llms.txt" in lost["details"]["suggestion"]
    helped = relay.get("/help").refused("NOT_FOUND", 404)
    assert helped["details"]["closest"].endswith("/llms.txt")


@pytest.mark.long
def test_seven_jobs(relay: Client, folder: Path) -> None:
    paid: dict[str, dict[str, Agent]] = {}
    for name, job in JOBS.items():
        paid[name] = {}
        for format in ("text", "json"):
            agent = paid[name][format] = Agent(relay, job, folder, format)
            agent.solve()
            shown = agent.seen if format == "text" else agent.seen.replace('\\"', '"')
            facts = job.facts if format == "text" else [job.facts[0].partition(" = ")[0]]
            for fact in facts:
                assert fact in shown, f"{name}, {format}: {fact!r} is not in:\n{agent.seen}"
    for name, by_format in paid.items():
        text, in_json = by_format["text"], by_format["json"]
        print(f"| {name} | {text.calls} | {text.characters} | {in_json.characters} |")
        assert text.calls <= CALLS, name
        assert text.characters <= CHARACTERS, text.seen
    texts = [one["text"] for one in paid.values()]
    assert sum(one.calls for one in texts) <= ALL_CALLS
    assert sum(one.characters for one in texts) <= ALL_CHARACTERS
    assert sum(one["json"].characters for one in paid.values()) <= ALL_JSON


def test_a_crash(relay: Client, folder: Path) -> None:
    (folder / "main.py").write_text("def half(n):\n    return n / 2\n\n\nhalf('x')\n")
    agent = Agent(relay, Job(8, "main.py", []), folder, "text")
    agent.solve()
    assert "exit code 1" in agent.seen
    assert "n: str = 'x'" in agent.seen
    assert agent.seen.count("return n / 2") == 0  # the frames tell the traceback
    assert agent.characters < 500
