"""Coroutines and generators that wait while a breakpoint is set in their code.

On 3.12 and later pydevd learns of code when a call of it starts; what has started before and is on
no thread's stack just then it never looks at, and breakpoints in there would not stop anything.
"""

import gc
import sys
import threading
import types

from debug_relay.worker.probe.engine.detaching.tracing_off import monitors
from debug_relay.worker.probe.values.class_facts import key_of

_FRAMES = {
    types.CoroutineType: "cr_frame",
    types.GeneratorType: "gi_frame",
    types.AsyncGeneratorType: "ag_frame",
}


def reach_waiting(files):
    """Have pydevd look at those of these files, as it calls them."""
    if not monitors():
        return
    ours = sys.modules["_pydevd_sys_monitoring._pydevd_sys_monitoring"]
    name = sys.modules["pydevd_file_utils"].canonical_normalized_path
    thread = threading.main_thread().ident
    known = {}
    for thing in gc.get_objects():
        attribute = _FRAMES.get(key_of(type(thing)))
        if attribute is None:
            continue
        frame = getattr(thing, attribute)
        if frame is None:
            continue  # it has ended
        path = frame.f_code.co_filename
        if path not in known:
            known[path] = name(path) in files
        if known[path]:
            ours.enable_code_tracing(thread, frame.f_code, frame)
