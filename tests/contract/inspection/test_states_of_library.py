"""Safe values tell the states of locks, queues, futures and tasks; nothing of the program runs."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.kit.client import Client
from tests.kit.relay import eventually
from tests.kit.running import Running

pytestmark = pytest.mark.one_python

PROGRAM = """
    import asyncio, concurrent.futures, multiprocessing, queue, threading, time

    ran, armed = [], []

    def telling(base, name):
        def method(self, *args, **named):
            if armed:
                ran.append(name)
            return getattr(base, name)(self, *args, **named)
        return method

    def overridden(base, *names):
        made = {name: telling(base, name) for name in names}
        return type("My" + base.__name__, (base,), made)

    MyEvent = overridden(threading.Event, "is_set", "__repr__")
    MyQueue = overridden(queue.Queue, "qsize", "__repr__")
    MySimple = overridden(queue.SimpleQueue, "qsize", "__repr__")
    MyFuture = overridden(concurrent.futures.Future, "done", "result", "__repr__")
    MyAsync = overridden(asyncio.Future, "done", "result", "exception", "__repr__")
    MyRLock = overridden(type(threading.RLock()), "__repr__")

    class Worker(threading.Thread):
        def __init__(self, jobs):
            super().__init__(name="worker", daemon=True)
            self.jobs = jobs

        def __repr__(self):
            ran.append("worker")
            return "worker"

    async def fetch(page):
        await asyncio.sleep(3600)

    def work(n):
        free, taken = threading.Lock(), threading.Lock()
        taken.acquire()
        owned, mine = threading.RLock(), MyRLock()
        owned.acquire()
        owned.acquire()
        event, my_event = threading.Event(), MyEvent()
        my_event.set()
        left = threading.BoundedSemaphore(3)
        condition = threading.Condition(taken)
        barrier = threading.Barrier(2)
        jobs, my_jobs, simple = queue.Queue(10), MyQueue(), MySimple()
        jobs.put("a")
        my_jobs.put(1)
        simple.put(1)
        pending, done = MyFuture(), MyFuture()
        done.set_result([n])
        loop = asyncio.new_event_loop()
        failed, waits = MyAsync(loop=loop), loop.create_future()
        failed.set_exception(ValueError("no"))
        task = loop.create_task(fetch(1))
        worker = Worker(jobs)
        process_lock = multiprocessing.Lock()
        armed.append(1)
        n += 1  # @line
        armed.clear()
        failed.exception()
        task.cancel()
        loop.run_until_complete(asyncio.wait([task]))
        loop.close()
        return n

    print("up", flush=True)
    n = 0
    while True:
        n = work(n)
        time.sleep(0.02)
"""
EXPECTED = {
    "free": "<unlocked _thread.lock at 0x_>",
    "taken": "<locked _thread.lock at 0x_>",
    "owned": "<locked _thread.RLock by MainThread 2 times at 0x_>",
    "mine": "<unlocked __main__.MyRLock at 0x_>",
    "event": "<threading.Event not set at 0x_>",
    "my_event": "<__main__.MyEvent set at 0x_>",
    "left": "<threading.BoundedSemaphore 3 left at 0x_>",
    "condition": "<threading.Condition with <locked _thread.lock at 0x_> at 0x_>",
    "barrier": "<threading.Barrier 0 of 2 waiting at 0x_>",
    "jobs": "<queue.Queue 1 of 10 items 1 unfinished deque(['a']) at 0x_>",
    "my_jobs": "<__main__.MyQueue 1 item 1 unfinished deque([1]) at 0x_>",
    "simple": "<__main__.MySimpleQueue 1 item at 0x_>",
    "pending": "<__main__.MyFuture pending at 0x_>",
    "done": "<__main__.MyFuture done result=[0] at 0x_>",
    "failed": "<__main__.MyFuture done raised ValueError('no') at 0x_>",
    "waits": "<asyncio.Future pending at 0x_>",
    "process_lock": "<multiprocessing.Lock unlocked, value 1 at 0x_>",
}


def test_states_are_shown_and_nothing_runs(
    relay: Client, start: Callable[..., Running], python: str
) -> None:
    running = start(PROGRAM, python=python)
    with relay.session() as session:
        session.post("/attach", {"pid": running.pid, "connect_timeout": 30}).ok()
        session.break_at(running.program, running.program["line"])
        eventually(lambda: session.status()["status"] == "paused")
        shown = {
            name: re.sub(r"result=\[\d+\]", "result=[0]", re.sub(r"0x[0-9a-f]+", "0x_", value))
            for name, value in session.locals().items()
        }
        assert {name: shown[name] for name in EXPECTED} == EXPECTED
        assert re.fullmatch(
            r"<asyncio.Task Task-\d+ pending <coroutine fetch at program.py:\d+, not started> "
            r"at 0x_>",
            shown["task"],
        )
        assert shown["worker"] == (
            "<__main__.Worker 'worker' not started daemon at 0x_ jobs=<queue.Queue 1 of 10 items "
            "1 unfinished deque(['a']) at 0x_>>"
        )
        assert session.value("ran") == "[]"
