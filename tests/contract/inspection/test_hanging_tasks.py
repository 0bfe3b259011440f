"""One hang of asyncio, one call: what each task waits for, through what it awaits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.running import Running
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

PROGRAM = """
    import asyncio, threading, time

    class Index:
        def __init__(self):
            self.lock = asyncio.Lock()
            self.pages = asyncio.Queue(4)

    never = threading.Event()

    async def holds(index, page):
        async with index.lock:
            await index.pages.join()

    async def wants(index, page):
        async with index.lock:  # @wants
            pass

    async def gets(index, url):
        return await index.pages.get()

    async def inner(index):
        return await gets(index, "http://")

    async def chained(tasks):
        await tasks[0]

    async def left(other, lock, mine):
        async with mine:
            await asyncio.sleep(0.01)
            async with lock:
                pass

    def blocking(seconds):
        never.wait(seconds)

    async def threaded(loop):
        await loop.run_in_executor(None, blocking, 3600)

    async def waits(future):
        await future

    async def naps(n):
        await asyncio.sleep(3600)

    async def main():
        loop, index, tasks = asyncio.get_running_loop(), Index(), {}
        def start(name, coroutine):
            tasks[name] = loop.create_task(coroutine, name=name)
            return tasks[name]
        index.pages._unfinished_tasks = 2
        index.pages._finished.clear()
        start("holds", holds(index, 1))
        await asyncio.sleep(0.01)
        start("wants", wants(index, 2))
        got = start("inner", inner(index))
        start("chained", chained([got]))
        one, two = asyncio.Lock(), asyncio.Lock()
        start("left", left(None, two, one))
        start("right", left(None, one, two))
        start("threaded", threaded(loop))
        start("waits", waits(loop.create_future()))
        for n in range(5):
            start(f"nap-{n}", naps(n))
        await asyncio.sleep(0.1)
        print("up", flush=True)
        await asyncio.gather(*tasks.values())

    asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["attach", "launch"])
def test_tasks_that_hang(
    relay: Client,
    start: Callable[..., Running],
    source: Callable[..., Source],
    python: str,
    how: str,
) -> None:
    with relay.session(python_path=python) as session:
        if how == "attach":
            running = start(PROGRAM, python=python)
            session.post("/attach", {"pid": running.pid, "connect_timeout": 30}).ok()
        else:
            session.launch(source(PROGRAM), wait=0)
            eventually(lambda: session.printed().startswith("up"))
        check(session)


def check(session: Session) -> None:
    answer = session.get("/tasks", locals="true").ok()
    told = {task["name"]: task for task in answer["tasks"]}
    waits = {name: task["waits_for"] for name, task in told.items() if "waits_for" in task}
    assert (waits["holds"]["kind"], waits["holds"]["what"]) == ("queue", "index.pages")
    assert waits["holds"]["doing"] == "join"
    assert "2 unfinished" in waits["holds"]["value"]
    assert (waits["wants"]["kind"], waits["wants"]["what"]) == ("lock", "index.lock")
    assert waits["wants"]["value"].startswith("<locked asyncio.Lock 1 waiting at 0x")
    (holder,) = waits["wants"]["held_by"]
    assert (holder["task"], holder["how"]) == ("holds", "holds it")
    assert (waits["inner"]["kind"], waits["inner"]["what"]) == ("queue", "index.pages")
    assert [frame["name"] for frame in told["inner"]["frames"]] == ["inner", "gets"]
    assert told["inner"]["frames"][1]["locals"][1] == {
        "name": "url",
        "type": "str",
        "value": "'http://'",
    }
    assert waits["chained"]["kind"] == "task"
    assert waits["chained"]["held_by"][0]["task"] == "inner"
    assert [sorted(circle) for circle in answer["deadlocks"]] == [["left", "right"]]
    assert waits["threaded"]["kind"] == "future"
    assert waits["threaded"]["held_by"][0]["location"]["function"] == "blocking"
    assert (waits["waits"]["kind"], waits["waits"]["what"]) == ("future", "future")
    assert (waits["nap-1"]["kind"], waits["nap-1"]["value"]) == ("sleep", "3600")
    text = session.get("/tasks", locals="true", format="text").raw.decode()
    assert "4 tasks are at the same place: nap-1, nap-2, nap-3, nap-4" in text
    brief = session.get("/tasks", format="text").raw.decode()
    assert "4 tasks are at the same place: nap-1, nap-2, nap-3, nap-4" in brief
    assert "/asyncio/" not in brief  # their own frames tell where they are
    assert "deadlock: " in text


BLOCKED = """
    import asyncio, threading

    lock = threading.Lock()

    def holds():
        with lock:
            threading.Event().wait()

    async def handler(n):
        with lock:  # @blocks
            pass

    async def main():
        threading.Thread(target=holds, name="other", daemon=True).start()
        await asyncio.sleep(0.2)
        print("up", flush=True)
        await asyncio.get_running_loop().create_task(handler(1))

    asyncio.run(main())
"""


def test_a_task_that_blocks_its_loop(
    relay: Client, start: Callable[..., Running], python: str
) -> None:
    running = start(BLOCKED, python=python)
    with relay.session(python_path=python) as session:
        session.post("/attach", {"pid": running.pid, "connect_timeout": 30}).ok()
        (task,) = [
            one
            for one in session.get("/tasks", locals="true").ok()["tasks"]
            if one["coroutine"] == "handler"
        ]
        assert task["current"] is True
        wait = task["waits_for"]
        assert (wait["kind"], wait["what"]) == ("lock", "lock")
        assert [one["how"] for one in wait["held_by"]] == ["holds it", "runs it"]
        assert wait["held_by"][0]["location"]["function"] == "holds"
        text = session.get("/tasks", locals="true", format="text").raw.decode()
        assert ": waits for lock lock <locked _thread.lock" in text
        assert "runs it" in text
