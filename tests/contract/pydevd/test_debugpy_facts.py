"""What we build on inside debugpy, name by name: an upgrade that changes one says which.

`bootstrap` and `probe` use pydevd's inner names; the adapter relies on how it behaves. Each name is
looked up under every Python whose debugging differs, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import debugpy
import pytest

from tests.kit.client import Client
from tests.kit.source import Source

PARENT = Path(debugpy.__file__).parents[1]

LOOK = """
import json, sys
sys.path.insert(0, sys.argv[1])
import debugpy._vendored.force_pydevd, pydevd
from importlib import import_module
db = pydevd.PyDB(set_as_global=False)
def there(path):
    module, _, names = path.partition(":")
    try:
        # The probe hangs on one debugger object; some of its names are set when it is made.
        value = import_module(module) if module != "db" else db
        for name in names.split(".") if names else ():
            value = getattr(value, name)
    except (ImportError, AttributeError):
        return False
    return True
names = json.loads(sys.argv[2])
print(json.dumps([name for name in names if not there(name)]))
"""

# Who uses it → what it is.
NAMES = {
    "the probe's hooks": [
        "db:handle_breakpoint_condition",
        "db:get_exception_breakpoint",
        "db:exclude_exception_by_filter",
        "db:post_method_as_internal_command",
        "db:find_frame",
        "db:notify_thread_not_alive",
        "db:set_suspend",
        "db:do_wait_suspend",
        "db:_do_wait_suspend",
        "db:send_caught_exception_stack",
        "db:get_file_type",
        "db:_internal_get_file_type",
        "db:get_cache_file_type",
        "db:on_breakpoints_changed",
        "db:function_breakpoint_name_to_breakpoint",
        "db:_thread_events",
        "db:collect_return_info",
        "db:set_trace_for_frame_and_parents",
        "db:set_tracing_for_untraced_contexts",
        "db:suspended_frames_manager",
        "db:authentication",
        "db:dap_messages_listeners",
    ],
    "the relay's own requests": [
        "_pydevd_bundle.pydevd_process_net_command_json:"
        "PyDevJsonCommandProcessor.process_net_command_json",
    ],
    "what is sent": [
        "_pydevd_bundle.pydevd_net_command:json",
    ],
    "threads that end": [
        "db:_running_thread_ids",
        "db:_cmd_queue",
        "_pydevd_bundle.pydevd_constants:_get_or_compute_thread_id_with_lock",
        "_pydevd_bundle.pydevd_constants:_thread_id_lock",
        "_pydevd_bundle.pydevd_constants:get_pid",
    ],
    "function breakpoints": [
        "db:mtime",
        "_pydevd_bundle.pydevd_breakpoints:FunctionBreakpoint",
        "_pydevd_bundle.pydevd_api:PyDevdAPI.set_function_breakpoints",
        "_pydevd_bundle.pydevd_additional_thread_info:PyDBAdditionalThreadInfo",
    ],
    "exceptions": [
        "db:break_on_caught_exceptions",
        "db:break_on_uncaught_exceptions",
        "_pydevd_bundle.pydevd_constants:EXCEPTION_TYPE_HANDLED",
        "_pydevd_bundle.pydevd_constants:EXCEPTION_TYPE_UNHANDLED",
        "_pydevd_bundle.pydevd_constants:EXCEPTION_TYPE_USER_UNHANDLED",
        "_pydevd_bundle.pydevd_breakpoints:stop_on_unhandled_exception",
    ],
    "stop reports": [
        "_pydevd_bundle.pydevd_net_command_factory_json:"
        "NetCommandFactoryJson.make_thread_suspend_single_notification",
        "_pydevd_bundle.pydevd_suspended_frames:SuspendedFramesManager.get_frames_list",
        "_pydevd_bundle.pydevd_suspended_frames:_FramesTracker._register_variable",
        "_pydevd_bundle.pydevd_suspended_frames:_FrameVariable",
        "_pydevd_bundle.pydevd_suspended_frames:_FramesTracker.get_variable",
        "_pydevd_bundle.pydevd_frame_utils:FramesList",
        "_pydevd_bundle.pydevd_utils:ScopeRequest.variable_reference",
        "_pydevd_bundle.pydevd_save_locals:save_locals",
        "pydevd_file_utils:map_file_to_client",
        "db:get_file_type",
        "db:is_files_filter_enabled",
        "db:apply_files_filter",
        "db:PYDEV_FILE",
        "db:suspended_frames_manager",
    ],
    "turns": [
        "db:multi_threads_single_notification",
        "db:breakpoints",
        "_pydevd_bundle.pydevd_api:resume_threads",
        "_pydevd_bundle.pydevd_comm:resume_threads",
        "_pydevd_bundle.pydevd_frame:should_stop_on_exception",
        "_pydevd_bundle.pydevd_thread_lifecycle:mark_thread_suspended",
        "_pydevd_bundle.pydevd_comm_constants:CMD_STEP_CAUGHT_EXCEPTION",
        "_pydevd_bundle.pydevd_comm_constants:CMD_ADD_EXCEPTION_BREAK",
        "pydevd_file_utils:get_abs_path_real_path_and_base_from_frame",
    ],
    "threads one by one": [
        "db:suspended_frames_manager",
        "db:threads_suspended_single_notification",
        "db:threads_suspended_single_notification._pause_requested",
        "db:set_trace_for_frame_and_parents",
        "db:get_internal_queue_and_event",
        "db:get_use_libraries_filter",
        "_pydevd_bundle.pydevd_utils:get_non_pydevd_threads",
        "_pydevd_bundle.pydevd_constants:get_thread_id",
        "_pydevd_bundle.pydevd_constants:PYDEVD_USE_SYS_MONITORING",
        "_pydevd_bundle.pydevd_thread_lifecycle:pydevd_find_thread_by_id",
        "_pydevd_bundle.pydevd_thread_lifecycle:pydevd_sys_monitoring",
        "_pydevd_bundle.pydevd_comm_constants:CMD_STEP_OVER_MY_CODE",
        "_pydevd_bundle.pydevd_comm_constants:CMD_STEP_INTO_MY_CODE",
        "_pydevd_bundle.pydevd_comm_constants:CMD_STEP_RETURN_MY_CODE",
        "_pydevd_bundle.pydevd_net_command_factory_json:"
        "NetCommandFactoryJson.make_thread_suspend_message",
        "_pydevd_bundle.pydevd_net_command_factory_json:"
        "NetCommandFactoryJson.make_thread_suspend_single_notification",
    ],
    "lines of breakpoints": [
        "db:file_to_id_to_line_breakpoint",
        "db:on_breakpoints_changed",
        "db:_clear_caches",
        "db:is_files_filter_enabled",
        "db:apply_files_filter",
        "db:get_require_module_for_filters",
        "_pydevd_bundle.pydevd_breakpoints:LineBreakpoint",
        "_pydevd_bundle.pydevd_constants:USE_CYTHON_FLAG",
        "_pydevd_bundle.pydevd_api:PyDevdAPI._DummyFrame",
        "pydevd_file_utils:get_abs_path_real_path_and_base_from_file",
    ],
    "frames where nothing stops": [
        "db:has_plugin_line_breaks",
        "db:pydb_disposed",
        "db:quitting",
        "_pydevd_bundle.pydevd_trace_dispatch:USING_CYTHON",
        "_pydevd_bundle.pydevd_comm_constants:CMD_SET_BREAK",
        "_pydevd_bundle.pydevd_breakpoints:LineBreakpoint.has_condition",
    ],
    "tracing again after a stack overflow": [
        "db:enable_tracing",
        "db:disable_tracing",
        "db:process_internal_commands",
        "db:set_trace_for_frame_and_parents",
        "pydevd_tracing:TracingFunctionHolder._original_tracing",
        "pydevd_tracing:set_trace_to_threads",
    ],
    "the list of threads": [
        "_pydevd_bundle.pydevd_daemon_thread:mark_as_pydevd_daemon_thread",
        "_pydev_bundle._pydev_saved_modules:pydevd_saved_threading_enumerate",
        "_pydevd_bundle.pydevd_utils:get_non_pydevd_threads",
        "db:_running_thread_ids",
    ],
    "frames of running threads": [
        "pydevd:threadingEnumerate",
        "pydevd_tracing:set_trace_to_threads",
        "_pydevd_bundle.pydevd_constants:_current_frames",
    ],
    "the probe's messages": [
        "_pydevd_bundle.pydevd_net_command:NetCommand",
        "_pydevd_bundle._debug_adapter.pydevd_base_schema:BaseSchema._translate_id_from_dap",
        "_pydevd_bundle._debug_adapter.pydevd_base_schema:BaseSchema._translate_id_to_dap",
    ],
    "evaluating": [
        "_pydevd_bundle.pydevd_vars:evaluate_expression",
        "_pydevd_bundle.pydevd_vars:compile_as_eval",
        "_pydevd_bundle.pydevd_suspended_frames:SuspendedFramesManager.get_frame_tracker",
        "_pydevd_bundle.pydevd_suspended_frames:"
        "SuspendedFramesManager.get_thread_id_for_variable_reference",
    ],
    "traces": [
        "db:suspended_frames_manager",
        "_pydevd_bundle.pydevd_constants:get_current_thread_id",
        "_pydevd_bundle.pydevd_comm_constants:CMD_SET_BREAK",
        "pydevd_file_utils:canonical_normalized_path",
    ],
    "connecting": [
        "pydevd:PyDB.connect",
        "db:initialize_network",
        "db:_py_db_command_thread_event",
        "db:_cmd_queue.default_factory",
        "db:_thread_events.default_factory",
        "_pydevd_bundle.pydevd_comm:_queue.Queue",
        "_pydevd_bundle.pydevd_comm:time.sleep",
        "pydevd:start_client",
        "pydevd:time",
        "pydevd:settrace",
    ],
    "entry and end": [
        "_pydevd_bundle.pydevd_api:PyDevdAPI.stop_on_entry",
        "db:dispose_and_kill_all_pydevd_threads",
        "db:created_pydb_daemon_threads",
        "db:writer",
        "db:reader",
        "db:cmd_factory.make_exit_command",
        "db:_create_check_output_thread",
        "pydevd:stoptrace",
    ],
    "attaching and letting go": [
        "_pydevd_bundle.pydevd_daemon_thread:PyDBDaemonThread",
        "debugpy._vendored.force_pydevd:debugpy_breakpointhook",
        "db:_dap_messages_listeners",
        "db:ready_to_run",
        "db:enable_tracing",
        "db:function_breakpoint_name_to_breakpoint",
        "pydevd:install_breakpointhook",
        "pydevd:SetupHolder.setup",
        "pydevd:_global_redirect_stderr_to_server",
        "pydevd:_global_redirect_stdout_to_server",
        "pydevd:_set_trace_lock",
        "pydevd_tracing:_load_python_helper_lib",
        "_pydevd_bundle.pydevd_api:PyDevdAPI.remove_all_breakpoints",
        "_pydevd_bundle.pydevd_api:PyDevdAPI.remove_all_exception_breakpoints",
        "_pydevd_bundle.pydevd_api:PyDevdAPI.set_enable_thread_notifications",
        "_pydevd_bundle.pydevd_comm:InternalThreadCommand.do_it",
        "_pydevd_bundle.pydevd_constants:set_global_debugger",
        "_pydevd_bundle.pydevd_daemon_thread:_patched_threading_to_hide_pydevd_threads",
        "_pydevd_bundle.pydevd_io:_RedirectionsHolder._stack_stdout",
        "_pydevd_bundle.pydevd_io:_RedirectionsHolder._stack_stderr",
        "_pydevd_bundle.pydevd_thread_lifecycle:resume_threads",
        "_pydev_bundle.pydev_monkey:patch_args",
        "_pydev_bundle.pydev_monkey:_on_forked_process",
    ],
    "forked children": [
        "pydevd_tracing:restore_sys_set_trace_func",
        "_pydev_bundle.pydev_monkey:undo_patch_thread_modules",
        "_pydevd_bundle.pydevd_constants:after_fork",
        "_pydevd_bundle.pydevd_constants:GlobalDebuggerHolder",
    ],
}
TRACING_PLAINLY = [
    "_pydevd_bundle.pydevd_additional_thread_info_regular:_current_frames",
    "_pydevd_bundle.pydevd_trace_dispatch_regular:PyDBFrame.trace_dispatch",
    "_pydevd_bundle.pydevd_trace_dispatch_regular:PyDBFrame.exc_info",
    "_pydevd_bundle.pydevd_trace_dispatch_regular:ThreadTracer",
    "_pydevd_bundle.pydevd_trace_dispatch_regular:TopLevelThreadTracerNoBackFrame"
    ".trace_dispatch_and_unhandled_exceptions",
    "db:mtime",
    "db:trace_dispatch",
]
MONITORING = [
    "_pydevd_bundle.pydevd_additional_thread_info_regular:_current_frames",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring:_create_thread_info",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring:_thread_local_info",
    "_pydevd_sys_monitoring.pydevd_sys_monitoring:restart_events",
    "_pydevd_sys_monitoring.pydevd_sys_monitoring:update_monitor_events",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring:enable_code_tracing",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring:_code_to_func_code_info_cache",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring:_raise_event",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring:_unwind_event",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring:_get_thread_info",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring:_get_func_code_info",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring:_TryExceptContainerObj",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring:is_unhandled_exception",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring:handle_exception",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring:stop_on_unhandled_exception",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring:EXCEPTION_TYPE_USER_UNHANDLED",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring:update_monitor_events",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring:_jump_event",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring:FuncCodeInfo.get_line_of_offset",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring:should_stop_on_exception",
]


def missing(python: str, names: list[str]) -> list[str]:
    done = subprocess.run(
        [python, "-X", "frozen_modules=off", "-c", LOOK, str(PARENT), json.dumps(names)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return list(json.loads(done.stdout.splitlines()[-1]))


def test_every_inner_name_is_there(python: str) -> None:
    wanted = [name for names in NAMES.values() for name in names]
    assert missing(python, wanted) == []


def test_the_names_of_monitoring_are_there(python: str) -> None:
    if "python3.8" in python or "python3.11" in python:
        pytest.skip("sys.monitoring came with Python 3.12")
    assert missing(python, MONITORING) == []


def test_the_names_of_plain_tracing_are_there(python: str) -> None:
    if "python3.8" not in python:
        pytest.skip("3.11 is compiled, and later ones monitor: only up to 3.10 they are used")
    assert missing(python, TRACING_PLAINLY) == []


def test_a_name_that_is_gone_would_be_told() -> None:
    import sys

    assert missing(sys.executable, ["db:no_such_hook"]) == ["db:no_such_hook"]


def test_the_hooks_of_the_probe_are_those_listed_here() -> None:
    from debug_relay.worker.probe.probe import HOOKS

    assert {f"db:{name}" for name in HOOKS} == set(NAMES["the probe's hooks"])


def test_programs_are_debugged_alike_whatever_python_the_relay_runs_on(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    """Compiled, pydevd's monitoring shows no frames and no names; it is so for one Python only."""
    program = source("x = 1\n")
    with relay.session(python_path=python) as session:
        session.break_at(program, 1)
        session.launch(program)
        flag = "__import__('sys').modules['_pydevd_bundle.pydevd_constants'].USE_CYTHON_FLAG"
        monitors = session.value("hasattr(__import__('sys'), 'monitoring')") == "True"
        assert (session.value(flag) == "'no'") is monitors
        assert session.value("__import__('os').environ.get('PYDEVD_USE_CYTHON')") == "None"
