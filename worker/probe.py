"""The probe: what the relay keeps inside the debugged program, beside pydevd.

Runs in the program: Python 3.8 to 3.14, standard library only. Never imported: `bootstrap` executes
this text in a private namespace under a file name that starts with `<frozen `, which pydevd takes
for its own, so it is in no stack and never stepped into. It has no thread, no socket, no module.

pydevd stops threads; the probe decides *whether* (conditions and hit counts together, exceptions
once each), evaluates so that nothing can wedge a session, tells of child processes, and lets go of
forked children. It hangs on instance attributes of pydevd's `PyDB`; removing it is `del`.

In:  a frameless DAP evaluate of `_relay('{"do": …}')`, which answers with one JSON string.
Out: DAP events `relayAnswer`, `relayError`, `relayHits`, `relayLog`, `relaySubprocess`.
"""

import _thread
import collections
import itertools
import json
import os
import signal
import sys
import threading
import time
import traceback

_encode = json.JSONEncoder(ensure_ascii=True, default=lambda o: "?").encode
_decode = json.JSONDecoder().decode
_ident = _thread.get_ident
_getpid = os.getpid
_main_ident = threading.main_thread().ident
RESULT_LIMIT = 65536
ROW_LIMIT = 8192
SUSPENDED = 2  # pydevd's word for a thread that is to stand still
RETURNED = "__pydevd_ret_val_dict"  # pydevd's name for them
LOG_RATE = 100.0  # lines a second that one log point writes at most, after a burst
LOG_BURST = 200.0
HOOKS = (
    "handle_breakpoint_condition",
    "get_exception_breakpoint",
    "exclude_exception_by_filter",
    "post_method_as_internal_command",
    "find_frame",
    "set_suspend",
    "do_wait_suspend",
    "_thread_events",
)


# Containers of which any page can be had without running a line of the program's.
INDEXED = (list, tuple, set, frozenset, collections.deque)
NAMED = (dict, collections.OrderedDict, collections.defaultdict)


class Interrupted(BaseException):
    """Raised into a thread that evaluates for the relay and takes too long."""


# ------------------------------------------------------------------ expressions


class Expression(object):
    """An expression as it reads in the frame's scope, nested scopes included."""

    def __init__(self, text):
        self.code = compile(text.strip(), "<relay expression>", "eval", dont_inherit=True)
        self.nested = any(type(c) is type(self.code) for c in self.code.co_consts)

    def __call__(self, frame):
        if self.nested:
            # names inside a lambda or comprehension are looked up as globals
            names = dict(frame.f_globals)
            names.update(frame.f_locals)
            return eval(self.code, names)
        return eval(self.code, frame.f_globals, frame.f_locals)


class Template(object):
    """A log message: f-string rules, whatever quotes and back-slashes the expressions hold."""

    def __init__(self, text):
        self.parts = []
        literal, at = "", 0
        while at < len(text):
            char = text[at]
            if char in "{}" and text[at + 1 : at + 2] == char:
                literal += char
                at += 2
            elif char == "}":
                raise SyntaxError("single '}' at column %d" % (at + 1))
            elif char == "{":
                self.parts.append(literal)
                literal = ""
                field, at = _field(text, at + 1)
                self.parts.append(field)
            else:
                literal += char
                at += 1
        self.parts.append(literal)

    def __call__(self, frame):
        return "".join(part if isinstance(part, str) else part.render(frame) for part in self.parts)


class Field(object):
    """One `{expression!r:spec}`."""

    def __init__(self, expression, label, conversion, spec):
        self.expression = Expression(expression)
        self.label = label
        self.conversion = conversion
        self.spec = Template(spec) if spec else None

    def render(self, frame):
        value = self.expression(frame)
        if self.conversion:
            value = {"r": repr, "s": str, "a": ascii}[self.conversion](value)
        return self.label + format(value, self.spec(frame) if self.spec else "")


def _field(text, start):
    """The field that begins behind its brace at `start`, and where the text goes on.

    An expression may hold `:`, `!`, `=` and `}` itself: the first end that compiles is the end.
    """
    problem = None
    for at in range(start, len(text)):
        if text[at] not in "}!:=":
            continue
        if text[at : at + 2] in ("!=", "==") or text[at - 1 : at + 1] in ("==", "!=", "<=", ">="):
            continue
        try:
            return _field_ending(text, start, at)
        except SyntaxError as error:
            problem = problem or error
    raise problem or SyntaxError("'{' at column %d is never closed" % start)


def _field_ending(text, start, end):
    expression, label, conversion, spec, at = text[start:end], "", "", "", end
    if text[at] == "=":
        at += 1
        label, conversion = text[start:at], "r"
    if text[at : at + 1] == "!":
        conversion = text[at + 1 : at + 2]
        if conversion not in ("r", "s", "a"):
            raise SyntaxError("a conversion is !r, !s or !a")
        at += 2
    if text[at : at + 1] == ":":
        close, depth = at + 1, 0
        while close < len(text) and (depth or text[close] != "}"):
            depth += (text[close] == "{") - (text[close] == "}")
            close += 1
        spec = text[at + 1 : close]
        if label and conversion == "r" and "!" not in text[end:at]:
            conversion = ""
        at = close
    if text[at : at + 1] != "}":
        raise SyntaxError("expected '}' at column %d" % (at + 1))
    return Field(expression, label, conversion, spec), at + 1


COMPARE = {
    "==": lambda n, k: n == k,
    "!=": lambda n, k: n != k,
    ">=": lambda n, k: n >= k,
    ">": lambda n, k: n > k,
    "<=": lambda n, k: n <= k,
    "<": lambda n, k: n < k,
    "%": lambda n, k: n % k == 0,
}


class Point(object):
    """What one breakpoint does at a hit: is it on, is it true, is it this time's turn."""

    def __init__(self, probe, spec):
        self.probe = probe
        self.id = spec["id"]
        # One C call, so that threads that hit at once are all counted.
        self.count = itertools.count(1).__next__
        self.hits = 0
        self.configure(spec)

    def configure(self, spec):
        self.enabled = spec.get("enabled", True)
        condition = spec.get("condition")
        self.condition = Expression(condition) if condition else None
        hit = spec.get("hit")
        self.turn = (COMPARE[hit[0]], hit[1]) if hit else None
        log = spec.get("log")
        self.log = Template(log) if log else None
        self.told = False
        self.tokens = LOG_BURST
        self.last = time.monotonic()
        self.skipped = 0

    def check(self, frame):
        if not self.enabled:
            return False
        try:
            if self.condition is not None and not self.condition(frame):
                return False
            n = self.count()
            if n > self.hits:
                self.hits = n
            if self.turn is not None and not self.turn[0](n, self.turn[1]):
                return False
            if self.log is not None:
                self.write(frame)
                return False
        except KeyboardInterrupt:
            # A signal that arrived while our code ran is the program's: give it back.
            _thread.interrupt_main()
            return False
        except Exception as error:
            self.tell(frame, error)
            return False
        if _getpid() != self.probe.pid:
            return False  # a forked child that nobody debugs must not wait for a debugger
        self.probe.emit("relayHits", {self.id: self.hits})
        return True

    def write(self, frame):
        """A log line, unless there were too many of late: those are counted in the next."""
        now = time.monotonic()
        self.tokens = min(LOG_BURST, self.tokens + (now - self.last) * LOG_RATE)
        self.last = now
        if self.tokens < 1 or _getpid() != self.probe.pid:
            self.skipped += 1
            return
        self.tokens -= 1
        text = self.log(frame)[:RESULT_LIMIT]
        skipped, self.skipped = self.skipped, 0
        row = {"id": self.id, "text": text, "skipped": skipped}
        row["path"], row["line"] = frame.f_code.co_filename, frame.f_lineno
        self.probe.emit("relayLog", row)

    def tell(self, frame, error):
        """The first error in words, later ones not: a hot loop would flood."""
        if self.told:
            return
        self.told = True
        try:
            words = "%s: %s" % (type(error).__name__, error)
        except Exception:
            words = type(error).__name__
        self.probe.emit(
            "relayError", {"id": self.id, "error": words[:1000], "line": frame.f_lineno}
        )


# ------------------------------------------------------------------ the probe


class Probe(object):
    def __init__(self, db):
        self.db = db
        self.pid = _getpid()
        self.points = {}
        self.running = {}  # thread ident → [interrupts begun, interrupts sent]
        self.hooked = []
        self.undo = []
        self.started = False  # nothing stops before the program's own first line
        self.types = frozenset()
        self.raised_everywhere = False
        self.told = threading.local()

    # -- out

    def emit(self, event, body):
        command = sys.modules["_pydevd_bundle.pydevd_net_command"].NetCommand
        message = {"type": "event", "event": event, "body": body}
        writer = self.db.writer
        if writer is not None:
            writer.add_command(command(0, 0, message, is_json=True))

    # -- in

    def __call__(self, text):
        request = _decode(text)
        return _encode(getattr(self, "do_" + request.pop("do"))(**request))

    def do_points(self, set=(), remove=()):
        for id in remove:
            self.points.pop("'relay:%s'" % id, None)
        for spec in set:
            key = "'relay:%s'" % spec["id"]
            old = self.points.get(key)
            if old is None or spec.get("fresh"):
                self.points[key] = Point(self, spec)
            else:
                old.configure(spec)
        return len(self.points)

    def do_hits(self):
        return {point.id: point.hits for point in list(self.points.values())}

    def tell_hits(self):
        self.emit("relayHits", self.do_hits())

    def do_exceptions(self, types=(), raised_everywhere=False):
        self.types = frozenset(types)
        self.raised_everywhere = raised_everywhere
        return True

    def do_evaluate(self, id, frame, text, statements):
        return self.ask_thread_of(frame, id, self.answer, text, statements)

    def do_page(self, id, reference, start, count):
        return self.ask_thread_of(reference, id, self.page, start, count)

    def do_returns(self, on):
        """Keep what functions return: only while one is stepped out of, for pydevd puts it among
        the caller's variables, where the program can see it."""
        self.db.show_return_values = on
        return on

    def do_returned(self, id, frame):
        return self.ask_thread_of(frame, id, self.returned)

    def ask_thread_of(self, dap_reference, id, job, *arguments):
        """Have `job` done by the stopped thread that the frame or variable belongs to."""
        manager = self.db.suspended_frames_manager
        try:
            reference = _ids()._translate_id_from_dap(dap_reference)
        except KeyError:
            return {"gone": True}
        thread_id = manager.get_thread_id_for_variable_reference(reference)
        if thread_id is None:
            return {"gone": True}
        self.db.post_method_as_internal_command(
            thread_id, self.work, id, job, thread_id, reference, *arguments
        )
        return {"gone": False}

    def do_interrupt(self):
        """End whatever the program's threads evaluate for us; tells how many that were."""
        hit = 0
        for ident, token in list(self.running.items()):
            if ident == _ident():
                continue
            token[0] += 1
            try:
                if self.running.get(ident) is token:
                    hit += _raise_in(ident)
            finally:
                token[1] += 1
            if ident == _main_ident and callable(signal.getsignal(signal.SIGURG)):
                # wakes sleep, select, read: C code that has let the GIL go
                signal.pthread_kill(ident, signal.SIGURG)
        return hit

    def do_running(self):
        return len(self.running)

    # -- evaluating, in the stopped thread itself

    def work(self, db, id, job, *arguments):
        ident = _ident()
        token = [0, 0]
        self.running[ident] = token
        answer = {"id": id, "interrupted": True}
        try:
            answer = job(id, *arguments)
        except Interrupted:
            answer = {"id": id, "interrupted": True}
        except BaseException as error:
            answer = {"id": id, "raised": _describe(error)}
        finally:
            self.settle(ident, token)
        self.emit("relayAnswer", answer)

    def settle(self, ident, token):
        """No interrupt may reach the program. No lock here: one could strike while it is held."""
        over = False
        while True:
            try:
                self.running.pop(ident, None)
                while token[0] != token[1]:
                    # an interrupt is being sent just now
                    threading.Event().wait(0.001)
                if token[0] and not over:
                    # Take it, or one of our own: up to 3.12 an asynchronous exception that is
                    # cleared instead of raised leaves the eval breaker on: slow for ever.
                    _raise_in(ident)
                    while True:
                        pass
                return
            except Interrupted:
                over = ident not in self.running and token[0] == token[1]

    def answer(self, id, thread_id, frame_id, text, statements):
        variables = sys.modules["_pydevd_bundle.pydevd_vars"]
        frame = self.db.find_frame(thread_id, frame_id)
        if frame is None:
            return {"id": id, "gone": True}
        try:
            is_expression = True
            variables.compile_as_eval(text)
        except SyntaxError as error:
            is_expression = False
            try:
                compile(_dedent(text), "<expression>", "exec", dont_inherit=True)
            except (SyntaxError, ValueError) as worse:
                return {"id": id, "refused": _syntax(worse)}
            if not statements:
                return {"id": id, "refused": _syntax(error)}
        except ValueError as error:
            return {"id": id, "refused": {"message": str(error)}}
        value = variables.evaluate_expression(self.db, frame, text, not is_expression)
        if type(value).__name__ == "ExceptionOnEvaluate":
            return {"id": id, "raised": _describe(value.result, value.tb)}
        if not is_expression:
            return {"id": id, "statement": True}
        return self.shown(id, thread_id, frame, text, value)

    def shown(self, id, thread_id, frame, text, value):
        tracker = self.db.suspended_frames_manager.get_frame_tracker(thread_id)
        if tracker is None:
            return {"id": id, "gone": True}
        variable = tracker.obtain_as_variable(text, value, frame=frame)
        data = variable.get_var_data(context="repl")
        words = data["value"]
        reference = data.get("variablesReference", 0)
        return {
            "id": id,
            "result": words[:RESULT_LIMIT],
            "length": len(words),
            "type": data.get("type"),
            "reference": _ids()._translate_id_to_dap(reference) if reference else 0,
            "hint": data.get("presentationHint"),
        }

    def returned(self, id, thread_id, frame_id):
        """What was returned into this frame, taken out of it again."""
        names = self.db.find_frame(thread_id, frame_id).f_locals
        kept = names.get(RETURNED) or {}
        values = list(kept.values())
        kept.clear()
        try:
            names.pop(RETURNED, None)
        except (TypeError, ValueError, AttributeError):
            pass  # 3.13 has no way to take a name out of a function's frame: it stays, and empty
        if not values:
            return {"id": id, "none": True}
        return self.shown(id, thread_id, None, "return", values[-1])

    # -- any page of any container: pydevd lists the first hundred or so, and its methods

    def page(self, id, thread_id, reference, start, count):
        tracker = self.db.suspended_frames_manager.get_frame_tracker(thread_id)
        if tracker is None:
            return {"id": id, "gone": True}
        value = getattr(tracker.get_variable(reference), "value", None)
        kind = type(value)
        if kind not in INDEXED and kind not in NAMED:
            return {"id": id, "plain": True}
        if kind in NAMED:
            part = itertools.islice(dict.items(value), start, start + count)
            items = [(_name(key), item) for key, item in part]
        elif kind is list or kind is tuple:
            part = value[start : start + count]
            items = [(str(start + at), item) for at, item in enumerate(part)]
        else:
            part = itertools.islice(iter(value), start, start + count)
            items = [(str(start + at), item) for at, item in enumerate(part)]
        rows = [self.row(tracker, name, item) for name, item in items]
        return {"id": id, "total": len(value), "indexed": kind in INDEXED, "rows": rows}

    def row(self, tracker, name, value):
        data = tracker.obtain_as_variable(name, value).get_var_data()
        words = data["value"]
        reference = data.get("variablesReference", 0)
        row = {
            "name": name,
            "value": words[:ROW_LIMIT],
            "cut": len(words) > ROW_LIMIT,
            "type": data.get("type"),
            "reference": _ids()._translate_id_to_dap(reference) if reference else 0,
        }
        kind = type(value)
        if kind in INDEXED or kind in NAMED:
            row["length"] = len(value)
            row["indexed"] = kind in INDEXED
        return row

    # -- hooks

    def missing(self):
        """The hooks that this debugpy has not."""
        return [name for name in HOOKS if not hasattr(self.db, name)]

    def hook(self):
        points, decide, told = self.points, self.db.handle_breakpoint_condition, self.told

        def handle_breakpoint_condition(info, breakpoint, frame):
            point = points.get(breakpoint.condition)
            if point is None:
                return decide(info, breakpoint, frame)
            told.frame = frame
            return point.check(frame)

        self.replace("handle_breakpoint_condition", handle_breakpoint_condition)
        self.hook_exceptions()
        self.hook_turns()

    def hook_turns(self):
        """One stop at a time, and none lost, when several threads come to breakpoints at once.

        pydevd tells both at the same moment and resumes both with one `continue`, or passes over
        the breakpoint of a thread that another one's stop has halted just there. Here a thread
        whose turn it is not stands still like all others, and stops itself when they go on.
        """
        db, told, turn = self.db, self.told, _thread.allocate_lock()
        suspend, wait = db.set_suspend, db.do_wait_suspend
        constants = sys.modules["_pydevd_bundle.pydevd_comm_constants"]
        mark = sys.modules["_pydevd_bundle.pydevd_thread_lifecycle"].mark_thread_suspended
        halted, at_breakpoint = constants.CMD_THREAD_SUSPEND, constants.CMD_SET_BREAK
        raising = (constants.CMD_STEP_CAUGHT_EXCEPTION, constants.CMD_ADD_EXCEPTION_BREAK)
        holder = []  # the thread whose stop is told and not yet resumed
        pausing = []

        def another_holds(thread):
            return (
                db.multi_threads_single_notification
                and holder
                and holder[0] is not thread
                and holder[0].additional_info.pydev_state == SUSPENDED
            )

        def set_suspend(thread, reason, *args, **kwargs):
            frame = told.__dict__.pop("frame", None) if reason == at_breakpoint else None
            while True:
                with turn:
                    if not ((frame or reason in raising) and another_holds(thread)):
                        if kwargs.get("is_pause"):
                            pausing.append(True)
                        else:
                            holder[:] = [thread]
                        return suspend(thread, reason, *args, **kwargs)
                    info = mark(thread, halted, main_suspend=False)
                if frame is None:
                    told.put_off = (reason,) + args  # it is going to wait as soon as we return
                    return None
                wait(thread, frame, "line", None)
                if info.pydev_step_cmd != -1:
                    return None  # it was stepped on from here

        def do_wait_suspend(thread, frame, event, arg, exception_type=None):
            info = thread.additional_info
            while True:
                put_off = told.__dict__.pop("put_off", None)
                passing = thread.stop_reason == halted and event == "line" and not pausing
                wait(thread, frame, event, arg, exception_type)
                if info.pydev_step_cmd != -1:
                    return
                if put_off:
                    set_suspend(thread, *put_off)
                elif passing and self.hits_now(info, frame):
                    set_suspend(thread, at_breakpoint, suspend_other_threads=True)
                if info.pydev_state != SUSPENDED:
                    return

        self.replace("set_suspend", set_suspend)
        self.replace("do_wait_suspend", do_wait_suspend)

        def gated(resume):
            def resume_threads(thread_id, except_thread=None):
                with turn:  # or it would set a thread going that has just begun to stop
                    del pausing[:], holder[:]
                    resume(thread_id, except_thread)
                # pydevd wakes nobody: each would look by itself, every 0.2 s.
                for event in list(db._thread_events.values()):
                    event.set()

            return resume_threads

        for name in ("_pydevd_bundle.pydevd_api", "_pydevd_bundle.pydevd_comm"):
            module = sys.modules[name]
            self.undo.append((module, "resume_threads", module.resume_threads))
            module.resume_threads = gated(module.resume_threads)

    def hits_now(self, info, frame):
        """Whether a thread that was halted on this very line has a breakpoint of its own there."""
        files = sys.modules["pydevd_file_utils"]
        path = files.get_abs_path_real_path_and_base_from_frame(frame)[1]
        breakpoint = (self.db.breakpoints.get(path) or {}).get(frame.f_lineno)
        if breakpoint is None or breakpoint.condition not in self.points:
            return False
        return self.db.handle_breakpoint_condition(info, breakpoint, frame)

    def replace(self, name, function):
        setattr(self.db, name, function)
        self.hooked.append(name)

    def hook_exceptions(self):
        db, told = self.db, self.told
        find, exclude = db.get_exception_breakpoint, db.exclude_exception_by_filter
        library = tuple(
            {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.__file__)}
        )

        def get_exception_breakpoint(kind, table):
            # SystemExit is an exit, not a crash.
            if not self.started or issubclass(kind, (SystemExit, Interrupted)):
                return None
            told.uncaught = table is db.break_on_uncaught_exceptions
            if table is db.break_on_caught_exceptions and self.types and not self.named(kind):
                return None
            return find(kind, table)

        def exclude_exception_by_filter(breakpoint, trace):
            if breakpoint not in db.break_on_caught_exceptions.values():
                return exclude(breakpoint, trace)
            if told.uncaught:
                # At the end of its journey: once is enough, where it was raised.
                return _origin(trace) in getattr(told, "origins", ()) or exclude(breakpoint, trace)
            if trace.tb_next is None:
                # raised in this very frame: a new journey
                told.stopped = False
            if getattr(told, "stopped", False):
                return True
            if not self.types and not self.raised_everywhere:
                path = trace.tb_frame.f_code.co_filename
                if path.startswith("<frozen") or _in_library(path, library):
                    return True
            told.stopped = True
            # The last few: while an exception travels, others may be raised and handled.
            told.origins = getattr(told, "origins", ())[-15:] + (_origin(trace),)
            return False

        self.replace("get_exception_breakpoint", get_exception_breakpoint)
        self.replace("exclude_exception_by_filter", exclude_exception_by_filter)

    def named(self, kind):
        return any(
            k.__qualname__ in self.types or "%s.%s" % (k.__module__, k.__qualname__) in self.types
            for k in kind.__mro__
        )

    # -- children

    def watch_children(self):
        """Children run as without a debugger; their start is told, nothing else is changed."""
        os.register_at_fork(after_in_child=self.in_child)
        import _posixsubprocess

        places = [(_posixsubprocess, "fork_exec"), (os, "posix_spawn"), (os, "posix_spawnp")]
        places += [(os, "fork"), (os, "forkpty")]
        if "subprocess" in sys.modules:
            places.append((sys.modules["subprocess"], "_fork_exec"))
        for module, name in places:
            original = getattr(module, name, None)
            if original is not None:
                setattr(module, name, self.telling(original, name))
                self.undo.append((module, name, original))

    def telling(self, original, name):
        def start(*args, **kwargs):
            result = original(*args, **kwargs)
            if _getpid() == self.pid:
                try:
                    self.tell_child(name, result, args)
                except Exception:  # noqa: S110  telling must never break what it tells of
                    pass
            return result

        start.__name__ = name
        start.__doc__ = original.__doc__
        return start

    def tell_child(self, name, result, args):
        pid = result[0] if isinstance(result, tuple) else result
        if not isinstance(pid, int) or pid <= 0:
            return
        if name in ("fork", "forkpty"):
            command = [sys.executable, "(fork)"]
        else:
            command = args[0] if "fork_exec" in name else args[1]
            command = [os.fsdecode(part) for part in command]
        self.emit("relaySubprocess", {"pid": pid, "command": command})

    def in_child(self):
        """After fork(), in the child, in the only thread there is; takes no lock of another."""
        self.points.clear()
        db = self.db
        for part in (_stop_tracing, self.remove, _forget_exit, lambda: _forget_debugger(db)):
            try:
                part()
            except Exception:  # noqa: S110  each part stands alone; the child must run
                pass

    def remove(self):
        for name in self.hooked:
            self.db.__dict__.pop(name, None)
        del self.hooked[:]
        for module, name, original in self.undo:
            setattr(module, name, original)
        del self.undo[:]
        self.points.clear()


# ------------------------------------------------------------------ letting a forked child go


def _stop_tracing():
    constants = sys.modules["_pydevd_bundle.pydevd_constants"]
    if getattr(constants, "PYDEVD_USE_SYS_MONITORING", False):
        monitoring = sys.monitoring
        tool = monitoring.DEBUGGER_ID
        if monitoring.get_tool(tool) == "pydevd":
            monitoring.set_events(tool, 0)
            ours = sys.modules["_pydevd_sys_monitoring._pydevd_sys_monitoring"]
            # freeing the tool leaves local events behind
            for code in list(getattr(ours, "_code_to_func_code_info_cache", {})):
                try:
                    monitoring.set_local_events(tool, code, 0)
                except ValueError:
                    continue
            monitoring.free_tool_id(tool)
        return
    # pydevd's own settrace would print a warning on the child's stderr
    sys.modules["pydevd_tracing"].restore_sys_set_trace_func()
    sys.settrace(None)
    threading.settrace(None)
    for frame in sys._current_frames().values():
        while frame is not None:
            frame.f_trace = None
            frame = frame.f_back


def _forget_exit():
    import atexit

    atexit.unregister(sys.modules["pydevd"].stoptrace)
    sys.modules["_pydev_bundle.pydev_monkey"].undo_patch_thread_modules()


def _forget_debugger(db):
    constants = sys.modules["_pydevd_bundle.pydevd_constants"]
    constants.after_fork()
    constants.GlobalDebuggerHolder.global_dbg = None
    db.pydb_disposed = True
    db.created_pydb_daemon_threads = {}
    # the child's copy of the connection: the parent's stays open
    db._client_socket.close()


# ------------------------------------------------------------------ small things


def _raise_in(ident):
    import ctypes

    return ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(ident), ctypes.py_object(Interrupted)
    )


def _name(key):
    """A key as it is shown; its own words may fail, and are not trusted to be short."""
    try:
        return repr(key)[:1000]
    except Exception:
        return "<%s>" % type(key).__name__


def _ids():
    """pydevd's own numbers are not those of its DAP messages; this class keeps both."""
    return sys.modules["_pydevd_bundle._debug_adapter.pydevd_base_schema"].BaseSchema


def _origin(trace):
    """Where an exception was raised, such that no other is taken for it; keeps nothing alive."""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return id(trace), id(trace.tb_frame.f_code), trace.tb_lasti


def _in_library(path, library):
    if "/site-packages/" in path or "/dist-packages/" in path:
        return True
    return path.startswith(library) and "/lib/python" in path


def _dedent(text):
    import textwrap

    return textwrap.dedent(text)


def _syntax(error):
    return {
        "message": "%s: %s" % (type(error).__name__, getattr(error, "msg", None) or error),
        "line": getattr(error, "lineno", None),
        "offset": getattr(error, "offset", None),
    }


def _describe(error, trace=None):
    kind = type(error)
    try:
        message = str(error)
    except Exception:
        message = "<no message: str() raised>"
    trace = trace if trace is not None else error.__traceback__
    while trace is not None and _ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    try:
        lines = traceback.format_exception(kind, error, trace)
    except Exception:
        lines = ["<no traceback: it could not be formatted>"]
    module = kind.__module__
    name = kind.__qualname__ if module == "builtins" else "%s.%s" % (module, kind.__qualname__)
    return {
        "type": name,
        "message": message[:RESULT_LIMIT],
        "traceback": "".join(lines)[:RESULT_LIMIT],
    }


def _ours(path):
    return path.startswith("<frozen relay") or "/debugpy/_vendored/" in path


def start(db, wanted):
    """Put the probe in; where a hook is missing it only tells, and decides nothing."""
    probe = Probe(db)
    if wanted and not probe.missing():
        probe.hook()
        sys.modules["_pydevd_bundle.pydevd_comm"]._relay = probe
        db._relay = probe
    return probe
