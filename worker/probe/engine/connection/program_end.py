"""Ends pydevd's threads with a launched program; pydevd itself would wait 0.5 s for its reader."""

import socket
import threading
import time

_END_SECONDS = 0.5  # pydevd's threads have this long at the program's end, as in pydevd itself.


def end_at_once(engine, sock):
    """Replace the function with which pydevd ends its threads."""
    db = engine.db
    dispose = db.dispose_and_kill_all_pydevd_threads
    ending = threading.Lock()

    def end(wait=True, timeout=_END_SECONDS):
        """Called by the program's main thread; up to 3.11 also by the debugger's command thread
        when the main thread has ended; and by the reader when the connection ends.
        """
        current = threading.current_thread()
        if not sock.is_own() or current is db.reader:
            wait, timeout = False, 0  # the relay is gone and gets no more messages
        is_debuggers = current in db.created_pydb_daemon_threads
        if wait and ending.acquire(True, 0 if is_debuggers else timeout):
            try:
                _finish_threads(db, sock, current, time.monotonic() + timeout)
            finally:
                ending.release()
        elif wait and is_debuggers:
            return  # the thread that ends pydevd's threads waits for this one
        try:
            dispose(wait, timeout)
        except OSError:
            pass  # the program has closed all descriptors, also this connection's

    db.dispose_and_kill_all_pydevd_threads = end


def _finish_threads(db, sock, current, deadline):
    others = [t for t in list(db.created_pydb_daemon_threads) if t not in (current, db.reader)]
    # The writer ends when all messages are sent, this one last; only then is the reader freed. If
    # the writer were killed like the others, it could end without sending the last messages.
    db.writer.add_command(db.cmd_factory.make_exit_command(db))
    for thread in others:
        if thread is not db.writer:
            thread.do_kill_pydev_thread()
    for thread in others:
        thread.join(max(0, deadline - time.monotonic()))
    db.reader.do_kill_pydev_thread()
    try:
        sock.shutdown(socket.SHUT_RD)
    except OSError:
        pass  # the peer has closed, which frees the reader too
    db.reader.join(max(0, deadline - time.monotonic()))


def shut(engine):
    """End the connection: its reader wakes, and ends."""
    try:
        engine.db._client_socket.shutdown(socket.SHUT_RDWR)
    except (AttributeError, OSError):
        pass  # the other end has gone already
