"""Every recipe of the skill, as it stands, on a program that has the trouble it is for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from debug_relay.supervisor.cli.commands.texts import SKILL
from tests.kit.client import Client
from tests.kit.command import SECONDS, Shell

TEXT = Path(SKILL).read_text(encoding="utf-8")
MOST_LINES = 250
RECIPES = {
    title: (found["script"], found["shows"].splitlines())
    for title, _, body in (part.partition("\n") for part in TEXT.split("\n### ")[1:])
    if (found := re.search(r"```bash\n(?P<script>.*?)```.*?```text\n(?P<shows>.*?)```", body, re.S))
}
FILES = {
    "cart.py": """
        class Cart:
            def __init__(self):
                self.items = []

            def add(self, name, price, count=1):
                self.items.append((name, price, count))

            def total(self):
                return sum(price for name, price, count in self.items)
    """,
    "tests/test_cart.py": """
        from cart import Cart


        def test_total():
            cart = Cart()
            cart.add("tea", 3, 2)
            cart.add("milk", 2)
            assert cart.total() == 8
    """,
    "prices.py": """
        def total(prices):
            amount = 0
            for price in prices:
                amount += price
            return amount


        print(total([7, 2, -30, 4, 5]))
    """,
    "deadlock.py": """
        import threading

        first, second = threading.Lock(), threading.Lock()
        both = threading.Barrier(2)


        def transfer(one, other, amount):
            with one:
                both.wait()
                print("up", flush=True)
                with other:
                    print("moved", amount)


        for one, other, amount in ((first, second, 1), (second, first, 2)):
            threading.Thread(target=transfer, args=(one, other, amount), daemon=True).start()
        threading.Event().wait()
    """,
    "jobs.py": """
        from concurrent.futures import ThreadPoolExecutor


        def load(row):
            return {"id": int(row["id"])}


        def safe(row):
            try:
                return load(row)
            except Exception:
                return None


        with ThreadPoolExecutor() as pool:
            found = list(pool.map(safe, [{"id": "1"}, {"id": "two"}]))
        print([one for one in found if one])
    """,
    "settings.py": """
        settings = {"retries": 3}


        def load(path):
            settings.update({"path": path})


        def tune():
            settings["retries"] = 0


        load("a.ini")
        tune()
        print("retries:", settings["retries"])
    """,
    "feed.py": """
        import asyncio


        async def producer(queue):
            for number in range(3):
                await queue.put(number)


        async def consumer(queue, wanted):
            seen = []
            while len(seen) < wanted:
                seen.append(await queue.get())
            return seen


        async def main():
            queue = asyncio.Queue()
            await asyncio.gather(producer(queue), consumer(queue, 4))


        asyncio.run(main())
    """,
    "spin.py": """
        def settle(value, target):
            steps = 0
            while value != target:
                value += 0.1
                steps += 1
            return steps


        print("up", flush=True)
        print(settle(0, 1))
    """,
    "crash.py": """
        def average(numbers):
            return sum(numbers) / len(numbers)


        def report(groups):
            for name, numbers in groups.items():
                print(name, average(numbers))


        report({"a": [1, 2], "b": []})
    """,
}
RUNNING = {"A hang, by its pid": "deadlock.py", "100 % CPU": "spin.py"}


def test_it_is_short_and_whole(tmp_path: Path):
    assert Shell(tmp_path).ok("skill") == TEXT
    assert len(TEXT.splitlines()) <= MOST_LINES
    assert len(RECIPES) == 8
    assert re.match(r"---\nname: debug-relay\ndescription: .{50,1024}\n---\n", TEXT)


@pytest.mark.parametrize("title", RECIPES)
def test_recipe(title: str, shell: Shell, relay: Client):
    for name, text in FILES.items():
        path = shell.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
    # Most of the time went into plug-ins of these tests' own environment.
    (shell.folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:schemathesis\n")
    script, shows = RECIPES[title]
    bin = os.pathsep.join([f"{sys.prefix}/bin", os.environ["PATH"]])
    env = {**shell.env, "PATH": bin, "PYTHONPATH": str(shell.folder)}
    running = None
    if title in RUNNING:
        running = subprocess.Popen(
            [sys.executable, RUNNING[title]], cwd=shell.folder, stdout=subprocess.PIPE, text=True
        )
        assert running.stdout is not None
        assert running.stdout.readline() == "up\n"
        env["PID"] = str(running.pid)
    try:
        done = subprocess.run(
            ["bash", "-eu", "-c", script],
            cwd=shell.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS * 2,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        at = 0
        for line in shows:
            found = done.stdout.find(line, at)
            assert found >= 0, f"{line!r} is not shown (any more), or earlier:\n{done.stdout}"
            at = found + len(line)
        assert relay.get("/sessions").ok()["items"] == []
    finally:
        if running is not None:
            running.kill()
            running.communicate()
