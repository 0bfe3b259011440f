"""Putting a first thread of ours into a running program, by gdb.

The program's thread that gdb interrupts starts a thread and goes on; all else is done there. gdb is
never signalled once it has begun: that would kill the program. It runs in a session of its own,
writes to a file, and outlives us where it must; what it was told is on a descriptor, because
command lines can be read by everybody.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shutil
import subprocess
import tempfile
from typing import IO, Any, Final

_TAIL: Final = 4000
_under_way: set[int] = set()

# Runs in the interrupted thread, with the program's own Python. `_socket` and `_thread` are what
# nobody replaces; a program whose threads are greenlets would run ours in its own loop.
_FIRST: Final = """
import sys, threading
setup = {setup!r}

def tell(reason, words):
    import _socket, json
    body = {{"token": setup["token"], "reason": reason, "words": words[-4000:]}}
    text = json.dumps({{"seq": 1, "type": "event", "event": "relayRefused", "body": body}})
    sock = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
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

def executed(name):
    with open(setup["probe"] + "/" + name, "rb") as source:
        code = compile(source.read(), "<frozen relay probe>/" + name, "exec")
    names = {{"__name__": name}}
    exec(code, names)
    return names

def come():
    try:
        bytecode = executed("bytecode.py")["Bytecode"](setup["bytecode"])
        bring = executed("loader.py")["loader"](setup["probe"], bytecode.compiled)
        bring("attached").arrive(setup, bytecode)
    except BaseException as error:
        import traceback
        reason = getattr(error, "reason", "failed")
        tell(reason, str(error) if reason != "failed" else traceback.format_exc())

def begin():
    start = getattr(threading, "_start_joinable_thread", None) or threading._start_new_thread
    if getattr(start, "__module__", "").split(".")[0] in ("gevent", "eventlet"):
        return tell("greenlets", start.__module__)
    thread = threading.Thread(target=come, name="debug relay arrives")
    thread.daemon = thread.is_pydev_daemon_thread = thread.pydev_do_not_trace = True
    thread.start()

try:
    begin()
except BaseException as error:
    ending = "interpreter shutdown" in str(error)
    tell("ending" if ending else "failed", "%s: %s" % (type(error).__name__, error))
"""
_BUILTINS: Final = "__import__('builtins')"


def helper(debugpy_dir: str) -> str | None:
    """debugpy's library that runs a line of Python in a process, if there is one for us."""
    name = {"x86_64": "attach_linux_amd64.so", "i686": "attach_linux_x86.so"}.get(
        platform.machine()
    )
    folder = os.path.join(debugpy_dir, "_vendored", "pydevd", "pydevd_attach_to_process")
    path = os.path.join(folder, name) if name else ""
    return path if os.path.exists(path) else None


def under_way() -> frozenset[int]:
    """Injections that have not ended: nobody may end them."""
    return frozenset(_under_way)


class Injection:
    """One run of gdb."""

    def __init__(self, pid: int, library: str, setup: dict[str, Any]) -> None:
        self.ended = asyncio.Event()
        self.code: int | None = None
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by release
        script = os.memfd_create("debug-relay-injection")
        try:
            os.write(script, _script(library, _FIRST.format(setup=setup)).encode())
            self._popen = subprocess.Popen(
                [
                    shutil.which("gdb") or "gdb",
                    *("--nw", "--nh", "--nx", "--batch"),
                    *("-iex", "set auto-solib-add off", "-iex", "set debuginfod enabled off"),
                    *("--pid", str(pid), "-x", f"/proc/self/fd/{script}"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "HOME": "/"},
                pass_fds=(script,),
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            self._output.close()
            raise
        finally:
            os.close(script)
        self.pid = self._popen.pid
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
        """It has ended and nothing of ours runs in the program."""
        return self.ended.is_set() and (self.code != 0 or self.result() != 0)

    def result(self) -> int | None:
        found = re.search(r"^relay injected: (-?\d+)$", self.said(), re.MULTILINE)
        return int(found.group(1)) if found else None

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


def _script(library: str, program: str) -> str:
    """Only the C library's symbols are read: the program stands still meanwhile."""
    call = f"{_BUILTINS}.exec({_BUILTINS}.bytes.fromhex('{program.encode().hex()}').decode(), {{}})"
    name = os.path.splitext(os.path.basename(library))[0]
    return "\n".join(
        [
            # Otherwise a signal to the program ends gdb's call half-way through.
            "handle all nostop noprint pass",
            "sharedlibrary libc",
            "sharedlibrary libdl",
            "set scheduler-locking off",
            f'call (void*)dlopen("{library}", 2)',
            "call (char*)dlerror()",
            f"sharedlibrary {name}",
            f'set $relay = (int)DoAttach(0, "{call}", 0)',
            'printf "relay injected: %d\\n", $relay',
            "",
        ]
    )
