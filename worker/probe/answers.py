"""What the stopped thread itself is asked: evaluations, pages of containers, returned values.

Runs in the program: Python 3.8 to 3.14, standard library only. See `core`.
"""

import _thread
import collections
import itertools
import signal
import sys
import threading
import traceback

_ident = _thread.get_ident
_main_ident = threading.main_thread().ident
RESULT_LIMIT = 65536
ROW_LIMIT = 8192
RETURNED = "__pydevd_ret_val_dict"  # pydevd's name for them

# Containers of which any page can be had without running a line of the program's.
INDEXED = (list, tuple, set, frozenset, collections.deque)
NAMED = (dict, collections.OrderedDict, collections.defaultdict)


class Interrupted(BaseException):
    """Raised into a thread that evaluates for the relay and takes too long."""


class Answers(object):
    def __init__(self, probe):
        self.probe = probe
        self.running = {}  # thread ident → [interrupts begun, interrupts sent]
        probe.commands.update(
            evaluate=self.ask_evaluate,
            page=self.ask_page,
            returned=self.ask_returned,
            returns=self.keep_returns,
            interrupt=self.interrupt,
            running=lambda: len(self.running),
        )

    def ask_evaluate(self, id, frame, text, statements):
        return self.ask_thread_of(frame, id, self.answer, text, statements)

    def ask_page(self, id, reference, start, count):
        return self.ask_thread_of(reference, id, self.page, start, count)

    def keep_returns(self, on):
        """Keep what functions return: only while one is stepped out of, for pydevd puts it among
        the caller's variables, where the program can see it."""
        self.probe.db.show_return_values = on
        return on

    def ask_returned(self, id, frame):
        return self.ask_thread_of(frame, id, self.returned)

    def ask_thread_of(self, dap_reference, id, job, *arguments):
        """Have `job` done by the stopped thread that the frame or variable belongs to."""
        manager = self.probe.db.suspended_frames_manager
        try:
            reference = _ids()._translate_id_from_dap(dap_reference)
        except KeyError:
            return {"gone": True}
        thread_id = manager.get_thread_id_for_variable_reference(reference)
        if thread_id is None:
            return {"gone": True}
        self.probe.db.post_method_as_internal_command(
            thread_id, self.work, id, job, thread_id, reference, *arguments
        )
        return {"gone": False}

    def interrupt(self):
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
        self.probe.emit("relayAnswer", answer)

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
        frame = self.probe.db.find_frame(thread_id, frame_id)
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
        value = variables.evaluate_expression(self.probe.db, frame, text, not is_expression)
        if type(value).__name__ == "ExceptionOnEvaluate":
            return {"id": id, "raised": _describe(value.result, value.tb)}
        if not is_expression:
            return {"id": id, "statement": True}
        return self.shown(id, thread_id, frame, text, value)

    def shown(self, id, thread_id, frame, text, value):
        tracker = self.probe.db.suspended_frames_manager.get_frame_tracker(thread_id)
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
        names = self.probe.db.find_frame(thread_id, frame_id).f_locals
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
        tracker = self.probe.db.suspended_frames_manager.get_frame_tracker(thread_id)
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
