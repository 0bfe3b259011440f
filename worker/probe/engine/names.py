"""Every inner name of pydevd and debugpy that the engine relies on: each once, with its reason.

Runs in the program: Python 3.8 to 3.15, standard library only.

`missing` says which of them this debugpy lacks. A launched program is then debugged by plain DAP,
and its session's console output says why; an attach is refused. Either is decided before any
hook is put in, so no lacking name is ever met in a thread of the program. Without one of
`ESSENTIAL` there is no plain DAP either: the launch fails and names it.

A debugpy upgrade begins here: `tests/contract/pydevd/test_debugpy_facts.py` looks each name up
under every Python.
"""

import sys

DB = "PyDB"  # the one debugger object of the process
TRACKER = "tracker"  # the object that keeps a stop's frames and variables

# The Pythons that a name is needed for.
EVERY = "3.8-3.15"
TRACING = "3.8-3.11"  # sys.settrace
IN_PYTHON = "3.8-3.11, where debugpy has no compiled tracer"
COMPILED = "3.8-3.11, where debugpy has a compiled tracer"
MONITORING = "3.12-3.15"  # sys.monitoring

_BUNDLE = "_pydevd_bundle.pydevd_"
_SCHEMA = "_pydevd_bundle._debug_adapter.pydevd_base_schema"
_MONITOR = "_pydevd_sys_monitoring._pydevd_sys_monitoring"

# (module or one of the above, for which Pythons, {name: what we do with it})
_TABLE = (
    (DB, EVERY, {
        # Replaced on the object: see `hooks`.
        "handle_breakpoint_condition": "replaced: we decide whether a hit stops",
        "get_exception_breakpoint": "replaced: which exceptions are examined",
        "exclude_exception_by_filter": "replaced: where an exception stops, once for each",
        "send_caught_exception_stack": "replaced: the last decision before a stop at an exception",
        "set_suspend": "replaced: one stop at a time",
        "do_wait_suspend": "replaced: all that belongs to a stopped thread",
        "_do_wait_suspend": "replaced: a signal's exception waits until the thread resumes",
        "notify_thread_not_alive": "replaced: threads that ended are forgotten",
        "get_file_type": "replaced: called for each file before its first line runs",
        "_internal_get_file_type": "replaced: files are recognised by their folder, not by name",
        "get_cache_file_type": "replaced (3.12+): a file may be loaded again",
        "collect_return_info": "replaced (up to 3.11): a pause of a generator is no return",
        "set_trace_for_frame_and_parents": "replaced: deep stacks; traces a thread's frames",
        "set_tracing_for_untraced_contexts": "replaced: frames are read without a collection",
        "enable_tracing": "replaced (up to 3.11): who traces which thread; ends with a detach",
        "disable_tracing": "replaced (up to 3.11): the same",
        "process_internal_commands": "replaced (up to 3.11): looks for threads without tracer",
        "dispose_and_kill_all_pydevd_threads": "replaced: the end of the program and of a detach",
        "wait_for_ready_to_run": "replaced in children: a handshake with a deadline",
        "_create_check_output_thread": "replaced: a thread of no use to us",
        # Called or read.
        "post_method_as_internal_command": "makes a stopped thread call a function",
        "find_frame": "a frame by its number",
        "suspended_frames_manager": "frames and variables of stopped threads",
        "suspended_frames_manager.get_frames_list": "the frames of a stopped thread",
        "suspended_frames_manager.get_frame_tracker": "what numbers a stop's variables",
        "suspended_frames_manager.get_thread_id_for_variable_reference": "a variable's thread",
        "suspended_frames_manager.track_frames": "replaced: lower frames are registered on request",
        "suspended_frames_manager._variable_reference_to_frames_tracker": "for later frames",
        "breakpoints": "the table of lines with breakpoints",
        "file_to_id_to_line_breakpoint": "the table of breakpoints by their numbers",
        "function_breakpoint_name_to_breakpoint": "one entry makes pydevd examine new code",
        "on_breakpoints_changed": "after a change of the tables",
        "mtime": "the number of that change",
        "_clear_caches": "pydevd examines code anew",
        "break_on_caught_exceptions": "the table of exceptions when raised",
        "break_on_uncaught_exceptions": "the table of uncaught exceptions",
        "break_on_user_uncaught_exceptions": "the table of exceptions that leave the user's code",
        "collect_try_except_info": "whether an exception is handled in its frame",
        "is_files_filter_enabled": "just_my_code",
        "apply_files_filter": "just_my_code",
        "get_require_module_for_filters": "just_my_code",
        "get_use_libraries_filter": "just_my_code: which kind of step",
        "PYDEV_FILE": "the kind of the debugger's own files",
        "multi_threads_single_notification": "whether one stop halts all threads",
        "threads_suspended_single_notification._pause_requested": "of one stop for all threads",
        "_threads_suspended_single_notification.increment_suspend_time": "reports a stop again",
        "show_return_values": "what a step out has returned",
        "get_internal_queue_and_event": "wakes a stopped thread",
        "_cmd_queue.default_factory": "the queues of commands, without a lost one",
        "_thread_events.default_factory": "the events of stopped threads, without a lost one",
        "_py_db_command_thread_event": "wakes the command thread",
        "_running_thread_ids": "threads that pydevd has reported",
        "authentication.is_authenticated": "no request of ours before that",
        "dap_messages_listeners": "see our requests as well",
        "_dap_messages_listeners": "when the relay was heard last",
        "writer": "sends our events",
        "reader": "whose socket it is",
        "cmd_factory.make_exit_command": "the last message",
        "created_pydb_daemon_threads": "the debugger's threads, to end them",
        "ready_to_run": "whether the handshake is over",
        "pydb_disposed": "whether the debugger has ended",
    }),
    (DB, IN_PYTHON, {
        "has_plugin_line_breaks": "left to pydevd",
        "quitting": "left to pydevd",
        "trace_dispatch": "examines a frame anew",
    }),
    ("pydevd", EVERY, {
        "settrace": "connects",
        "PyDB.connect": "replaced while we connect: token, TCP_NODELAY, whole messages",
        "PyDB.initialize_network": "starts reader and writer",
        "_locked_settrace": "replaced: no breakpoint() in what is evaluated",
        "get_global_debugger": "whether one is there",
        "install_breakpointhook": "breakpoint() stops",
        "stoptrace": "what it does at exit, taken back",
        "threadingEnumerate": "threads that are left out of tracing",
        "time": "a fixed sleep is skipped while we connect",
        "SetupHolder.setup": "a later session's settings are its own",
        "_set_trace_lock": "a handshake that somebody has left",
        "_global_redirect_stdout_to_server": "ends with the detach",
        "_global_redirect_stderr_to_server": "ends with the detach",
    }),
    ("pydevd", MONITORING, {
        "pydevd_sys_monitoring.update_monitor_events": "after a change of breakpoints",
        "pydevd_sys_monitoring.restart_events": "after a change of breakpoints",
    }),
    ("pydevd_tracing", EVERY, {
        "set_trace_to_threads": "traces a thread from outside",
        "_load_python_helper_lib": "ends tracing from outside",
        "_internal_set_trace": "is called by the program's sys.settrace",
        "restore_sys_set_trace_func": "gives sys.settrace back",
        "TracingFunctionHolder._original_tracing": "replaced: a tracer of the program's own",
    }),
    ("pydevd_file_utils", EVERY, {
        "get_abs_path_real_path_and_base_from_frame": "where a frame's file is",
        "get_abs_path_real_path_and_base_from_file": "where a file is",
        "canonical_normalized_path": "what pydevd calls a file",
        "map_file_to_client": "the path that is shown",
        "get_frame_id_from_source_reference": "whether a source is rebuilt from byte code",
    }),
    (_BUNDLE + "api", EVERY, {
        "PyDevdAPI.set_function_breakpoints": "makes pydevd examine new code",
        "PyDevdAPI.stop_on_entry": "stops at the program's first line",
        "PyDevdAPI.remove_all_breakpoints": "detach",
        "PyDevdAPI.remove_all_exception_breakpoints": "detach",
        "PyDevdAPI.set_enable_thread_notifications": "detach",
        "PyDevdAPI._DummyFrame": "a file is examined without a frame",
        "resume_threads": "replaced: no thread resumes that has just begun to stop",
    }),
    (_BUNDLE + "comm", EVERY, {
        "resume_threads": "replaced: the same",
        "InternalThreadCommand.do_it": "replaced at an attach: may be interrupted",
        "_queue.Queue": "replaced while we connect: gevent would block it",
        "time.sleep": "replaced: it would give up the interpreter after each message",
        "notify_about_gevent_if_needed": "replaced: it would print on the program's stderr",
    }),
    (_BUNDLE + "thread_lifecycle", EVERY, {
        "mark_thread_suspended": "halts a thread whose turn it is not",
        "pydevd_find_thread_by_id": "a thread by its number",
        "resume_threads": "detach",
    }),
    (_BUNDLE + "thread_lifecycle", MONITORING, {
        "pydevd_sys_monitoring.restart_events": "halts one thread",
    }),
    (_BUNDLE + "comm_constants", EVERY, {
        "CMD_SET_BREAK": "reason of a stop: a breakpoint",
        "CMD_THREAD_SUSPEND": "reason of a stop: another thread's",
        "CMD_STEP_CAUGHT_EXCEPTION": "reason of a stop: raised",
        "CMD_ADD_EXCEPTION_BREAK": "reason of a stop: uncaught",
        "CMD_STEP_OVER": "a step",
        "CMD_STEP_OVER_MY_CODE": "a step",
        "CMD_STEP_INTO": "a step",
        "CMD_STEP_INTO_MY_CODE": "a step",
        "CMD_STEP_RETURN": "a step",
        "CMD_STEP_RETURN_MY_CODE": "a step",
    }),
    (_BUNDLE + "constants", EVERY, {
        "EXCEPTION_TYPE_HANDLED": "the kind of a stop, as the worker reads it",
        "EXCEPTION_TYPE_UNHANDLED": "the same",
        "EXCEPTION_TYPE_USER_UNHANDLED": "the same",
        "PYDEVD_USE_SYS_MONITORING": "how pydevd listens",
        "USE_CYTHON_FLAG": "whether pydevd is compiled",
        "SUPPORT_GEVENT": "whether the debugger has its own copies of modules",
        "NULL": "a stream for what pydevd would log",
        "get_thread_id": "the number of a thread",
        "get_current_thread_id": "the number of this thread",
        "_get_or_compute_thread_id_with_lock": "replaced: threads are counted, not held",
        "_thread_id_lock": "around that number",
        "get_pid": "in that number",
        "get_global_debugger": "whether a debugger is in use",
        "set_global_debugger": "forgets the debugger",
        "GlobalDebuggerHolder.global_dbg": "forgets the debugger in a forked child",
        "after_fork": "in a forked child",
    }),
    (_BUNDLE + "additional_thread_info", EVERY, {
        "PyDBAdditionalThreadInfo.pydev_state": "whether a thread is suspended",
        "PyDBAdditionalThreadInfo.pydev_step_cmd": "what a thread's step is",
        "PyDBAdditionalThreadInfo.pydev_original_step_cmd": "what a thread's step was",
        "PyDBAdditionalThreadInfo.pydev_step_stop": "the frame that steps",
        "PyDBAdditionalThreadInfo.update_stepping_info": "after a change of the step",
        "PyDBAdditionalThreadInfo.hit_breakpoint_ids": "which breakpoints are reported",
        "PyDBAdditionalThreadInfo.is_tracing": "pydevd's guard against itself",
        "PyDBAdditionalThreadInfo.get_topmost_frame": "where a thread is",
        "PyDBAdditionalThreadInfo.thread_tracer": "what traces a thread",
        "PyDBAdditionalThreadInfo.top_level_thread_tracer_unhandled": "freed with its thread",
        "PyDBAdditionalThreadInfo.top_level_thread_tracer_no_back_frames": "freed with its thread",
        "remove_additional_info": "freed with its thread",
    }),
    (_BUNDLE + "breakpoints", EVERY, {
        "LineBreakpoint.has_condition": "a line with a breakpoint",
        "FunctionBreakpoint": "makes pydevd examine new code",
        "stop_on_unhandled_exception": "stops at the program's own end",
    }),
    (_BUNDLE + "suspended_frames", EVERY, {
        "_FrameVariable": "makes a frame's variable",
        "_FramesTracker.get_variable": "the variable of a number",
        "_FramesTracker._register_variable": "a number for what can be opened",
    }),
    (TRACKER, EVERY, {
        "_lock": "around what is made later",
        "_untracked": "whether the stop is over",
        "_suspended_frames_manager": "whose tracker it is",
        "_thread_id_to_frames_list": "the frames of a stopped thread",
        "_thread_id_to_frame_ids": "the same by their numbers",
        "_frame_id_to_frame": "a frame by its number",
        "_frame_id_to_main_thread_id": "whose frame it is",
        "_variable_reference_to_variable": "freed at the resume",
        "track": "extended: lower frames later",
        "find_frame": "extended: lower frames later",
        "untrack_all": "extended: opened variables are freed",
    }),
    (_BUNDLE + "frame_utils", EVERY, {
        "FramesList().frame_id_to_lineno": "the lines that an exception has passed",
        "FramesList().chained_frames_list": "the causes of an exception",
    }),
    (_BUNDLE + "net_command", EVERY, {
        "NetCommand": "an event or answer of ours",
        "json": "replaced: encoded without the library that the program uses too",
    }),
    (_BUNDLE + "net_command_factory_json", EVERY, {
        "NetCommandFactoryJson.make_thread_suspend_single_notification": "replaced: with its place",
        "NetCommandFactoryJson.make_thread_suspend_message": "replaced: with its place",
    }),
    (_BUNDLE + "process_net_command_json", EVERY, {
        "PyDevJsonCommandProcessor.process_net_command_json": "replaced: the relay's own requests",
    }),
    (_SCHEMA, EVERY, {
        "BaseSchema._translate_id_from_dap": "pydevd's number of what DAP numbers",
        "BaseSchema._translate_id_to_dap": "DAP's number of what pydevd numbers",
    }),
    (_BUNDLE + "utils", EVERY, {
        "get_non_pydevd_threads": "replaced: also those that are in no list",
        "ScopeRequest.variable_reference": "the frame of a scope",
    }),
    (_BUNDLE + "vars", EVERY, {
        "evaluate_expression": "evaluates",
        "compile_as_eval": "whether it is an expression",
    }),
    (_BUNDLE + "save_locals", EVERY, {"save_locals": "sets a local variable"}),
    (_BUNDLE + "daemon_thread", EVERY, {
        "PyDBDaemonThread._stop_trace": "replaced: no profiler either in the debugger's threads",
        "mark_as_pydevd_daemon_thread": "its first call replaces a function's code",
        "_patched_threading_to_hide_pydevd_threads": "that this was done",
        "notify_about_gevent_if_needed": "replaced: it would print on the program's stderr",
    }),
    (_BUNDLE + "custom_frames", EVERY, {
        "custom_frames_container_init": "in a forked child",
    }),
    (_BUNDLE + "io", EVERY, {
        "_RedirectionsHolder._stack_stdout": "streams are given back",
        "_RedirectionsHolder._stack_stderr": "streams are given back",
    }),
    (_BUNDLE + "trace_dispatch", EVERY, {"USING_CYTHON": "whether the tracer is compiled"}),
    (_BUNDLE + "frame", IN_PYTHON, {
        "should_stop_on_exception": "replaced: no exception is passed over at another's stop",
    }),
    (_BUNDLE + "trace_dispatch_regular", IN_PYTHON, {
        "PyDBFrame.trace_dispatch": "extended: short at lines where nothing stops",
        "PyDBFrame.exc_info": "extended: the same",
        "ThreadTracer": "extended: the same",
        "TopLevelThreadTracerNoBackFrame.trace_dispatch_and_unhandled_exceptions": "extended",
    }),
    (_BUNDLE + "additional_thread_info_regular", IN_PYTHON, {
        "_current_frames": "replaced: read without a garbage collection",
    }),
    (_BUNDLE + "cython", COMPILED, {
        "should_stop_on_exception": "replaced: no exception is passed over at another's stop",
        "_current_frames": "replaced: read without a garbage collection",
    }),
    (_BUNDLE + "additional_thread_info_regular", MONITORING, {
        "_current_frames": "replaced: read without a garbage collection",
    }),
    (_MONITOR, MONITORING, {
        "monitor": "replaced: the number of its tool",
        "DEBUGGER_ID": "the number of its tool",
        "should_stop_on_exception": "replaced: no exception is passed over at another's stop",
        "_create_thread_info": "replaced: threads that begin or end",
        "_thread_local_info": "what it keeps of this thread",
        "_DeleteDummyThreadOnDel": "replaced: takes no lock",
        "_show_return_values": "replaced: what a step out has returned",
        "_is_same_frame": "whether it is the frame that steps",
        "_code_to_func_code_info_cache": "replaced: by file as well",
        "_get_thread_info": "of an uncaught exception",
        "_get_func_code_info": "of an uncaught exception",
        "_TryExceptContainerObj": "whether an exception is handled in its frame",
        "is_unhandled_exception": "the same",
        "handle_exception": "stops at an exception",
        "stop_on_unhandled_exception": "stops at an uncaught exception",
        "EXCEPTION_TYPE_USER_UNHANDLED": "the kind of that stop",
        "_raise_event": "replaced: silent where the stack has no room",
        "_unwind_event": "replaced: uncaught exceptions at no cost",
        "_jump_event": "listened to on 3.13 and later",
        "update_monitor_events": "replaced: the same",
        "FuncCodeInfo.get_line_of_offset": "replaced: which jumps come to a new line",
    }),
    ("_pydevd_sys_monitoring.pydevd_sys_monitoring", MONITORING, {
        "enable_code_tracing": "traces code that runs already",
        "update_monitor_events": "replaced: asks for jumps",
        "reset_thread_local_info": "what an earlier debugger has left",
    }),
    ("_pydevd_frame_eval.pydevd_frame_eval_main", EVERY, {
        "clear_thread_local_info": "in a forked child",
    }),
    ("_pydev_bundle._pydev_saved_modules", EVERY, {
        "pydevd_saved_threading_enumerate": "replaced: lists threads without a lock",
    }),
    ("_pydev_bundle.pydev_log", EVERY, {
        "_LoggingGlobals._debug_stream": "replaced: the program's stderr is the program's",
    }),
    ("_pydev_bundle.pydev_monkey", EVERY, {
        "undo_patch_thread_modules": "in a forked child",
        "patch_args": "detach: what somebody else's debugger has patched",
        "_on_forked_process": "the same",
    }),
    ("debugpy._vendored.force_pydevd", EVERY, {"debugpy_breakpointhook": "breakpoint() stops"}),
)  # fmt: skip


class Name(object):
    __slots__ = ("where", "path", "needed", "why")

    def __init__(self, where, path, needed, why):
        self.where, self.path, self.needed, self.why = where, path, needed, why

    def __str__(self):
        return "%s.%s" % (self.where, self.path)

    def is_in(self, root):
        for part in self.path.split("."):
            try:
                root = getattr(root, part[:-2])() if part.endswith("()") else getattr(root, part)
            except Exception:
                return False  # another debugpy may raise anything where it is made otherwise
        return True


NAMES = tuple(
    Name(where, path, needed, why) for where, needed, names in _TABLE for path, why in names.items()
)


# The debugger cannot be connected without these.
ESSENTIAL = frozenset(("pydevd.settrace", "pydevd.PyDB.connect", "pydevd.PyDB.initialize_network"))


def needed():
    """The names that are needed by this Python, with this debugpy."""
    kinds = {EVERY, _here()}
    if MONITORING not in kinds:
        kinds.add(TRACING)
    return [name for name in NAMES if name.needed in kinds]


def missing(db=None):
    """The names that this debugpy lacks, of those that are needed; without `db`, of its modules
    alone."""
    roots = dict(sys.modules)
    roots[DB], roots[TRACKER] = db, _tracker(db)
    unmade = (DB, TRACKER) if db is None else ()
    return [
        str(name)
        for name in needed()
        if name.where not in unmade and not name.is_in(roots.get(name.where))
    ]


def missing_essential():
    roots = sys.modules
    return [
        str(name) for name in NAMES if str(name) in ESSENTIAL and not name.is_in(roots[name.where])
    ]


def explain(gone, consequence):
    """A sentence for the readers of the session's output."""
    version = getattr(sys.modules.get("debugpy"), "__version__", "?")
    more = ", … (%d in all)" % len(gone) if len(gone) > _SHOWN else ""
    return consequence % (version, ", ".join(gone[:_SHOWN]) + more)


_SHOWN = 5  # Missing names of a debugpy that a message lists.
PLAIN_DAP = (
    "debugpy %s lacks what the relay's probe needs: %s. This program is debugged by plain DAP: "
    "conditions, hit counts and values are debugpy's, and what needs the probe is refused.\n"
)
NO_DEBUGGER = "debugpy %s lacks %s, without which nothing can be debugged\n"


def _here():
    if hasattr(sys, "monitoring"):
        return MONITORING
    tracer = sys.modules.get(_BUNDLE + "trace_dispatch")
    return COMPILED if getattr(tracer, "USING_CYTHON", False) else IN_PYTHON


def _tracker(db):
    made = getattr(sys.modules.get(_BUNDLE + "suspended_frames"), "_FramesTracker", None)
    manager = getattr(db, "suspended_frames_manager", None)
    try:
        return made(manager, db)
    except Exception:
        return None  # it is made otherwise, or not there: all its names are lacking
