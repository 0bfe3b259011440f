"""Hands work to stopped threads, such as evaluations, and interrupts work that takes too long."""

import _thread
import signal
import threading
import time
import traceback

from debug_relay.worker.probe.engine.engine import is_debuggers_file
from debug_relay.worker.probe.engine.frames import MONITORED
from debug_relay.worker.probe.inspection import lazy_imports
from debug_relay.worker.probe.runtime.deferred_signals import hold
from debug_relay.worker.probe.runtime.muted_output import unmute
from debug_relay.worker.probe.values.class_facts import name_of
from debug_relay.worker.probe.values.rendering import Interrupted

_ident = _thread.get_ident
_now = time.monotonic
_main_ident = threading.main_thread().ident
RESULT_LIMIT = 65536  # Characters of a message or traceback in the answer to an evaluation.
# Seconds that an evaluated value's own code may run: the caller has a deadline of its own.
RESULT_SECONDS = 3600.0


class Evaluations(object):
    def __init__(self, probe):
        self.probe = probe
        self.running = {}  # thread ident → its token (see `begun`)
        self.dropped = set()  # questions whose callers no longer wait
        self.returns = {}  # thread ident → the value of the function that was stepped out of
        probe.questions.update(evaluate=self.ask_evaluate, returned=self.ask_returned)
        probe.commands.update(
            returns=self.keep_returns,
            interrupt=self.interrupt,
            running=lambda: len(self.running),
        )

    @staticmethod
    def begun(id):
        return begun(id)

    def ask_evaluate(self, id, frame, text, context):
        return self.ask_thread_of(frame, id, self.answer, text, context)

    def hook(self):
        engine = self.probe.engine
        engine.on_return(lambda value: self.returns.__setitem__(_ident(), value))
        engine.hold_breakpoint_calls(unless=lambda: _ident() in self.running)

    def keep_returns(self, on):
        """Set whether to keep the values that functions return: only during a step-out."""
        self.returns.clear()
        self.probe.engine.keep_returns(on)
        return on

    def ask_returned(self, id, frame):
        return self.ask_thread_of(frame, id, self.returned)

    def ask_thread_of(self, dap_reference, id, job, *arguments):
        """Let the stopped thread of the frame or variable run `job`."""
        thread_id, reference = self.probe.engine.owner_of(dap_reference)
        if thread_id is None:
            return {"gone": True}
        self.probe.engine.post(thread_id, self.work, id, job, thread_id, reference, *arguments)
        return {"gone": False}

    def ask_thread(self, dap_thread, id, job, *arguments):
        """Let a stopped thread run `job`."""
        try:
            thread_id = self.probe.engine.inner_id(dap_thread)
        except KeyError:
            return {"gone": True}
        if self.probe.engine.frames(thread_id) is None:
            return {"gone": True}
        self.probe.engine.post(thread_id, self.work, id, job, thread_id, *arguments)
        return {"gone": False}

    def interrupt(self, reports=False, after=0.0, drop=None, only=None):
        """Interrupt what the program's threads evaluate for us, or their stop reports; returns how
        many were interrupted.

        Only work that has run for `after` seconds is interrupted, as it may have waited for its
        turn until now. The question `drop` does not begin any more if it still waits. `only` names
        the one kind of work that is interrupted.
        """
        hit = 0
        if drop is not None:
            self.drop(drop)
        latest = _now() - after
        for ident, token in list(self.running.items()):
            if ident == _ident() or (token[2] is None) != reports or token[3] > latest:
                continue
            if only is not None and token[2] != only:
                continue
            token[0] += 1
            try:
                if self.running.get(ident) is token:
                    hit += _raise_in(ident)
            finally:
                token[1] += 1
            if ident == _main_ident and callable(signal.getsignal(signal.SIGURG)):
                # The signal wakes sleep, select and read: C code that has released the GIL.
                signal.pthread_kill(ident, signal.SIGURG)
        return hit

    def drop(self, id):
        if all(token[2] != id for token in list(self.running.values())):
            self.dropped.add(id)

    # -- evaluating, in the stopped thread itself

    def work(self, id, job, *arguments):
        """Run `job` and send its answer: `relayAnswer` to a question, `relayStop` without one."""
        if id in self.dropped:
            self.dropped.discard(id)
            return
        ident = _ident()
        token = begun(id)
        self.running[ident] = token
        answer = {"id": id, "interrupted": True}
        try:
            answer = job(id, *arguments)
        except Interrupted:
            answer = {"id": id, "interrupted": True}
        except BaseException as error:
            hold(error)
            answer = {"id": id, "raised": described(error)}
        finally:
            self.settle(ident, token)
        if answer is not None:
            self.probe.emit("relayStop" if id is None else "relayAnswer", answer)

    def settle(self, ident, token):
        """End the work so that no interrupt reaches the program. This uses no lock, because an
        interrupt could arrive while it is held.
        """
        over = False
        while True:
            try:
                self.running.pop(ident, None)
                while token[0] != token[1]:
                    # An interrupt is being sent at this moment.
                    threading.Event().wait(0.001)
                if token[0] and not over:
                    # Wait for the interrupt, or for one of our own. Up to 3.12 an asynchronous
                    # exception that is cleared instead of raised leaves the eval breaker on, and
                    # the thread is slow for ever.
                    _raise_in(ident)
                    while True:
                        pass
                unmute()  # an interrupt may have prevented it
                return
            except Interrupted:
                over = ident not in self.running and token[0] == token[1]

    def answer(self, id, thread_id, frame_id, text, context):
        engine = self.probe.engine
        frame = self.probe.engine.frame(thread_id, frame_id)
        if frame is None:
            return {"id": id, "gone": True}
        try:
            is_expression = True
            engine.check_expression(text)
        except SyntaxError as error:
            is_expression = False
            try:
                compile(dedented(text), "<expression>", "exec", dont_inherit=True)
            except (SyntaxError, ValueError) as worse:
                return {"id": id, "refused": syntax_problem(worse)}
            if context != "repl":
                return {"id": id, "refused": syntax_problem(error)}
        except ValueError as error:
            return {"id": id, "refused": {"message": str(error)}}
        if context == "hover":
            value = lazy_imports.first_of(text, frame)
            if value is not None:
                return self.shown(id, thread_id, frame, text, value)
        value = engine.evaluate(frame, text, not is_expression)
        if name_of(type(value)) == "ExceptionOnEvaluate":
            return {"id": id, "raised": described(value.result, value.tb)}
        if not is_expression:
            return {"id": id}
        return self.shown(id, thread_id, frame, text, value)

    def shown(self, id, thread_id, frame, text, value):
        tracker = self.probe.engine.tracker(thread_id)
        if tracker is None:
            return {"id": id, "gone": True}
        pages = self.probe.pages
        view = pages.view("whole", seconds=RESULT_SECONDS, quiet=False)
        return {"id": id, "value": pages.variable(tracker, frame, text, value, view)}

    def returned(self, id, thread_id, frame_id):
        """The value that was returned into this frame; up to 3.11 it is removed from the frame."""
        frame = self.probe.engine.frame(thread_id, frame_id)
        if MONITORED:
            values = [self.returns.pop(_ident())] if _ident() in self.returns else []
        else:
            values = self.probe.engine.take_returned(frame)
        if not values or self.probe.step_unwinding.left_by_exception(frame):
            return {"id": id}
        return self.shown(id, thread_id, None, "return", values[-1])


def begun(id):
    """A token of work that may be interrupted: interrupts begun, interrupts sent, id, start
    time.
    """
    return [0, 0, id, _now()]


def _raise_in(ident):
    import ctypes

    return ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(ident), ctypes.py_object(Interrupted)
    )


def expression_problem(engine, text):
    """Why the text is not an expression; None if it is one."""
    try:
        engine.check_expression(text)
    except SyntaxError as error:
        return syntax_problem(error)
    except ValueError as error:
        return {"message": str(error)}
    return None


def dedented(text):
    import textwrap

    return textwrap.dedent(text)


def syntax_problem(error):
    return {
        "message": "%s: %s" % (type(error).__name__, getattr(error, "msg", None) or error),
        "line": getattr(error, "lineno", None),
        "offset": getattr(error, "offset", None),
    }


def described(error, trace=None):
    kind = type(error)
    try:
        message = str(error)
    except Exception:
        message = "<no message: str() raised>"
    trace = trace if trace is not None else error.__traceback__
    while trace is not None and is_debuggers_file(trace.tb_frame.f_code.co_filename):
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
