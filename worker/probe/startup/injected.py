"""The injected code, run in the program's main thread: it only starts the probe's thread.

Executed as a text with the names `setup`, `texts` (the texts of five modules of the probe) and
`status`; imports no other module of the relay.

It runs between any two instructions of the main thread and takes no lock that this thread could
hold. It starts threads by `_thread`, which programs do not replace; a program whose threads are
greenlets would run our threads in its own loop. If it cannot continue, it writes the reason into
the payload status file, a file in memory that gdb has opened in the program; `status` is its
descriptor. A socket or another file would need functions that the program may have replaced or
forbidden.
"""

try:  # an import within `try` is never lazy: a lazy one would take the import lock at its first use
    import _thread
    import posix
    import sys
finally:
    pass

# The injected code waits this long for the import lock, which a thread that forks may hold.
_FORK_SECONDS = 2.0
_GATE_SECONDS = 10.0  # The injected code waits this long for another attach to the same program.
_HEARD_SECONDS = 1.0  # The injected code waits this long for the worker to read its last message.
_OVER_SECONDS = 0.3  # The injected code waits this long for a thread that is just ending.


class StatusFile(object):
    """The payload status file: this code and the worker write their states into it."""

    def __init__(self, fd):
        self.fd = fd

    def is_ours(self):
        # A program that closes all its descriptors may have reused this number for another file.
        try:
            return posix.readlink("/proc/self/fd/%d" % self.fd).startswith("/memfd:debug relay")
        except OSError:
            return False

    def is_waited_for(self):
        return not self.is_ours() or posix.pread(self.fd, 1, 0) != b"n"

    def begun(self):
        if self.is_ours():
            posix.pwrite(self.fd, b"b", 0)

    def refuse(self, reason, words):
        if self.is_ours() and self.is_waited_for():
            text = "%s\n%s" % (reason, words[-4000:])
            posix.pwrite(self.fd, text.encode("utf-8", "backslashreplace"), 1)
            posix.pwrite(self.fd, b"r", 0)
            self.until_heard()
        self.close()

    def until_heard(self):
        end = posix.times().elapsed + _HEARD_SECONDS
        while posix.pread(self.fd, 1, 0) == b"r" and posix.times().elapsed < end:
            posix.sched_yield()

    def close(self):
        if self.is_ours():
            posix.close(self.fd)


class ImportGuard(object):
    """Makes a fork wait until our imports are done. In the child, the locks of half-imported
    modules would be held for ever, by a thread that does not exist there. At-fork hooks cannot be
    removed.
    """

    def __init__(self, attempt):
        self.attempt = attempt
        self.lock = _thread.allocate_lock()
        self.lock.acquire()
        posix.register_at_fork(before=self.wait, after_in_child=self.in_child)

    def wait(self):
        lock = self.lock
        if lock is not None and lock.acquire(True, _FORK_SECONDS):
            lock.release()

    def release(self):
        lock, self.lock = self.lock, None
        if lock is not None:
            lock.release()

    def in_child(self):
        self.release()
        attempt, self.attempt = self.attempt, None
        if attempt is not None and attempt.pace is not None:
            attempt.pace["in_child"]()


class Gate(object):
    """Lets only one attach at a time begin: other relays may attach at the same moment, and this
    payload may be injected a second time because the main thread was found at rest. It is removed
    afterwards. A fork copies it, held or not: hence the pid in its name.
    """

    def __enter__(self):
        self.shared = vars(sys.modules["threading"])
        self.name = "relay gate %d" % posix.getpid()
        while True:
            self.lock = self.shared.setdefault(self.name, _thread.allocate_lock())
            if not self.lock.acquire(True, _GATE_SECONDS):
                raise RuntimeError("another debugger has been attaching for %g s" % _GATE_SECONDS)
            if self.shared.get(self.name) is self.lock:
                return
            self.lock.release()  # its last holder has removed it

    def __exit__(self, *error):
        del self.shared[self.name]
        self.lock.release()


class Attempt(object):
    """One worker's attach, done by a thread that the program's main thread starts."""

    def __init__(self, setup, texts, status):
        self.setup = setup
        self.texts = texts
        self.status = status
        self.pace = None
        self.imported = int  # called when all imports are done
        self.starting = None  # the id of the thread that runs `start`

    def begin(self):
        starts = (
            getattr(threading, "_start_joinable_thread", None),
            _thread.start_new_thread,
            getattr(threading, "_start_new_thread", None),
        )
        for function in starts:
            if getattr(function, "__module__", "").split(".")[0] in ("gevent", "eventlet"):
                return self.status.refuse("greenlets", function.__module__)
        if "pydevd" not in sys.modules:
            self.imported = ImportGuard(self).release
        try:
            _thread.start_new_thread(self.start, ())
        except BaseException:
            self.imported()
            raise

    def start(self):
        """Runs outside the main thread, which may hold locks of `threading`."""
        is_started = False
        self.starting = _thread.get_native_id()
        try:
            if not self.status.is_waited_for():
                return self.status.close()
            self.status.begun()
            # First of all, before anything gives up the interpreter: another thread that gives it
            # up as often, and takes it back at once, would make us wait for seconds.
            self.pace = self.executed("switch_interval")
            # `daemon` is given, or `threading` would make an entry for this thread to look it up.
            thread = threading.Thread(target=self.attach, name="debug relay arrives", daemon=True)
            thread.is_pydev_daemon_thread = thread.pydev_do_not_trace = True
            with self.pace["Pace"]():
                thread.start()
            is_started = True
        except BaseException as error:
            self.status.refuse(reason(error), named(error))
        finally:
            is_started or self.imported()

    def attach(self):
        # The program may have all its new threads traced and profiled: this thread is not one.
        if sys.gettrace() is not None:
            sys.settrace(None)
        if sys.getprofile() is not None:
            sys.setprofile(None)
        try:
            with self.pace["Pace"]():
                self.until_started()
                own = {}
                with Gate(), self.executed("eager_imports")["Eager"](), self.apart(own):
                    probe = self.setup.pop("probe")
                    bytecode = self.executed("bytecode_cache")["Bytecode"](
                        self.setup["bytecode"], probe
                    )
                    load = self.executed("loader")["loader"](probe["folders"], bytecode, own)
                    del probe
                    load("lifecycle.attached").attach(self.setup, bytecode, self.imported)
        except BaseException as error:
            why = reason(error)
            self.status.refuse(why, traceback_of(error) if why == "failed" else str(error))
        else:
            self.status.close()
        finally:
            self.imported()

    def until_started(self):
        """Wait until the thread that ran `start` has ended. pydevd would trace it and make an entry
        in `threading` for it, as for each thread that it meets. Once the kernel does not list it
        any more, the interpreter is done with it.
        """
        end = posix.times().elapsed + _OVER_SECONDS
        try:
            while posix.times().elapsed < end:
                posix.stat("/proc/self/task/%d" % self.starting)
                self.pace["give_away"]()
        except OSError:
            pass  # it has ended

    def apart(self, own):
        return self.executed("stdlib_imports")["Apart"](own)

    def executed(self, name):
        code = compile(self.texts[name], "<frozen relay probe>/startup/%s.py" % name, "exec")
        # Its imports are never lazy, whatever the program has chosen: see `eager_imports`.
        given = dict(vars(sys.modules["builtins"]), __lazy_import__=__import__)
        names = {"__name__": name, "__builtins__": given}
        exec(code, names)
        return names


def reason(error):
    """The reason as `refusals` of the worker names it."""
    ending = "interpreter shutdown" in str(error)
    return getattr(error, "reason", "ending" if ending else "failed")


def named(error):
    return "%s: %s" % (type(error).__name__, error)


def traceback_of(error):
    try:
        import traceback

        return "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except BaseException:
        return named(error)


_status = StatusFile(status)  # noqa: F821  given
try:
    # A child may have been forked before this runs, and the worker may have given up.
    if posix.getpid() == setup["pid"] and _status.is_waited_for():  # noqa: F821  given
        import threading

        Attempt(setup, texts, _status).begin()  # noqa: F821  given
    else:
        _status.close()
except BaseException as error:
    _status.refuse(reason(error), named(error))
