"""pydevd is connected to the relay: one socket, whole messages, and wake-ups that are never lost.

Used where a program is launched and where one is attached to.
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

# gevent may replace what these names stand for later, also for pydevd's threads.
_allocate_lock, _ident = _thread.allocate_lock, _thread.get_ident


_CONNECT_SECONDS = 10.0  # The worker's listener takes a connection within this time.


class NoDebugger(Exception):
    """This debugpy lacks names without which it cannot be connected."""


def connect(prepare, setup, hidden=(), **settings):
    """Connect; `prepare(engine, sock)` is called when there is a socket and nobody reads it yet.

    Where this debugpy lacks a name (`engine.gone`) nothing of it is replaced.
    """
    gone = names.missing_essential()
    if gone:
        raise NoDebugger(names.explain(gone, names.NO_DEBUGGER))
    pydevd = sys.modules["pydevd"]
    connect_slowly = pydevd.PyDB.connect

    def connect_quickly(self, host, port):
        sock = GuardedSocket(socket.create_connection((host, port), _CONNECT_SECONDS))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Before anything else: the worker reads nothing of a connection that begins otherwise.
        # Should it have died, whoever has got its port learns what is good for nothing now.
        sock.sendall(setup["token"].encode())
        self._client_socket = sock
        engine = Engine(self, names.missing(self))
        if engine.gone:
            _prepared(prepare, engine, sock)
            sock.sendall(_console_message(names.explain(engine.gone, names.PLAIN_DAP)))
            self.initialize_network(sock)
            return
        # Its thread that looks every 0.2 s whether the program has ended is joined like one of the
        # program's own; what it does is done by pydevd's atexit handler just as well.
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


def _console_message(text):
    """An event as it is sent, made without pydevd: what makes events there may be lacking too."""
    body = {"category": "console", "output": text}
    event = {"type": "event", "event": "output", "seq": 0, "body": body}
    content = json.dumps(event).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(content), content)


def _prepared(prepare, engine, sock):
    try:
        prepare(engine, sock)
    except BaseException:
        sock.close()  # the worker sees that nobody comes
        raise


def _start_threads(pydevd, db, sock):
    comm = sys.modules["_pydevd_bundle.pydevd_comm"]
    time, queue = pydevd.time, comm._queue
    # initialize_network sleeps 0.1 s "to give threads time to start"; they need none.
    pydevd.time = _NoSleep(time)
    # gevent, when it comes unexpectedly, replaces locks and clocks, and these threads would block.
    # So they wait with the interpreter's own, whatever its name stands for later.
    comm._queue = types.SimpleNamespace(Queue=_queue.SimpleQueue, Empty=queue.Empty)
    # And it gives the interpreter away after each message: threads that never wait keep it then.
    comm.time = _NoSleep(types.SimpleNamespace(**vars(time)))
    try:
        db.initialize_network(sock)
    finally:
        pydevd.time = time
        comm._queue = queue
    db.writer.sock = WholeMessages(sock)


class _OnePerKey(dict):
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


class _ThreadEvent(object):
    """An Event for a suspended thread, which calls `wait`, `clear`, and then does one command.

    Two commands that were posted before the `clear` had both set it. The second one would then be
    found 0.2 s later, as was a step right behind a command that must come before it.
    """

    def __init__(self, event, queue):
        self._event, self._queue = event, queue
        self.set, self.wait = event.set, event.wait

    def clear(self):
        self._event.clear()
        # In this order: who posts puts its command there first, and sets the event then.
        if not self._queue.empty():
            self._event.set()


class _CommandEvent(object):
    """An Event for a thread that works off commands, which calls `clear` and then `wait`.

    An Event would forget a command that is posted before the `clear`, while the thread answers
    those that it has found; the thread would find it 0.2 s later. So each waiting thread has a lock
    of its own, held while nothing was set since its last wait, and `clear` forgets nothing.
    """

    def __init__(self):
        self._locks = _OnePerKey(_each(_allocate_lock))  # thread ident → its lock, at first free

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
        """The writer calls this when it is told to end just after it has found nothing to write."""
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
