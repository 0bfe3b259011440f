"""Brings pydevd into the program and connects it; nothing of that is left to see.

Used where a program is launched and where one is attached to.
"""

import _queue
import _thread
import builtins
import os
import socket
import sys
import types

from debug_relay.worker.probe.engine import monitoring_tool as own_tool
from debug_relay.worker.probe.engine import names
from debug_relay.worker.probe.engine import trimmed_imports as left_out
from debug_relay.worker.probe.engine.threads import names as unnumbered
from debug_relay.worker.probe.runtime.guarded_socket import OwnSocket

# By these names gevent may have others later, also for pydevd's threads.
_allocate_lock, _ident = _thread.allocate_lock, _thread.get_ident
# Read by pydevd when it is imported: it never lets other threads run because a value is slow to
# show (the program would move at a stop), and says nothing of slow values, or of frozen modules,
# in the program's output.
_SETTINGS = {
    "PYDEVD_UNBLOCK_THREADS_ON_VARIABLES_TIMEOUT": "-1",
    "PYDEVD_WARN_SLOW_RESOLVE_TIMEOUT": "86400",
    "PYDEVD_WARN_EVALUATION_TIMEOUT": "86400",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
}
if sys.version_info >= (3, 12):
    # debugpy has it compiled for the relay's own version only: a program must not be debugged
    # otherwise because the relay happens to run on the same Python.
    _SETTINGS["PYDEVD_USE_CYTHON"] = "NO"


def bring_in(parent, switch=None):
    """pydevd, of the debugpy that lies in `parent` unless the program has loaded one already.

    `switch` is one more of its settings, to be on.
    """
    settings = dict(_SETTINGS, **{switch: "True"}) if switch else _SETTINGS
    kept = {name: os.environ.get(name) for name in ("PYDEVD_USE_FRAME_EVAL", *settings)}
    known = set(vars(builtins))
    os.environ.update(settings)
    try:
        with left_out.Given(dict(left_out.IMPORTS, **unnumbered.IMPORTS)):
            _find_debugpy(parent)
            import debugpy._vendored.force_pydevd  # noqa: F401
            import pydevd
    finally:
        for name in set(vars(builtins)) - known:
            delattr(builtins, name)  # pydevd's `runfile` and `execfile` are not the program's
        for name, value in kept.items():
            # the program's children must not inherit it
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    if not names.missing():
        own_tool.choose()
        _silence()
    return pydevd


def _find_debugpy(parent):
    """Nothing else is taken from there: what lies beside it is the relay's, of another Python."""
    sys.path.insert(0, parent)
    try:
        import debugpy  # noqa: F401
    finally:
        sys.path.remove(parent)


def _silence():
    """The program's stderr is the program's."""
    import pydevd_tracing
    from _pydev_bundle import pydev_log
    from _pydevd_bundle.pydevd_constants import NULL

    pydevd_tracing.TracingFunctionHolder._warn = False
    pydev_log._LoggingGlobals._debug_stream = NULL
    pydev_log._LoggingGlobals._debug_stream_initialized = True


def connect(pydevd, prepare, setup, hidden=(), **settings):
    """Connect; `prepare(db, sock, gone)` is called when there is a socket and nobody reads it yet.

    `gone`: the names that this debugpy lacks. Where there are any, nothing of it is replaced.
    """
    connect_slowly = pydevd.PyDB.connect

    def connect_quickly(self, host, port):
        sock = OwnSocket(pydevd.start_client(host, port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Before anything else: the worker reads nothing of a connection that begins otherwise.
        # Should it have died, whoever has got its port learns what is good for nothing now.
        sock.sendall(setup["token"].encode())
        self._client_socket = sock
        gone = names.missing(self)
        if gone:
            _prepared(prepare, self, sock, gone)
            self.initialize_network(sock)
            return
        # Its thread that looks every 0.2 s whether the program has ended is joined like one of the
        # program's own; what it does is done by pydevd's atexit handler just as well.
        self._create_check_output_thread = lambda: None
        self._py_db_command_thread_event = _Signal()
        queues = self._cmd_queue = _Made(_each(self._cmd_queue.default_factory))
        event = self._thread_events.default_factory
        self._thread_events = _Made(lambda id: _Wakening(event(), queues[id]))
        _prepared(prepare, self, sock, gone)
        _start_threads(pydevd, self, sock)

    pydevd.PyDB.connect = connect_quickly
    try:
        pydevd.settrace(
            host="127.0.0.1",
            port=setup["port"],
            # pydevd takes no command before it was told this.
            access_token=setup["access_token"],
            suspend=False,
            notify_stdin=False,
            dont_trace_start_patterns=(
                os.path.dirname(os.path.abspath(sys.modules["debugpy"].__file__)),
                *hidden,
            ),
            dont_trace_end_patterns=(),
            **settings,
        )
    finally:
        pydevd.PyDB.connect = connect_slowly


def _prepared(prepare, db, sock, gone):
    try:
        prepare(db, sock, gone)
    except BaseException:
        sock.close()  # the worker sees that nobody comes
        raise


def _start_threads(pydevd, db, sock):
    comm = sys.modules["_pydevd_bundle.pydevd_comm"]
    time, queue = pydevd.time, comm._queue
    # initialize_network sleeps 0.1 s "to give threads time to start"; they need none.
    pydevd.time = _NoSleep(time)
    # What gevent makes of locks and clocks would bring these threads to a stand when it comes
    # unexpectedly: what they wait with is the interpreter's own, by whatever name it goes later.
    comm._queue = types.SimpleNamespace(Queue=_queue.SimpleQueue, Empty=queue.Empty)
    # And it gives the interpreter away after each message: threads that never wait keep it then.
    comm.time = _NoSleep(types.SimpleNamespace(**vars(time)))
    try:
        db.initialize_network(sock)
    finally:
        pydevd.time = time
        comm._queue = queue
    db.writer.sock = WholeMessages(sock)


class _Made(dict):
    """A defaultdict that makes one thing for a key, though two threads ask for it at once: what the
    one has put into a queue of its own the other, who reads, would never see."""

    def __init__(self, make):
        dict.__init__(self)
        self.make = make

    def __missing__(self, key):
        return self.setdefault(key, self.make(key))


def _each(make):
    """One for each key, whatever that is."""
    return lambda key: make()


class _Wakening(object):
    """What pydevd uses of a thread's Event while it stands: `wait`, `clear`, then one command.

    Two commands that were posted before the `clear` had both set it. The second one would then be
    found 0.2 s later, as was a step right behind what is to be done before it.
    """

    def __init__(self, event, queue):
        self._event, self._queue = event, queue
        self.set, self.wait = event.set, event.wait

    def clear(self):
        self._event.clear()
        # In this order: who posts puts its command there first, and sets the event then.
        if not self._queue.empty():
            self._event.set()


class _Signal(object):
    """What pydevd uses of an Event, for who works off what is posted: `clear` and then `wait`.

    What is posted before the `clear`, while it answers what it has found, would be forgotten by an
    Event and found 0.2 s later. So each who waits has a lock of its own, held while nothing was set
    since its last wait, and `clear` forgets nothing.
    """

    def __init__(self):
        self._locks = _Made(_each(_allocate_lock))  # thread ident → its lock, at first not held

    def set(self):
        for lock in list(self._locks.values()):
            try:
                lock.release()
            except RuntimeError:
                pass  # it is set already

    def clear(self):
        pass

    def wait(self, timeout):
        self._locks[_ident()].acquire(True, timeout)


class WholeMessages(object):
    """pydevd sends a message's header and body apart: two packets, which wake the relay twice."""

    def __init__(self, sock):
        self._sock = sock
        self._header = b""
        self.is_kept_open = False

    def shutdown(self, how):
        """By the writer, which tells the end of the connection when it is told to end itself just
        after it has looked in vain for something to write."""
        if not self.is_kept_open:
            self._sock.shutdown(how)

    def __getattr__(self, name):
        return getattr(self._sock, name)

    def sendall(self, data):
        if data.startswith(b"Content-Length:"):
            self._header = data
        else:
            header, self._header = self._header, b""
            self._sock.sendall(header + data)


class _NoSleep(object):
    def __init__(self, time):
        self._time = time

    def __getattr__(self, name):
        return getattr(self._time, name)

    def sleep(self, seconds):
        pass
