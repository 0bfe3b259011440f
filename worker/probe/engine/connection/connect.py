"""Connects pydevd to the relay: one socket, whole messages, and no lost wake-ups.

Used for launched and for attached programs.
"""

import _queue
import _thread
import json
import os
import socket
import sys
import types

from debug_relay.worker.probe.engine import names
from debug_relay.worker.probe.engine.engine import Engine
from debug_relay.worker.probe.runtime.guarded_socket import GuardedSocket

# The original functions: gevent may replace them later, also for pydevd's threads.
_allocate_lock, _ident = _thread.allocate_lock, _thread.get_ident


_CONNECT_SECONDS = 10.0  # The worker's listener takes a connection within this time.


class NoDebugger(Exception):
    """This debugpy lacks names without which it cannot be connected."""


def connect(prepare, setup, hidden=(), **settings):
    """Connect; `prepare(engine, sock)` is called when there is a socket and no thread reads it yet.

    If this debugpy lacks a name (`engine.gone`) none of its functions is replaced.
    """
    gone = names.missing_essential()
    if gone:
        raise NoDebugger(names.explain(gone, names.NO_DEBUGGER))
    pydevd = sys.modules["pydevd"]
    connect_slowly = pydevd.PyDB.connect

    def connect_quickly(self, host, port):
        sock = GuardedSocket(socket.create_connection((host, port), _CONNECT_SECONDS))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Sent first, because the worker reads nothing of a connection that begins otherwise. If the
        # worker has died, the process that has got its port learns a token that is worthless now.
        sock.sendall(setup["token"].encode())
        self._client_socket = sock
        engine = Engine(self, names.missing(self))
        if engine.gone:
            _prepared(prepare, engine, sock)
            sock.sendall(_console_message(names.explain(engine.gone, names.PLAIN_DAP)))
            self.initialize_network(sock)
            return
        # pydevd's thread that checks every 0.2 s whether the program has ended would be joined like
        # one of the program's own. pydevd's atexit handler does the same work.
        self._create_check_output_thread = lambda: None
        self._py_db_command_thread_event = _CommandEvent()
        queues = self._cmd_queue = _OnePerKey(_each(self._cmd_queue.default_factory))
        event = self._thread_events.default_factory
        self._thread_events = _OnePerKey(lambda id: _ThreadEvent(event(), queues[id]))
        _prepared(prepare, engine, sock)
        _start_threads(pydevd, self, sock)

    pydevd.PyDB.connect = connect_quickly
    try:
        pydevd.settrace(
            host="127.0.0.1",
            port=setup["port"],
            # pydevd takes no command before the client has sent this.
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


def _console_message(text):
    """An event as it is sent, encoded without pydevd, which may lack the names for that too."""
    body = {"category": "console", "output": text}
    event = {"type": "event", "event": "output", "seq": 0, "body": body}
    content = json.dumps(event).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(content), content)


def _prepared(prepare, engine, sock):
    try:
        prepare(engine, sock)
    except BaseException:
        sock.close()  # the worker sees the end of the connection
        raise


def _start_threads(pydevd, db, sock):
    comm = sys.modules["_pydevd_bundle.pydevd_comm"]
    time, queue = pydevd.time, comm._queue
    # initialize_network sleeps 0.1 s "to give threads time to start"; they need none.
    pydevd.time = _NoSleep(time)
    # If gevent is used without our prediction, it replaces locks and clocks, and these threads
    # would block. So they wait with the interpreter's original queue.
    comm._queue = types.SimpleNamespace(Queue=_queue.SimpleQueue, Empty=queue.Empty)
    # pydevd sleeps after each message and so gives up the interpreter, which threads that never
    # wait would keep then.
    comm.time = _NoSleep(types.SimpleNamespace(**vars(time)))
    try:
        db.initialize_network(sock)
    finally:
        pydevd.time = time
        comm._queue = queue
    db.writer.sock = WholeMessages(sock)


class _OnePerKey(dict):
    """A defaultdict that makes one value for a key, even if two threads look it up at once. With
    two queues, one thread would write to a queue that the other, the reader, never sees.
    """

    def __init__(self, make):
        dict.__init__(self)
        self.make = make

    def __missing__(self, key):
        return self.setdefault(key, self.make(key))


def _each(make):
    """A factory for `_OnePerKey` that does not use the key."""
    return lambda key: make()


class _ThreadEvent(object):
    """An Event for a suspended thread, which calls `wait`, `clear`, and then does one command.

    Two commands that were posted before the `clear` have both set it. The thread would then find
    the second one 0.2 s later, for example a step right after a command that must precede it.
    """

    def __init__(self, event, queue):
        self._event, self._queue = event, queue
        self.set, self.wait = event.set, event.wait

    def clear(self):
        self._event.clear()
        # In this order: a poster first puts its command into the queue, and then sets the event.
        if not self._queue.empty():
            self._event.set()


class _CommandEvent(object):
    """An Event for a thread that executes commands, which calls `clear` and then `wait`.

    An Event would forget a command that is posted before the `clear`, while the thread answers the
    commands that it has found; the thread would find it 0.2 s later. So each waiting thread has a
    lock, held while the event was not set since the thread's last wait, and `clear` does nothing.
    """

    def __init__(self):
        self._locks = _OnePerKey(_each(_allocate_lock))  # thread ident → its lock, free at first

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
    """Sends each message in one packet. pydevd sends header and body in two, which wake the relay
    twice.
    """

    def __init__(self, sock):
        self._sock = sock
        self._header = b""
        self.is_kept_open = False

    def shutdown(self, how):
        """The writer calls this if it shall end just after it has found nothing to write."""
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
