"""Putting a first thread of ours into a running program, by gdb.

The program's main thread, which gdb interrupts, may hold any lock of the C library's and of the
interpreter's just then: whatever waits for such a lock in it would stand for ever, and the program
with it. So it is only asked for some memory, where the text of what is to be run is put, and
to note that text among what Python does when its main thread runs on (`Py_AddPendingCall`: made for
signal handlers, waits for nothing). A main thread that rests in a system call holds none of those
locks, and may rest for long: it runs the text there and then.

gdb is never signalled once it has begun: that would kill the program. It runs in a session of its
own, writes to a file, and outlives us where it must; what it was told is on descriptors, because
command lines can be read by everybody.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import tempfile
from typing import IO, Any, Final

from debug_relay.worker import brought
from debug_relay.worker.at_rest import Place

_TAIL: Final = 4000
_FORK_SECONDS: Final = 2.0  # who forks may hold what the import waits for
_GATE_SECONDS: Final = 10.0  # somebody else who is coming in is waited for so long
_under_way: set[int] = set()

# Runs in the program's main thread, between any two of its instructions: it takes no lock that
# could be held there. `_socket` and `_thread` are what nobody replaces; a program whose threads are
# greenlets would run ours in its own loop.
_FIRST: Final = """
import _thread, posix, sys
setup = {setup!r}

class Importing:
    # A fork waits for the end of it: in the child the locks of half-imported modules would be held
    # for ever, by a thread that is not there. The hooks cannot be taken back.
    def __init__(self):
        self.lock = _thread.allocate_lock()
        self.lock.acquire()
        posix.register_at_fork(before=self.wait, after_in_child=self.in_child)

    def wait(self):
        lock = self.lock
        if lock is not None and lock.acquire(True, {patience}):
            lock.release()

    def over(self):
        lock, self.lock = self.lock, None
        if lock is not None:
            lock.release()

    def in_child(self):
        self.over()
        if "pace" in setup:
            setup["pace"]["in_child"]()

def quoted(text):
    # A json.py of the program's may lie in front of the library's, and would be run.
    return '"%s"' % "".join(c if " " <= c <= "~" and c not in '"\\\\' else "\\\\u%04x" % ord(c)
                            for c in text if ord(c) < 0x10000)

def tell(event, **body):
    import _socket
    body["token"] = setup["token"]
    body = ",".join("%s:%s" % (quoted(name), quoted(text)) for name, text in body.items())
    text = '{{"seq":1,"type":"event","event":%s,"body":{{%s}}}}' % (quoted(event), body)
    try:
        sock = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    except OSError:
        return  # no descriptor is left
    sock.settimeout(5)
    try:
        sock.connect(("127.0.0.1", setup["port"]))
        sock.send(b"Content-Length: %d\\r\\n\\r\\n%s" % (len(text), text.encode()))
        sock.shutdown(_socket.SHUT_WR)
        while sock.recv(4096):
            pass
    except OSError:
        pass  # nobody waits any more
    finally:
        sock.close()

def refuse(reason, words):
    tell("relayRefused", reason=reason, words=words[-4000:])

def executed(name):
    with open(setup["probe"] + "/" + name, "rb") as source:
        code = compile(source.read(), "<frozen relay probe>/" + name, "exec")
    names = {{"__name__": name}}
    exec(code, names)
    return names

class Gate:
    # One at a time: others may come just now, and so may this one a second time, brought anew
    # because its main thread was found at rest. Nothing of it stays. A fork copies it, held or
    # not: hence the pid.
    def __enter__(self):
        self.name = "relay gate %d" % posix.getpid()
        while True:
            self.lock = vars(threading).setdefault(self.name, _thread.allocate_lock())
            if not self.lock.acquire(True, {patience_at_gate}):
                raise RuntimeError("another debugger has been coming in for {patience_at_gate} s")
            if vars(threading).get(self.name) is self.lock:
                return
            self.lock.release()  # its last holder has taken it away

    def __exit__(self, *error):
        del vars(threading)[self.name]
        self.lock.release()

def come():
    try:
        own = {{}}
        apart = executed("namesakes.py")["Apart"](own)
        with setup["pace"]["Pace"](), Gate(), apart:
            bytecode = executed("bytecode.py")["Bytecode"](setup["bytecode"])
            bring = executed("loader.py")["loader"](setup["probe"], bytecode.compiled, own)
            bring("attached").arrive(setup, bytecode)
    except BaseException as error:
        import traceback
        reason = getattr(error, "reason", "failed")
        refuse(reason, str(error) if reason != "failed" else traceback.format_exc())
    finally:
        setup["imported"]()

def start():
    # Not in the main thread, which may stand within threading's own locks.
    comes = False
    try:
        setup["pace"] = executed("pace.py")
        with setup["pace"]["Pace"]():
            tell("relayBegun")
        # `daemon` is given because threading would make an entry for this thread to ask it.
        thread = threading.Thread(target=come, name="debug relay arrives", daemon=True)
        thread.is_pydev_daemon_thread = thread.pydev_do_not_trace = True
        thread.start()
        comes = True
    except BaseException as error:
        refuse("failed", "%s: %s" % (type(error).__name__, error))
    finally:
        comes or setup["imported"]()

def begin():
    if posix.getpid() != setup["pid"]:
        return  # a child that was forked before this could run
    starts = (getattr(threading, "_start_joinable_thread", None), _thread.start_new_thread,
              getattr(threading, "_start_new_thread", None))
    for function in starts:
        if getattr(function, "__module__", "").split(".")[0] in ("gevent", "eventlet"):
            return refuse("greenlets", function.__module__)
    # All that is imported is there already when the debugger is.
    setup["imported"] = int if "pydevd" in sys.modules else Importing().over
    try:
        _thread.start_new_thread(start, ())
    except BaseException:
        setup["imported"]()
        raise

limit = sys.getrecursionlimit()
try:
    sys.setrecursionlimit(limit + 500)  # it may stand deep down
    import threading
    begin()
except BaseException as error:
    ending = "interpreter shutdown" in str(error)
    refuse("ending" if ending else "failed", "%s: %s" % (type(error).__name__, error))
finally:
    sys.setrecursionlimit(limit)
"""


def first_text(setup: dict[str, Any]) -> str:
    """What the program's main thread runs."""
    return _FIRST.format(setup=setup, patience=_FORK_SECONDS, patience_at_gate=_GATE_SECONDS)


def under_way() -> frozenset[int]:
    """Injections that have not ended: nobody may end them."""
    return frozenset(_under_way)


class Injection:
    """One run of gdb. `rest` is where the program's main thread rests, if it does; `former` is an
    injection whose text could not be run there."""

    def __init__(
        self, pid: int, setup: dict[str, Any], rest: Place | None, former: Injection | None = None
    ) -> None:
        self.ended = asyncio.Event()
        self.code: int | None = None
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by release
        text = os.memfd_create("debug-relay-text")
        script = os.memfd_create("debug-relay-injection")
        try:
            content = brought.content(first_text(setup))
            os.write(text, content)
            spent = former.page if former is not None else None
            os.write(script, _script(text, len(content), rest, spent).encode())
            self._popen = subprocess.Popen(
                [
                    shutil.which("gdb") or "gdb",
                    *("--nw", "--nh", "--nx", "--batch", "--readnever"),
                    *("-iex", "set auto-solib-add off", "-iex", "set debuginfod enabled off"),
                    *("-iex", "set auto-load off"),
                    *("--pid", str(pid), "-x", f"/proc/self/fd/{script}"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "HOME": "/"},
                pass_fds=(script, text),
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            self._output.close()
            raise
        finally:
            os.close(script)
            os.close(text)
        self.pid = self._popen.pid
        self._program = pid
        _under_way.add(self.pid)
        self._pidfd = os.pidfd_open(self.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._exited)

    def _exited(self) -> None:
        self.code = self._popen.poll()
        if self.code is None:
            return
        _under_way.discard(self.pid)
        self._close_pidfd()
        self.ended.set()

    @property
    def failed(self) -> bool:
        """It has ended and nothing of ours will run in the program."""
        return self.ended.is_set() and (self.code != 0 or self._result()[0] != 0)

    @property
    def found_another(self) -> bool:
        """Somebody traces the program: the kernel lets only one."""
        return self.failed and "already traced by" in self.said()

    @property
    def noted(self) -> bool:
        """It has ended, and what it has brought runs as soon as the main thread does."""
        return self.ended.is_set() and self._result() == (0, "noted")

    @property
    def page(self) -> int | None:
        """Where in the program the text is, or was."""
        found = re.search(r"^relay page: (\d+)$", self.said(), re.MULTILINE)
        return int(found.group(1)) if found else None

    @property
    def could_not_run(self) -> bool:
        """Python has tried what was brought and could not begin it. The program is as before."""
        if not self.ended.is_set() or self.page is None:
            return False
        return brought.could_not_run(self._program, self.page)

    def _result(self) -> tuple[int | None, str]:
        found = re.search(r"^relay injected: (-?\d+) (\w+)$", self.said(), re.MULTILINE)
        return (int(found.group(1)), found.group(2)) if found else (None, "")

    def said(self) -> str:
        if self._output.closed:
            return ""
        size = os.fstat(self._output.fileno()).st_size
        data = os.pread(self._output.fileno(), _TAIL, max(0, size - _TAIL))
        return data.decode("utf-8", "replace")

    def release(self) -> None:
        """Watch no longer; gdb goes on as long as it must, and is collected at our end."""
        self._close_pidfd()
        self._output.close()
        if self.code is None:
            self._popen.returncode = 0  # no warning of a child that we leave

    def _close_pidfd(self) -> None:
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1


def _script(text: int, size: int, rest: Place | None, former: int | None) -> str:
    """No debug information and few symbols are read: the program stands still meanwhile."""
    at_rest = "0"
    if rest is not None:
        at_rest = f"(unsigned long)$sp == {rest.stack:#x} && (unsigned long)$pc == {rest.code:#x}"
    return "\n".join(
        [
            # Otherwise a signal to the program ends gdb's call half-way through.
            "handle all nostop noprint pass",
            "set scheduler-locking off",
            r"sharedlibrary libc\.",
            "sharedlibrary libpython",
            *brought.commands(f"/proc/self/fd/{text}", size, former),
            'printf "relay page: %lu\\n", $page',
            f"set $rests = {at_rest}",
            "set $relay = 0",
            "if $rests",
            "set $lock = ((int (*)(void)) PyGILState_Ensure)()",
            "if $runs",
            "set $relay = ((int (*)(unsigned long)) $page)($page)",
            "else",
            f"set $relay = ((int (*)(unsigned long)) PyRun_SimpleString)($page + {brought.TEXT})",
            brought.unmap(),
            "end",
            "call ((void (*)(int)) PyGILState_Release)($lock)",
            'printf "relay injected: %d done\\n", $relay',
            "else",
            "if $runs",
            "set $relay = ((int (*)(unsigned long, unsigned long)) Py_AddPendingCall)"
            "($page, $page)",
            "else",
            "set $relay = ((int (*)(void *, unsigned long)) Py_AddPendingCall)"
            f"((void *) PyRun_SimpleString, $page + {brought.TEXT})",
            "end",
            'printf "relay injected: %d noted\\n", $relay',
            "end",
            "",
        ]
    )
