"""Makes pydevd trace coroutines and generators that wait while a breakpoint is set in their code.

On 3.12 and later pydevd sees code only when it is called. Code that was called before, and is on no
stack now, it never sees, so a breakpoint in there would not stop anything.
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
    """Make pydevd trace waiting coroutines of these files (pydevd's canonical names)."""
    if not monitors():
        return
    pydevd = sys.modules["_pydevd_sys_monitoring._pydevd_sys_monitoring"]
    canonical = sys.modules["pydevd_file_utils"].canonical_normalized_path
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
            known[path] = canonical(path) in files
        if known[path]:
            pydevd.enable_code_tracing(thread, frame.f_code, frame)
