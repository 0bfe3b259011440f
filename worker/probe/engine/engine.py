"""The verbs by which the probe's features use the debugger: no module outside this folder knows it.

Runs in the program: Python 3.8 to 3.15, standard library only.

Modules outside `engine/` know frames, and threads by the debugger's numbers, but none of the
debugger's objects. `db`, its main object, is for the modules of this folder.

Two additions are planned and belong here. Up to 3.11: tracing only while a breakpoint, an
exception, a step or a pause needs it. From 3.12 on: line events of our own, in a module beside
`monitoring_tool`; it decides a hit by the phases of `handle_breakpoint_condition` and uses the
debugger only to stop.
"""

import _thread
import sys

from debug_relay.worker.probe.engine.frames import MONITORED, Folded, stack, top_of, visible
from debug_relay.worker.probe.engine.hooks import Hooks
from debug_relay.worker.probe.engine.library_files import is_library
from debug_relay.worker.probe.values.class_facts import Debugger

_allocate_lock = _thread.allocate_lock
# A message is sent within this time. Sending takes 0.1 ms, on a busy machine up to some 100 ms.
_SENDING_SECONDS = 0.5
_BUNDLE = "_pydevd_bundle.pydevd_"
_NO_NAME = "<a function breakpoint's>"
_RETURNED = "__pydevd_ret_val_dict"  # pydevd's variable for returned values, up to 3.11
_VARIABLES = frozenset((_RETURNED, "__return__", "__exception__", "_pydev_stop_at_break"))
_THREAD_ATTRIBUTES = frozenset(
    ("stop_reason", "pydev_do_not_trace", "is_pydev_daemon_thread", "__pydevd_id__")
)


class Engine(object):
    def __init__(self, db, gone):
        hide_debugger()
        self.db = db
        self.gone = gone  # names that this debugpy lacks
        self.hooks = Hooks(db)

    # -- the connection

    def is_ready(self):
        """Whether the handshake is over."""
        return self.db.ready_to_run

    def listen(self, listener):
        """`listener` has `before_send` and `after_receive`, called for each message."""
        self.db._dap_messages_listeners.append(listener)

    def unlisten(self, listener):
        if listener in self.db._dap_messages_listeners:
            self.db._dap_messages_listeners.remove(listener)

    def on_end(self, ended):
        """`ended(wait, timeout)` replaces the function that ends the debugger's threads."""
        self.db.dispose_and_kill_all_pydevd_threads = ended

    def spawn(self, function, *arguments):
        """Call it in a new thread of the debugger's: hidden, not traced, not waited for."""
        daemon = sys.modules[_BUNDLE + "daemon_thread"].PyDBDaemonThread
        daemon(self.db, (function, arguments, {})).start()

    def around_commands(self, make):
        """Replace the function by which a thread of the program runs a command of the
        debugger's.
        """
        command = sys.modules[_BUNDLE + "comm"].InternalThreadCommand
        original = command.do_it

        def do_it(this, db):
            return made(this, db)

        made = make(original)
        self.hooks.swap(command, "do_it", do_it)

    def on_thread_start(self, function):
        """Make each of the debugger's threads call `function` when it begins."""
        daemon = sys.modules[_BUNDLE + "daemon_thread"].PyDBDaemonThread
        stop_trace = daemon._stop_trace

        def begin(thread):
            stop_trace(thread)
            function()

        self.hooks.swap(daemon, "_stop_trace", begin)

    # -- to the relay

    def emit(self, event, body, until_sent=False):
        self.send({"type": "event", "event": event, "body": body}, until_sent)

    def send(self, message, until_sent=False):
        """Send a message. `until_sent` waits, within a bound, until the kernel has it."""
        command = sys.modules[_BUNDLE + "net_command"].NetCommand
        writer = self.db.writer
        if writer is not None:
            encoded = command(0, 0, message, is_json=True)
            until_sent = until_sent and writer.is_alive()
            if until_sent:
                sent = _allocate_lock()
                sent.acquire()
                encoded.call_after_send(lambda _: sent.release())
            writer.add_command(encoded)
            if until_sent:
                sent.acquire(True, _SENDING_SECONDS)

    def until_sent(self, seconds):
        """Wait until all emitted messages are written, at most `seconds`."""
        try:
            pause = sys.modules["threading"].Event().wait
            for _ in range(int(seconds / 0.005)):
                if self.db.writer is None or self.db.writer.empty():
                    break
                pause(0.005)
            pause(0.001)  # the writer may have taken a message and not written it yet
        except Exception:  # noqa: S110  an end must come whatever is left of the debugger
            pass

    # -- numbers: those of DAP for threads, frames and variables differ from pydevd's

    def dap_id(self, id):
        return _ids()._translate_id_to_dap(id)

    def inner_id(self, dap_id):
        """pydevd's number for this number of DAP; KeyError if it is gone."""
        return _ids()._translate_id_from_dap(dap_id)

    def owner_of(self, dap_reference):
        """The stopped thread to which a frame or variable belongs, and pydevd's number for that."""
        try:
            reference = self.inner_id(dap_reference)
        except KeyError:
            return None, None
        # A scope is a frame's variables of one kind.
        reference = getattr(reference, "variable_reference", reference)
        manager = self.db.suspended_frames_manager
        return manager.get_thread_id_for_variable_reference(reference), reference

    # -- stopped threads

    def post(self, thread_id, function, *arguments):
        """Make a stopped thread call `function`."""
        self.db.post_method_as_internal_command(thread_id, _call, function, *arguments)

    def frames(self, thread_id):
        """The frames of a stopped thread, from the top; None for a thread that runs."""
        return self.db.suspended_frames_manager.get_frames_list(thread_id)

    def frame(self, thread_id, number):
        return self.db.find_frame(thread_id, number)

    def tracker(self, thread_id):
        """The object that numbers the variables of a stopped thread's frames."""
        return self.db.suspended_frames_manager.get_frame_tracker(thread_id)

    def on_stop_event(self, reported, place, passed, changes):
        """Call `reported(thread_id)` when the event `stopped` is created. The event also contains
        `place(thread_id)`, so that the worker need not request the stack; `passed()`, the exception
        that the step has passed; and `changes()`, which watchpoints have seen.
        """
        factory = sys.modules[_BUNDLE + "net_command_factory_json"].NetCommandFactoryJson
        of_all = "make_thread_suspend_single_notification"
        of_one = "make_thread_suspend_message"
        make_for_all, make_for_one = getattr(factory, of_all), getattr(factory, of_one)

        def with_place(message, thread_id):
            reported(thread_id)
            try:
                found = place(thread_id)
            except Exception:
                found = None  # no stop may be lost, whatever the thread's frames are
            if found is None:
                return message
            event = message.as_dict
            event["body"]["relayPlace"] = found
            event["body"]["relayPassed"] = passed()
            event["body"]["relayChanges"] = changes()
            return type(message)(message.id, message.seq, event, is_json=True)

        def told_for_all(this, db, thread_id, *arguments):
            message = make_for_all(this, db, thread_id, *arguments)
            return with_place(message, thread_id) if db is self.db else message

        def told_for_one(this, db, thread_id, *arguments):
            message = make_for_one(this, db, thread_id, *arguments)
            if db is self.db and not db.multi_threads_single_notification:
                message = with_place(message, thread_id)
            return message

        self.hooks.swap(factory, of_all, told_for_all)
        self.hooks.swap(factory, of_one, told_for_one)

    def stack(self, listed, most, count=True):
        return stack(self.db, listed, most, count)

    def folded(self, listed, most, fold):
        return Folded(self.db, listed, most, fold)

    def top_of(self, listed):
        return top_of(self.db, listed)

    def visible(self, frame, known):
        return visible(self.db, frame, known)

    # -- evaluating, in the stopped thread

    def evaluate(self, frame, text, is_exec):
        """Make the debugger evaluate, without its own deadline, which would cost a thread."""
        evaluate = sys.modules[_BUNDLE + "vars"].evaluate_expression
        return getattr(evaluate, "__wrapped__", evaluate)(self.db, frame, text, is_exec)

    def check_expression(self, text):
        """Raise SyntaxError or ValueError if the text is not an expression."""
        sys.modules[_BUNDLE + "vars"].compile_as_eval(text)

    def save_locals(self, frame):
        sys.modules[_BUNDLE + "save_locals"].save_locals(frame)

    def keep_returns(self, on):
        self.db.show_return_values = on

    def take_returned(self, frame):
        """Remove from this frame the values that were returned into it (up to 3.11);
        returns them.
        """
        return list((frame.f_locals.pop(_RETURNED, None) or {}).values())

    def on_return(self, keep):
        """From 3.12 on, call `keep(value)` with the value that a step out returns. The debugger
        would put it among the caller's variables, where the program sees it, and so the value of
        every function that returns.
        """
        if not MONITORED:
            return
        module = sys.modules["_pydevd_sys_monitoring._pydevd_sys_monitoring"]
        same, current = module._is_same_frame, sys.modules["threading"].current_thread

        def show(frame, value):
            info = getattr(current(), "additional_info", None)
            if info is not None and same(info, info.pydev_step_stop, frame):
                keep(value)

        self.hooks.swap(module, "_show_return_values", show)

    def hold_breakpoint_calls(self, unless):
        """Ignore `breakpoint()` in an evaluation: the thread would resume, and stop elsewhere."""
        module, name = sys.modules["pydevd"], "_locked_settrace"
        set_trace = getattr(module, name)

        def unless_asked(*arguments, **named):
            if not unless():
                set_trace(*arguments, **named)

        self.hooks.swap(module, name, unless_asked)

    # -- exceptions

    def table_of(self, table):
        """The debugger's table of exceptions of this kind."""
        if table is self.db.break_on_uncaught_exceptions:
            return "uncaught"
        return "raised" if table is self.db.break_on_caught_exceptions else "user"

    def stop_uncaught(self, error):
        """Stop this thread at an exception that has left its last frame (up to 3.11)."""
        stop = sys.modules[_BUNDLE + "breakpoints"].stop_on_unhandled_exception
        thread = sys.modules["threading"].current_thread()
        raised = type(error), error, error.__traceback__
        stop(self.db, thread, thread.additional_info, raised)
        self.db.enable_tracing()  # exit functions are traced

    def is_below_own(self, frame):
        """Whether the frame is the debugger's, or a library's that the debugger has called: there a
        stack overflow may end.
        """
        while frame is not None:
            path = frame.f_code.co_filename
            if path.startswith("<frozen relay>"):
                return False  # this frame runs the program
            if "_pydevd_" in path or self.is_own(frame):
                return True
            if not is_library(path):
                return False
            frame = frame.f_back
        return False

    # -- files and frames of any thread

    def is_own(self, frame):
        """Whether the frame is the debugger's."""
        return self.db.get_file_type(frame) == self.db.PYDEV_FILE

    def place_of(self, frame):
        """(the path of the frame's file, the debugger's name for the file)."""
        files = sys.modules["pydevd_file_utils"]
        return files.get_abs_path_real_path_and_base_from_frame(frame)[:2]

    def canonical(self, path):
        """The debugger's name for a file."""
        return sys.modules["pydevd_file_utils"].canonical_normalized_path(path)

    def is_decompiled(self, number):
        """Whether the source of that number is rebuilt from a frame's byte code."""
        files = sys.modules["pydevd_file_utils"]
        return files.get_frame_id_from_source_reference(number) is not None

    def trust(self, code):
        """Treat this code as the program's own, whoever calls it first. pydevd would treat the
        first function of a thread as a library's, where no exception is uncaught (3.12+).
        """
        if not self.gone:
            kinds = type(self.db).get_cache_file_type(self.db)  # the object has our replacement
            kinds[(code.co_firstlineno, code.co_filename, code)] = None

    # -- stopping

    def suspend_at_breakpoint(self, thread):
        """Stop this thread at the line that it has reached."""
        reason = sys.modules[_BUNDLE + "comm_constants"].CMD_SET_BREAK
        self.db.set_suspend(thread, reason, suspend_other_threads=True)

    def stop_on_entry(self):
        """Stop at the program's first line."""
        api = sys.modules[_BUNDLE + "api"].PyDevdAPI()
        getattr(api, "stop_on_entry", int)()  # if it is missing, `names.missing` has reported it

    def current_thread_id(self):
        constants = sys.modules[_BUNDLE + "constants"]
        return constants.get_current_thread_id(sys.modules["threading"].current_thread())

    # -- lines at which pydevd calls the probe

    def watch_new_code(self, on):
        """Make pydevd examine new code in files without breakpoints too. It does so while it has a
        function breakpoint; we give it one that names no function.
        """
        api = sys.modules[_BUNDLE + "api"].PyDevdAPI()
        if not on:
            api.set_function_breakpoints(self.db, [])
        elif not self.db.function_breakpoint_name_to_breakpoint:
            breakpoint = sys.modules[_BUNDLE + "breakpoints"].FunctionBreakpoint
            nowhere = breakpoint(0, _NO_NAME, "False", None, "NONE", None, False)
            api.set_function_breakpoints(self.db, [nowhere])

    def forget_kinds(self):
        """Make the debugger look up again what kind of file each code is of."""
        self.db.get_cache_file_type().clear()

    def file_of(self, path):
        """(the file's path, the debugger's name for it, whether it is the debugger's own)."""
        files = sys.modules["pydevd_file_utils"]
        place = files.get_abs_path_real_path_and_base_from_file(path)
        own = path.startswith(("<relay", "<frozen"))
        if not path.startswith("<"):
            frame = sys.modules[_BUNDLE + "api"].PyDevdAPI._DummyFrame(path)
            own = type(self.db).get_file_type(self.db, frame, place) == self.db.PYDEV_FILE
        return place[0], place[1], own

    def breakpoint_at(self, frame):
        """The debugger's breakpoint at a frame's line, or None."""
        lines = self.db.breakpoints.get(self.place_of(frame)[1]) or {}
        return lines.get(frame.f_lineno)

    def decide(self, info, breakpoint, frame):
        """Whether a hit stops: all phases of `handle_breakpoint_condition`."""
        return self.db.handle_breakpoint_condition(info, breakpoint, frame)

    def breakpoints_changed(self, removed=False):
        self.db.on_breakpoints_changed(removed=removed)


def hide_debugger():
    """Do not show values that pydevd keeps in the program's threads and frames."""
    Debugger.variables = _VARIABLES
    Debugger.thread_attributes = _THREAD_ATTRIBUTES
    Debugger.shared_attribute = "additional_info"
    Debugger.modules = ("debug_relay.worker.", "_pydev", "pydevd")


def real_path(path):
    return sys.modules["pydevd_file_utils"].get_abs_path_real_path_and_base_from_file(path)[1]


def is_debuggers_thread(thread):
    return isinstance(thread, sys.modules["_pydevd_bundle.pydevd_daemon_thread"].PyDBDaemonThread)


def mark_debuggers_thread(thread):
    """Treat it as one of the debugger's own threads: hidden, not traced, not waited for."""
    thread.daemon = thread.is_pydev_daemon_thread = thread.pydev_do_not_trace = True


def is_debuggers_module(name):
    return name.startswith(("pydevd", "_pydev", "debugpy"))


def is_debuggers_file(path):
    """Whether a path is of the debugger itself or of the probe."""
    return path.startswith("<frozen relay") or "/debugpy/_vendored/" in path


def _call(db, function, *arguments):
    function(*arguments)


def _ids():
    """The class that maps pydevd's own numbers to those of its DAP messages."""
    return sys.modules["_pydevd_bundle._debug_adapter.pydevd_base_schema"].BaseSchema
