"""What we build on inside debugpy, name by name: an upgrade that changes one says which.

`bootstrap` and `probe` use pydevd's inner names; the adapter relies on how it behaves. Each name is
looked up under every Python whose debugging differs, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import debugpy
import pytest

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
        "db:set_suspend",
        "db:do_wait_suspend",
        "db:_thread_events",
    ],
    "turns": [
        "db:multi_threads_single_notification",
        "db:breakpoints",
        "_pydevd_bundle.pydevd_api:resume_threads",
        "_pydevd_bundle.pydevd_comm:resume_threads",
        "_pydevd_bundle.pydevd_thread_lifecycle:mark_thread_suspended",
        "_pydevd_bundle.pydevd_comm_constants:CMD_STEP_CAUGHT_EXCEPTION",
        "_pydevd_bundle.pydevd_comm_constants:CMD_ADD_EXCEPTION_BREAK",
        "pydevd_file_utils:get_abs_path_real_path_and_base_from_frame",
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
    "connecting": [
        "pydevd:PyDB.connect",
        "db:initialize_network",
        "pydevd:start_client",
        "pydevd:time",
        "pydevd:settrace",
    ],
    "entry and end": [
        "_pydevd_bundle.pydevd_api:PyDevdAPI.stop_on_entry",
        "db:dispose_and_kill_all_pydevd_threads",
        "db:created_pydb_daemon_threads",
        "db:_create_check_output_thread",
        "pydevd:stoptrace",
    ],
    "forked children": [
        "pydevd_tracing:restore_sys_set_trace_func",
        "_pydev_bundle.pydev_monkey:undo_patch_thread_modules",
        "_pydevd_bundle.pydevd_constants:after_fork",
        "_pydevd_bundle.pydevd_constants:GlobalDebuggerHolder",
    ],
}
MONITORING = [
    "_pydevd_sys_monitoring._pydevd_sys_monitoring:_code_to_func_code_info_cache",
    "_pydevd_sys_monitoring._pydevd_sys_monitoring:_get_unhandled_exception_frame",
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
    if "python3.12" not in python and "python3.13" not in python:
        pytest.skip("sys.monitoring came with Python 3.12")
    assert missing(python, MONITORING) == []


def test_a_name_that_is_gone_would_be_told() -> None:
    import sys

    assert missing(sys.executable, ["db:no_such_hook"]) == ["db:no_such_hook"]


def test_the_hooks_of_the_probe_are_those_listed_here() -> None:
    from debug_relay.worker.probe.core import HOOKS

    assert {f"db:{name}" for name in HOOKS} == set(NAMES["the probe's hooks"])
