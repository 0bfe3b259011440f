"""Decides which exceptions that leave a frame are uncaught, from Python 3.12 on.

Python calls our function, in place of pydevd's, for each frame that an exception leaves. pydevd's
function walks the whole stack to find the outermost frame, and sets an attribute on the exception
to recognise it: the program sees that, and cannot load a pickle of the exception elsewhere. Our
function looks at the caller of the frame, and sets and keeps nothing.
"""

import sys

from debug_relay.worker.probe.engine import stack_overflow as overflow
from debug_relay.worker.probe.engine.frames import MONITORED

_MODULE = "_pydevd_sys_monitoring._pydevd_sys_monitoring"
_trace = BaseException.__dict__["__traceback__"].__get__
_getframe = sys._getframe
# The callers of the first function of a program or a thread, as in pydevd: file → functions.
_RUNPY = ("_run_code", "_run_module_code", "_run_module_as_main", "run_module", "run_path", "run")
_STARTERS = {
    "threading": ("__bootstrap", "_bootstrap", "__bootstrap_inner", "_bootstrap_inner", "run"),
    "pydev_monkey": ("__call__",),
    "pydevd": ("_exec", "run", "main"),
    "pydevd_runpy": _RUNPY,
    "runpy": _RUNPY,
    "<frozen runpy>": _RUNPY,
}
_NAMES = frozenset(name for names in _STARTERS.values() for name in names)


class UncaughtExceptions(object):
    def __init__(self, probe):
        self.probe = probe

    def hook(self):
        module = sys.modules.get(_MODULE)
        if module is None or not MONITORED:
            return
        self.pydevd = module
        former, unwound = module._unwind_event, self.callback()
        self.probe.engine.hooks.swap(module, "_unwind_event", unwound)
        overflow.replace(sys.monitoring.events.PY_UNWIND, former, unwound)

    def callback(self):
        db, leaves = self.probe.engine.db, self.leaves

        def unwound(code, offset, error):
            """Python calls this for each frame that any exception leaves; mostly it ends here."""
            try:
                frame = _getframe(1)
                caller = frame.f_back
                is_last = caller is None or (
                    caller.f_code.co_name in _NAMES and starts_program(caller.f_code)
                )
                if is_last or db.break_on_user_uncaught_exceptions:
                    leaves(frame, error, is_last)
            except RecursionError:
                # There is no room on the stack: `stack_overflow` says why that is silent.
                if not isinstance(error, RecursionError):
                    raise

        return unwound

    def leaves(self, frame, error, is_last):
        """Do what pydevd's `_unwind_event` does. `is_last`: no frame of the program is below."""
        pydevd, db, trace = self.pydevd, self.probe.engine.db, _trace(error)
        thread = pydevd._get_thread_info(True, 1)
        if thread is None or trace is None or db.pydb_disposed:
            return
        if not thread.trace or not thread.is_thread_alive():
            return
        known = pydevd._get_func_code_info(frame.f_code, frame)
        if known.always_skip_code:
            return
        raised = type(error), error, trace
        if db.break_on_user_uncaught_exceptions:
            this_thread = self.probe.this_thread
            this_thread.leaving = True
            try:
                _, at, left = pydevd.should_stop_on_exception(
                    db, thread.additional_info, frame, thread.thread, raised, None, is_unwind=True
                )
            finally:
                this_thread.leaving = False
            if left and self.is_unhandled(known, at, left):
                how = pydevd.EXCEPTION_TYPE_USER_UNHANDLED
                pydevd.handle_exception(db, thread.thread, at, left[0], how)
                return
        # If `Thread.run` itself is left, the frame above it was the last one before.
        passed_one = trace.tb_next is not None and starts_program(frame.f_code)
        if is_last and not passed_one and db.break_on_uncaught_exceptions:
            pydevd.stop_on_unhandled_exception(db, thread.thread, thread.additional_info, raised)

    def is_unhandled(self, known, frame, left):
        pydevd, db = self.pydevd, self.probe.engine.db
        if known.try_except_container_obj is None:
            found = db.collect_try_except_info(frame.f_code)
            known.try_except_container_obj = pydevd._TryExceptContainerObj(found)
        return pydevd.is_unhandled_exception(
            known.try_except_container_obj, db, frame, left[1], left[2]
        )


def starts_program(code):
    """Whether the function that this code calls is a program's or a thread's first."""
    name, file = code.co_name, code.co_filename.rpartition("/")[2]
    return name in _STARTERS.get(file[:-3] if file.endswith(".py") else file, ())
