"""Programs that somebody else has started, and one that tells all that a debugger may change."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.kit.relay import eventually
from tests.kit.source import Source

WITNESS = """
    import atexit, builtins, faulthandler, gc, json, multiprocessing, os, signal, subprocess, sys
    import threading, time, weakref
    import _posixsubprocess, _thread

    faulthandler.enable()
    gc.disable()  # what lives on is to be seen
    jobs, results = [], []
    beats = [0, 0]
    lasting = weakref.WeakSet()

    class Held(object):
        def __init__(self):
            lasting.add(self)

    def tick(beat):
        held = Held()
        beats[0] = beat  # @main
        return beat

    def tock(beat):
        held = Held()
        beats[1] = beat  # @other
        return beat

    def other():
        beat = 0
        while True:
            beat += 1
            tock(beat)
            time.sleep(0.005)

    def forked():
        pid = os.fork()
        if pid == 0:
            thread = threading.Thread(target=tick, args=(1,))
            thread.start()
            thread.join()
            grand = subprocess.run([sys.executable, "-S", "-c", "raise SystemExit(3)"]).returncode
            os._exit(7 if grand == 3 else 8)
        return os.WEXITSTATUS(os.waitpid(pid, 0)[1])

    def spawned():
        seven = [sys.executable, "-S", "-c", "raise SystemExit(7)"]
        return os.WEXITSTATUS(os.waitpid(os.posix_spawn(seven[0], seven, os.environ), 0)[1])

    def leave():
        os._exit(7)

    def children():
        seven = [sys.executable, "-S", "-c", "raise SystemExit(7)"]
        codes = [subprocess.run(seven).returncode, subprocess.Popen(seven).wait(20)]
        codes += [forked(), spawned()]
        process = multiprocessing.get_context("fork").Process(target=leave)
        process.start()
        process.join(20)
        return codes + [process.exitcode]

    def facts():
        told = {}
        for module in MODULES:
            for name, value in list(vars(module).items()):
                if not name.startswith("__") and name not in PASSING:
                    told[module.__name__ + "." + name] = id(value)
        for name in ("settrace", "setprofile", "excepthook", "breakpointhook", "displayhook"):
            told["sys." + name] = id(getattr(sys, name))
        for name in ("stdin", "stdout", "stderr"):
            told["sys." + name] = id(getattr(sys, name))
        told["paths"] = repr([sys.path, sys.meta_path, sys.path_hooks])
        told["trace"] = repr([sys.gettrace(), getattr(threading, "_trace_hook", None)])
        told["frames"] = repr({frame.f_trace for frame in frames()})
        told["signals"] = repr([signal.getsignal(n) for n in range(1, 64)])
        told["environ"] = sorted(os.environ.items())
        told["threads"] = sorted(thread.name for thread in threading.enumerate())
        for name in ("enumerate", "active_count", "_pickSomeNonDaemonThread"):
            if hasattr(threading, name):
                told[name] = hash(getattr(threading, name).__code__)
        if hasattr(sys, "monitoring"):
            told["tools"] = [sys.monitoring.get_tool(n) for n in range(6)]
        told["recursion limit"] = sys.getrecursionlimit()
        told["switch interval"] = round(sys.getswitchinterval(), 6)
        told["traced threads"] = [traced_threads[n] for n in count]
        return told

    def frames():
        # From 3.10 on a thread that waits is slow alone, until it wakes, and then by one event.
        left_out = [*(one.ident for one in idle), bare] if sys.version_info >= (3, 10) else []
        for ident, frame in sys._current_frames().items():
            while frame is not None and ident not in left_out:
                yield frame
                frame = frame.f_back

    # What CPython 3.8 and 3.9 count for all threads: everything is slower while it is not 0.
    count, traced_threads = [], []
    if sys.version_info < (3, 10):
        import ctypes
        size = 300 if sys.version_info < (3, 9) else 64
        if sys.version_info < (3, 9):
            at = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
        else:
            ctypes.pythonapi.PyInterpreterState_Get.restype = ctypes.c_void_p
            at = ctypes.pythonapi.PyInterpreterState_Get()
        traced_threads = (ctypes.c_int * size).from_address(at)
        before = list(traced_threads)
        sys.settrace(lambda *event: None)
        during = list(traced_threads)
        sys.settrace(None)
        count = [n for n in range(size) if during[n] == before[n] + 1 == traced_threads[n] + 1]

    MODULES = (os, subprocess, _posixsubprocess, threading, _thread, builtins, signal, time)
    PASSING = {"_limbo", "_active", "_dangling", "_counter", "_children", "_", "start_new",
               "_active_limbo_lock", "_shutdown_locks", "_shutdown_handles"}

    def control():
        before = []
        for line in sys.stdin:
            word = line.strip()
            if word == "exit":
                jobs.append(None)
                return
            if word == "facts":
                before[:] = [facts()]
                answer = len(before[0])
            elif word == "changes":
                now = facts()
                answer = {name: [str(before[0].get(name))[:200], str(now.get(name))[:200]]
                          for name in set(now) | set(before[0])
                          if now.get(name) != before[0].get(name)}
            elif word == "children":
                jobs.append(children)
                while not results:
                    time.sleep(0.001)
                answer = results.pop()
            else:
                answer = eval(word)
            sys.__stdout__.write(json.dumps(answer) + "\\n")
            sys.__stdout__.flush()

    def main():
        beat = 0
        while True:
            beat += 1
            tick(beat)
            if jobs:
                job = jobs.pop()
                if job is None:
                    return
                results.append(job())
            time.sleep(0.005)

    idle = [threading.Thread(target=threading.Event().wait, daemon=True) for _ in range(2)]
    # As a Jupyter kernel marks its own: pydevd hides it then, and traces it all the same.
    idle[1].is_pydev_daemon_thread = idle[1].pydev_do_not_trace = True
    for waiting in idle:
        waiting.start()
    # And one that `threading` does not know.
    held = _thread.allocate_lock()
    held.acquire()
    bare = _thread.start_new_thread(lambda: held.acquire(), ())
    threading.Thread(target=other, daemon=True).start()
    threading.Thread(target=control, daemon=True).start()
    main()
    sys.exit(5)
"""


def open_files(pid: int) -> list[str]:
    """What its descriptors are of. All but that of newer builds of libffi, which open their own
    file for good as soon as anything imports `ctypes`."""
    found: list[str] = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.append(os.readlink(link))
    return sorted(name for name in found if "/libffi.so" not in name)


class Running:
    """A program that runs, ended by `end`."""

    def __init__(self, program: Source, python: str = sys.executable, *args: str) -> None:
        self.program = program
        self._err = program.path.with_suffix(".stderr")
        with open(self._err, "wb") as err:
            self.process = subprocess.Popen(
                [python, "-W", "ignore", str(program), *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                start_new_session=True,  # what it starts is ended with it
            )
        self.pid = self.process.pid
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def line(self, within: float = 20.0) -> str:
        """The next that it prints."""
        return self._lines.get(timeout=within).rstrip("\n")

    def ask(self, word: str, within: float = 30.0) -> Any:
        """What the witness answers."""
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return json.loads(self.line(within))

    def descriptors(self) -> list[str]:
        return open_files(self.pid)

    def counts(self) -> tuple[int, int]:
        """Threads and descriptors, by the kernel's word."""
        return len(os.listdir(f"/proc/{self.pid}/task")), len(self.descriptors())

    def stderr(self) -> str:
        return self._err.read_text()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        # Closing a pipe that the reader still reads would wait for whoever holds its other end.
        for pid in _of_group(self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join(5)
        assert not self._reader.is_alive(), "somebody has its output open still"
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


def _of_group(group: int) -> list[int]:
    """But multiprocessing's tracker, which unlinks its program's semaphores and ends by itself."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            pid = int(command.parent.name)
            is_tracker = b"multiprocessing.resource_tracker" in command.read_bytes()
            if os.getpgid(pid) == group and not is_tracker:
                found.append(pid)
    return found


class Witness(Running):
    """Two of its threads run, two wait. It tells what has changed since it was looked at first."""

    def __init__(self, folder: Path, python: str) -> None:
        super().__init__(Source(folder / "witness.py", WITNESS), python)
        self.ask("facts")
        self.before = self.counts()

    def is_free(self) -> None:
        """Nothing of a debugger is left in it, and it runs on."""
        what = "threads and descriptors as before"
        eventually(lambda: not self.alive or self.counts() == self.before, what=what)
        assert self.alive, f"it ended with {self.process.returncode}: {self.stderr()}"
        first = self.ask("beats")
        eventually(lambda: all(a > b for a, b in zip(self.ask("beats"), first, strict=True)))
        # What their functions held has gone with them.
        eventually(lambda: self.ask("len(lasting)") == 0)
        changes = self.ask("changes")
        assert changes == {}, changes
        # How soon threads pass the interpreter on; up to 3.9 it loses a microsecond when it is set.
        assert abs(self.ask("sys.getswitchinterval()") - 0.005) < 0.0001
        assert self.ask("children") == [7, 7, 7, 7, 7]
        assert self.stderr() == ""
