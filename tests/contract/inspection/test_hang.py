"""One hang, one call: threads that are blocked in C are read from outside."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.running import Running
from tests.kit.source import Source
from tests.meta.documents import block

pytestmark = pytest.mark.one_python

PROGRAM = """
    import concurrent.futures, queue, threading, time

    class Account:
        def __init__(self, name):
            self.name = name
            self.lock = threading.Lock()
            self.guard = threading.RLock()

        def __repr__(self):
            ran.append(self.name)
            return self.name

    class Proxy:
        @property
        def __class__(self):
            ran.append("Proxy")
            raise GeneratorExit

    ran = []
    ann, bob, proxy = Account("ann"), Account("bob"), Proxy()
    first, jobs, event = threading.Barrier(2), queue.Queue(5), threading.Event()

    def transfer(source, target, amount):
        with source.lock:
            first.wait()
            with target.lock:  # @blocked
                target.balance = amount

    def guarded(account):
        with account.guard:
            event.wait()

    def wants(account):
        account.guard.acquire()

    def consumer(limit):
        jobs.get(timeout=3600)

    def slow(n):
        event.wait(timeout=3600)

    def waiter(future):
        return future.result()

    def sleeper(seconds):
        time.sleep(seconds)

    def start(name, function, *args):
        thread = threading.Thread(target=function, name=name, args=args, daemon=True)
        thread.start()
        return thread

    for _ in range(300):
        sleeper(0)  # code that runs often has other instructions on 3.11
    pool = concurrent.futures.ThreadPoolExecutor(1, "pool")
    future = pool.submit(slow, 7)
    one = start("one", transfer, ann, bob, 5)
    two = start("two", transfer, bob, ann, 6)
    start("guarded", guarded, ann)
    while not ran and "owner=0" in repr(ann.guard):
        time.sleep(0.01)
    start("wants", wants, ann)
    start("consumer", consumer, 3)
    start("waiter", waiter, future)
    for _ in range(50):
        sleeper(0)  # from then on, Python runs instructions that are made for its types
    start("sleeper", sleeper, 3600)
    SPIN
    time.sleep(0.2)
    print("up", flush=True)
    one.join()
"""
SPIN = """
    def spin():
        while True:
            time.sleep(0.001)
    start("spin", spin)
"""


def threads_of(session: Session, **query: Any) -> dict[str, Any]:
    listed = session.get("/threads", locals="true", **query).ok()
    return {thread["name"]: thread for thread in listed["threads"]}


def shown(thread: Any, function: str) -> dict[str, str]:
    frame = next(frame for frame in thread["frames"] if frame["name"] == function)
    return {row["name"]: row["value"] for row in frame["locals"]}


@pytest.fixture
def hung(
    relay: Client, start: Callable[..., Running], source: Callable[..., Source], python: str
) -> Callable[..., Session]:
    def begin(how: str, spin: bool = False) -> Session:
        text = PROGRAM.replace("SPIN", SPIN if spin else "")
        session = relay.session(python_path=python)
        if how == "attach":
            running = start(text, python=python)
            session.post("/attach", {"pid": running.pid, "connect_timeout": 30}).ok()
        else:
            program = source(text)
            session.launch(program, wait=0)
            eventually(lambda: session.printed().startswith("up"))
        return session

    return begin


def check_look(session: Session) -> dict[str, Any]:
    answer = session.get("/threads", locals="true").ok()
    told = {thread["name"]: thread for thread in answer["threads"]}
    ids = {name: thread["id"] for name, thread in told.items()}
    one, two = told["one"], told["two"]
    assert one["live"] is True
    assert shown(one, "transfer")["amount"] == "5"
    assert "name='ann'" in shown(one, "transfer")["source"]
    for thread, other in ((one, "two"), (two, "one")):
        wait = thread["waits_for"]
        assert (wait["kind"], wait["what"]) == ("lock", "target.lock")
        assert wait["value"].startswith("<locked _thread.lock at 0x")
        (holder,) = wait["held_by"]
        assert (holder["thread_id"], holder["how"]) == (ids[other], "holds it")
        assert holder["location"]["function"] == "transfer"
    assert [sorted(circle) for circle in answer["deadlocks"]] == [sorted([ids["one"], ids["two"]])]
    guard = told["wants"]["waits_for"]
    assert (guard["kind"], guard["what"]) == ("rlock", "account.guard")
    assert guard["held_by"][0]["name"] == "guarded"
    assert told["guarded"]["waits_for"]["kind"] == "event"
    jobs = told["consumer"]["waits_for"]
    assert (jobs["kind"], jobs["what"], jobs["doing"]) == ("queue", "jobs", "get")
    assert jobs["value"].startswith("<queue.Queue 0 of 5 items at")
    assert told["MainThread"]["waits_for"]["held_by"][0]["name"] == "one"
    future = told["waiter"]["waits_for"]
    assert (future["kind"], future["what"]) == ("future", "future")
    assert future["held_by"][0]["how"] == "computes it"
    assert future["held_by"][0]["name"].startswith("pool")
    assert told["sleeper"]["waits_for"]["kind"] == "sleep"
    return told


def check_frames(session: Session, told: dict[str, Any]) -> None:
    """The frame of a blocked thread: variables, what is inside them, scopes, evaluation."""
    one = told["one"]["id"]
    assert told["one"]["frames"][0]["id"] == 0
    page = session.get("/frames/0/variables", thread_id=one).ok()
    assert page["live"] is True
    rows = {row["name"]: row for row in page["variables"]}
    assert rows["amount"]["value"] == "5"
    inside = session.get(f"/variables/{rows['source']['variables_reference']}").ok()
    parts = {row["name"]: row["value"] for row in inside["variables"]}
    assert parts["name"] == "'ann'"
    assert parts["lock"].startswith("<locked _thread.lock")
    scopes = session.get("/scopes", thread_id=one).ok()["scopes"]
    assert [scope["name"] for scope in scopes] == ["Locals", "Globals"]
    names = session.get(f"/variables/{scopes[1]['variables_reference']}").ok()["variables"]
    assert {"ann", "bob", "jobs"} <= {row["name"] for row in names}
    answer = session.post("/evaluate", {"expression": "source.name * 2", "thread_id": one}).ok()
    assert (answer["result"], answer["live"]) == ("'annann'", True)
    assert "copy" in answer["note"]
    answer = session.post("/hover", {"expression": "source.name", "thread_id": one}).ok()
    assert (answer["result"], answer["live"]) == ("'ann'", True)
    completing = {"text": "source.na", "thread_id": one}
    refused = session.post("/completions", completing).refused("INVALID_SESSION_STATE", 409)
    assert f'{{"thread_id": {one}, "expression": "dir()"}}' in refused["details"]["suggestion"]
    answer = session.post("/evaluate", {"expression": "source.nothing", "thread_id": one}).ok()
    assert "nothing" in answer["error"]
    session.post("/evaluate", {"expression": "1 +", "thread_id": one}).refused("EVALUATE_ERROR")


def any_like(line: str) -> str:
    """A pattern for the line of the guide, whatever its numbers and folders are."""
    return re.sub(r"0x\w+|\d+", r"\\w+", re.sub("(/srv/)?bank", r"\\S+", re.escape(line)))


@pytest.mark.parametrize("how", ["attach", "launch"])
def test_a_deadlock_in_one_call(hung: Callable[..., Session], how: str) -> None:
    with hung(how) as session:
        told = check_look(session)
        check_frames(session, told)
        text = session.get("/threads", locals="true", format="text").raw.decode()
        for line in block("deadlock").splitlines():
            assert re.search(any_like(line), text), (line, text)
        assert max(map(len, text.split("\nthread"))) < 480, text
        if how == "attach":
            pid = told["one"]["pid"]
            stacks = session.client.get(f"/processes/{pid}/stacks", format="text").raw.decode()
            assert "pydevd" not in stacks
            assert "of the debugger left out" in stacks
        # Nothing of the program ran for that.
        ran = session.post("/evaluate", {"expression": "ran", "thread_id": told["one"]["id"]}).ok()
        assert ran["result"] == "[]"


def test_a_deadlock_in_a_paused_program(hung: Callable[..., Session]) -> None:
    with hung("attach", spin=True) as session:
        session.post("/pause", {"wait": 10}).ok()
        told = check_look(session)
        spin = told["spin"]
        assert "live" not in spin
        # Its frames have the numbers by which every other call knows them.
        stack = session.get(f"/threads/{spin['id']}/stacktrace").ok()["frames"]
        numbers = {frame["name"]: frame["id"] for frame in stack}
        assert spin["frames"]
        assert all(numbers[frame["name"]] == frame["id"] for frame in spin["frames"])
        check_frames(session, told)
        assert session.value("1 + 1") == "2"


HOLDERS = """
    import concurrent.futures, os, subprocess, threading, time

    class Pool:
        lock = threading.Lock()

    one, two, three, four, swapped, handed = (threading.Lock() for _ in range(6))
    pools, inner, taken = [threading.Lock()], Pool(), threading.Lock()
    hidden, mine, dead = threading.Lock(), threading.Lock(), threading.RLock()
    locks = [threading.Lock(), threading.Lock()]
    go = threading.Event()

    def start(name, function, *args):
        thread = threading.Thread(target=function, name=name, args=args, daemon=True)
        thread.start()
        return thread

    def rest():
        time.sleep(3600)

    def fails_to_acquire():
        one.acquire(blocking=False) or one.acquire(timeout=0.01)
        rest()

    def may_acquire(wanted=False):
        if wanted:
            one.acquire()
        rest()

    def acquires_if(wanted=True):
        if not two.acquire(timeout=5):
            return
        try:
            rest()
        finally:
            two.release()

    def left():
        with three:
            pass
        try:
            with three:
                1 / 0
        except ZeroDivisionError:
            rest()

    def released():
        with four:
            four.release()
            rest()

    def renames(lock):
        with lock:
            lock = swapped
            rest()

    def replaces():
        with inner.lock:
            inner.lock = swapped
            rest()

    def loops():
        for lock in locks:
            lock.acquire()
        lock = hidden
        rest()

    def hands_on():
        handed.acquire()
        rest()

    def subscripts(index):
        with pools[index]:
            rest()

    def itself():
        with mine:
            with mine:
                pass

    def dies():
        dead.acquire()
        go.wait()

    def wants(lock):
        with lock:
            pass

    for lock in one, three, swapped, hidden, taken:
        lock.acquire()
    def main():
        for function in fails_to_acquire, may_acquire, acquires_if, left, released, replaces:
            start(function.__name__, function)
        start("renames", renames, threading.Lock())
        start("loops", loops)
        start("hands_on", hands_on)
        start("subscripts", subscripts, 0)
        start("itself", itself)
        died = start("died", dies)
        pool = concurrent.futures.ThreadPoolExecutor(2, "pool")
        pool.submit(subprocess.run, ["tail", "-f", "--pid", str(os.getpid()), "/dev/null"])
        pool.submit(pool.submit(pow, 2, 2).result)
        pool.submit(threading.Event().wait)
        time.sleep(0.2)
        four.acquire()
        for name in "one two three four swapped handed hidden dead".split():
            start("wants " + name, wants, globals()[name])
        start("wants pool", wants, pools[0])
        time.sleep(0.2)
        go.set()
        died.join()
    start("main", main).join()
    del lock
    print("up", flush=True)
    rest()
"""


def test_who_holds_a_lock(start: Callable[..., Running], relay: Client, python: str) -> None:
    """Python has no owner of a plain lock: a wrong holder is worse than none."""
    running = start(HOLDERS, python=python)
    with relay.session(python_path=python) as session:
        session.post("/attach", {"pid": running.pid, "connect_timeout": 30}).ok()
        answer = session.get("/threads", locals="true").ok()
        told = {thread["name"]: thread for thread in answer["threads"]}
        holders = {
            name.partition(" ")[2]: [
                (one.get("name"), one["how"]) for one in thread["waits_for"].get("held_by", [])
            ]
            for name, thread in told.items()
            if name.startswith("wants ")
        }
        for unknown in ("one", "three", "four", "swapped", "hidden"):
            assert holders.pop(unknown) == [], unknown
        assert holders == {
            "two": [("acquires_if", "acquired it")],
            "handed": [("hands_on", "acquired it")],
            "dead": [(None, "a thread that has ended holds it")],
            "pool": [("subscripts", "holds it")],
        }
        assert answer["deadlocks"] == [[told["itself"]["id"]]]
        text = session.get("/threads", locals="true", format="text").raw.decode()
        assert "; its holder is not known" in text
        assert "; a thread that has ended holds it" in text
        # What the library's functions run for others hides that they would wait.
        pool = {told[f"pool_{n}"]["waits_for"]["kind"]: told[f"pool_{n}"] for n in range(2)}
        assert sorted(pool) == ["event", "process"]
        process = pool["process"]["waits_for"]
        assert process["value"].startswith("<subprocess.Popen pid ")
        assert "['tail', '-f', " in process["value"]


def test_evaluations_that_hang(hung: Callable[..., Session]) -> None:
    """An evaluation has a thread of its own: one that blocks for ever holds up nothing."""
    with hung("attach") as session:
        one = threads_of(session)["one"]["id"]
        asked = {"thread_id": one, "timeout": 0.5}
        blocks = {"expression": "target.lock.acquire()", **asked}
        for _ in range(3):
            refusal = session.post("/evaluate", blocks).refused("DEBUGPY_TIMEOUT")
            assert refusal["details"]["evaluating"] is True
        session.post("/evaluate", blocks).refused("INVALID_SESSION_STATE")
        assert threads_of(session)["one"]["waits_for"]["what"] == "target.lock"


def test_an_evaluation_that_never_ends(hung: Callable[..., Session]) -> None:
    with hung("launch") as session:
        one = threads_of(session)["one"]["id"]
        asked = {"thread_id": one, "timeout": 0.5}
        loops = {"expression": "while True: amount += 1", **asked}
        refusal = session.post("/evaluate", loops).refused("DEBUGPY_TIMEOUT")
        assert refusal["details"]["evaluating"] is False
        # The loop has counted up a copy.
        assert session.post("/evaluate", {"expression": "amount", **asked}).ok()["result"] == "5"


KEEPS = """
    import ctypes, time

    def keeps(seconds):
        ctypes.PyDLL(None).sleep(seconds)  # without giving the interpreter away

    print("up", flush=True)
    time.sleep(0.5)
    keeps(3600)
"""


def test_c_code_that_keeps_the_interpreter(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    with relay.session(python_path=python) as session:
        pid = session.launch(source(KEEPS), wait=0)["pid"]
        eventually(lambda: session.printed() == "up\n")

        def is_stuck() -> bool:
            stacks = relay.get(f"/processes/{pid}/stacks", locals="true").ok()["threads"]
            return any(frame["name"] == "keeps" for one in stacks for frame in one["frames"])

        eventually(is_stuck)
        answer = session.get("/threads").ok()
        (thread,) = answer["threads"]
        assert (thread["status"], thread["last_known"]) == ("running", True)
        stacks = f"/processes/{pid}/stacks?locals=true"
        assert "keeps the interpreter" in answer["note"]
        assert stacks in answer["note"]
        # One call shows the hang: what the program does not answer is read from its memory.
        seen = session.get("/threads", locals="true").ok()
        (outside,) = seen["outside"]
        (main,) = outside["threads"]
        keeps, module = main["frames"]
        assert (outside["pid"], main["owns_gil"]) == (pid, True)
        assert (keeps["name"], module["name"]) == ("keeps", "<module>")
        assert keeps["locals"] == [{"name": "seconds", "value": "3600"}]
        text = session.get("/threads", locals="true", format="text").raw.decode()
        assert "seconds = 3600" in text
        assert "as last known" not in text
        error = session.get("/stacktrace", thread_id=thread["id"]).refused("DEBUGPY_TIMEOUT")
        assert stacks in error["details"]["suggestion"]
        # A signal that stops the whole process is told apart.
        os.kill(pid, signal.SIGSTOP)
        paused = session.post("/pause", {"wait": 0}).ok()
        assert paused["pause_pending"] is True
        assert f"`kill -CONT {pid}`" in paused["note"]


DROPS = """
    import threading, weakref

    class Held:
        pass

    lasting = weakref.WeakSet()
    go, dropped = threading.Event(), threading.Event()

    def drops():
        held = Held()
        lasting.add(held)
        go.wait()
        held = None
        dropped.set()
        threading.Event().wait()

    thread = threading.Thread(target=drops, name="drops", daemon=True)
    thread.start()
    print("up", flush=True)
    thread.join()
"""


def test_a_look_keeps_nothing_alive(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    with relay.session(python_path=python) as session:
        session.launch(source(DROPS), wait=0)
        eventually(lambda: session.printed() == "up\n")
        drops = threads_of(session)["drops"]["id"]
        page = session.get("/frames/2/variables", thread_id=drops).ok()
        assert [row["name"] for row in page["variables"]] == ["held"]

        def value(expression: str) -> str:
            asked = {"expression": expression, "thread_id": drops, "frame_id": 2}
            return str(session.post("/evaluate", asked).ok()["result"])

        assert value("len(lasting)") == "1"
        assert value("go.set() or dropped.wait(5)") == "True"
        assert value("len(lasting)") == "0"
