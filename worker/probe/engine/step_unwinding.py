"""Continues a step in the caller if an exception leaves the stepped frame; pydevd would lose it.

pydevd follows a stepped frame to its return. From 3.12 on it does not treat an exception as a
return, so a monitoring tool of our own watches from the first step until all threads run again. Up
to 3.11 pydevd distinguishes by lines whether a generator or coroutine pauses or ends, and treats an
exception that leaves one as a pause: the step would never end. So we look at the last instruction
of the frame instead.
"""

import _thread
import dis
import sys

from debug_relay.worker.probe.engine import monitoring_tool, with_blocks
from debug_relay.worker.probe.engine.frames import MONITORED, visible
from debug_relay.worker.probe.values.class_facts import name_of
from debug_relay.worker.probe.values.rendering import View, clean

_ident = _thread.get_ident
NAME = "relay"
STILL_PASSING = [
    "unknown",
    "the next step shows which one: it has not arrived in this frame yet",
]
FRAMES = 1000  # Frames of a traceback in which the stepped frame is looked for.
WORDS = 300  # Characters of the message of an exception that a step has passed.
_OVER = {"CMD_STEP_RETURN": "CMD_STEP_OVER", "CMD_STEP_RETURN_MY_CODE": "CMD_STEP_OVER_MY_CODE"}


class StepUnwinding(object):
    def __init__(self, probe):
        self.probe = probe
        self.steps = {}  # thread ident → pydevd's facts about the thread, while it steps
        self.raised = set()  # threads whose step's frame was left by an exception
        self.left = {}  # thread ident → the exception that has left that frame, in words
        # thread ident → id of the exception that was handled when a step began, and of the stepped
        # frame, if the exception has come through it
        self.handled = {}
        self.passed = {}  # thread ident → the exception that its last step has passed, in words
        self.tools = []  # ours of sys.monitoring: one while a step may be left by an exception

    def hook(self):
        if not MONITORED:
            self.probe.engine.hooks.around(
                "collect_return_info", "step_unwinding", lambda _: returns_of
            )
            self.probe.engine.hooks.around("do_wait_suspend", "step_unwinding", self.noting)
            return
        constants = sys.modules["_pydevd_bundle.pydevd_comm_constants"]
        over = {getattr(constants, a): getattr(constants, b) for a, b in _OVER.items()}
        # The step that a step becomes in the caller.
        self.commands = over
        self.commands.update([(command, command) for command in over.values()])
        around = self.probe.engine.hooks.around
        around("do_wait_suspend", "step_unwinding", lambda wait: self.waiting(self.noting(wait)))

    def noting(self, wait):
        """Note which exception a step has passed. Where the step ends in a handler, Python knows
        it; from 3.12 on we have also seen it leave the frame.
        """

        def do_wait_suspend(thread, frame, event, arg, exception_type=None):
            ident, error = _ident(), sys.exc_info()[1]
            left, before = self.left.pop(ident, None), self.handled.pop(ident, None)
            if before is not None:
                if event == "exception" and arg:
                    error = arg[1]  # it passes this frame, where the step ends (up to 3.11)
                elif event == "line" and left is None:
                    error = about_to_be_handled(frame) or error
                is_new = error is not None and (
                    id(error) != before[0] or (before[1] and not is_on_stack(frame, before[1]))
                )
                if not is_new and left is None and event == "return" and self.is_left(frame):
                    left = STILL_PASSING
                self.passed[ident] = in_words(error) if is_new else left
            error = None  # no frame of the probe's keeps it
            try:
                wait(thread, frame, event, arg, exception_type)
            finally:
                self.passed.pop(ident, None)
            if thread.additional_info.pydev_step_cmd != -1:
                error = about_to_be_handled(frame) or sys.exc_info()[1]
                self.handled[ident] = id(error), id(frame) if has_passed(error, frame) else None
                error = None

        return do_wait_suspend

    def is_left(self, frame):
        """Whether an exception is about to reach this frame, at whose call the step ends. Up to
        3.11 nothing tells which one before it arrives.
        """
        return not MONITORED and self.left_by_exception(frame)

    def passed_now(self):
        """[type, message] of the exception that this thread's step has passed; else None."""
        return self.passed.get(_ident())

    def waiting(self, wait):
        def do_wait_suspend(thread, frame, event, arg, exception_type=None):
            ident = _ident()
            self.steps.pop(ident, None)
            wait(thread, frame, event, arg, exception_type)
            self.raised.discard(ident)
            info = thread.additional_info
            if info.pydev_step_cmd in self.commands and info.pydev_step_stop is not None:
                self.steps[ident] = info
                if not self.tools:
                    self.tools.extend(taken(self.unwound))
            elif not self.steps:
                self.forget()

        return do_wait_suspend

    def unwound(self, code, offset, error):
        """Called by Python, in the thread whose frame an exception leaves."""
        info = self.steps.get(_ident())
        if info is None or info.pydev_step_cmd not in self.commands:
            return
        frame = sys._getframe(1)
        if info.pydev_step_stop is not frame:
            return
        self.raised.add(_ident())
        self.left[_ident()] = in_words(error)
        db, known, back = self.probe.engine.db, {}, frame.f_back
        while back is not None and visible(db, back, known) is None:
            back = back.f_back
        if back is None:
            return  # the end of the thread
        # The step ends at the next line there: that of the handler in this frame or in a caller.
        info.pydev_step_cmd, info.pydev_step_stop = self.commands[info.pydev_step_cmd], back
        info.update_stepping_info()
        db.set_trace_for_frame_and_parents(_ident(), back)

    def left_by_exception(self, frame):
        """Whether an exception has ended the function that was stepped out of; the thread has just
        stopped in this frame, its caller.
        """
        if MONITORED:
            return _ident() in self.raised
        above = sys._getframe()
        while above is not None and above.f_back is not frame:
            above = above.f_back
        if above is None or visible(self.probe.engine.db, above, {}) is None:
            return False
        return not is_pause(above) and _name(above, 0) != "RETURN_VALUE"

    def forget(self):
        """Free the tool number. Several threads may do so at once, when all of them are resumed or
        the relay detaches: only the one that pops a number frees it.
        """
        while self.tools:
            try:
                tool = self.tools.pop()
            except IndexError:
                return  # another thread was quicker
            monitoring = sys.monitoring
            if monitoring.get_tool(tool) == NAME:
                monitoring.set_events(tool, 0)
                monitoring.register_callback(tool, monitoring.events.PY_UNWIND, None)
                monitoring.free_tool_id(tool)

    def remove(self):
        self.steps.clear()
        self.handled.clear()
        self.left.clear()
        self.forget()


def taken(unwound):
    """Take a free tool number, and have Python call `unwound` for each frame that an exception
    leaves; returns the numbers taken: none if none is free.
    """
    monitoring, tool = sys.monitoring, monitoring_tool.free()
    if tool is None:
        return []
    try:
        monitoring.use_tool_id(tool, NAME)
    except ValueError:
        return []  # another thread, or the program, has taken it meanwhile
    monitoring.register_callback(tool, monitoring.events.PY_UNWIND, unwound)
    monitoring.set_events(tool, monitoring.events.PY_UNWIND)
    return [tool]


def has_passed(error, frame):
    """Whether the exception has come through the frame, or begins there."""
    step = None if error is None else BaseException.__traceback__.__get__(error)
    for _ in range(FRAMES):
        if step is None or step.tb_frame is frame:
            return step is not None
        step = step.tb_next
    return False


def is_on_stack(frame, id_of_frame):
    while frame is not None and id(frame) != id_of_frame:
        frame = frame.f_back
    return frame is not None


def about_to_be_handled(frame):
    """The exception that the frame's handler is about to get: from 3.11 on a `with` block stops
    there, and only the frame's stack has the exception yet. None for any other frame.
    """
    if sys.version_info < (3, 11) or _name(frame, 0) != "PUSH_EXC_INFO":
        return None
    return with_blocks.pushed(frame)


def is_pause(frame):
    """Whether the frame's last instruction was a yield or an await, up to 3.11."""
    # Up to 3.10 an await moves the instruction pointer back, to be done again.
    return _name(frame, 0) == "YIELD_VALUE" or _name(frame, 2) == "YIELD_FROM"


def in_words(error):
    """[type, message], without running any of the program's code."""
    try:
        args = BaseException.args.__get__(error)
        message = clean(args[0]) if len(args) == 1 and type(args[0]) is str else ""
        if not message and args:
            message = View("safe", WORDS).text(args if len(args) > 1 else args[0])
        return [name_of(type(error)), message[:WORDS]]
    except Exception:
        return [name_of(type(error)), ""]


def _name(frame, behind):
    code, at = frame.f_code.co_code, frame.f_lasti + behind
    return dis.opname[code[at]] if at < len(code) else ""


# -- up to 3.11


def returns_of(code):
    """The lines at which a generator's code returns and does not pause, in the form that pydevd
    needs.
    """
    return [_Return(code, line) for line in {line for _, line in dis.findlinestarts(code)}]


class _Return(object):
    def __init__(self, code, line):
        self.return_line = _Line(line)
        self.return_line.code = code


class _Line(int):
    """A number that equals the line only while the frame is really returning there."""

    __hash__ = int.__hash__

    def __eq__(self, line):
        if not int.__eq__(self, line):
            return False
        frame = sys._getframe(1)
        while frame is not None and frame.f_code is not self.code:
            frame = frame.f_back
        return frame is not None and not is_pause(frame)
