"""Replaces functions of the debugger: by whom, in which order, and how they are put back.

Functions of the debugger object have one wrapper each, made of phases. `ORDER` lists the phases of
each function, the outermost first: a phase is called by the one above it, and calls the one below
it, the last one the debugger's own. A feature registers its phase with `around`; the order in which
features do that makes no difference. Functions of modules and classes are replaced whole, once,
with `swap`.

What belongs to connecting and importing is replaced in `engine.connection` and `engine.loading`.
"""

ORDER = {
    # A line with a breakpoint is reached: does it stop?
    "handle_breakpoint_condition": (
        "trace",  # sees every hit, also those that stop
        "watchpoints",  # up to 3.11; so does this
        "run_to_line",  # a breakpoint on the same line goes first, and counts its hit
        "breakpoints",
    ),
    # A thread is about to stop: mark it, and the others.
    "set_suspend": ("stop_arbiter",),
    # A thread is suspended, until it resumes.
    "do_wait_suspend": (
        # The exception of a signal handler would end all phases below: they begin again instead.
        "signals",
        # The line of an entry stop is recorded when the stop is over, which may make another one.
        "trace",
        # A step is over when the wait begins, and a new one is known when it ends.
        "step_unwinding",
        # The profile function of the last step is removed before anything else runs.
        "step_into_c",
        # May wait several times: a thread that another thread's stop halted may then stop itself.
        "stop_arbiter",
        # Holds the exception of this very wait, and keeps pydevd from calling its str().
        "exceptions",
    ),
    "_do_wait_suspend": ("signals",),
    # An exception reaches a frame: is it examined, does it stop, is the stop reported?
    "get_exception_breakpoint": ("exceptions",),
    "exclude_exception_by_filter": ("exceptions",),
    "send_caught_exception_stack": ("exceptions",),
    # A step ends in a generator (up to 3.11).
    "collect_return_info": ("step_unwinding",),
    # A file's code runs for the first time.
    "get_file_type": ("functions",),
    "_internal_get_file_type": ("library_files",),
    "get_cache_file_type": ("functions",),
    # Frames are traced.
    "set_trace_for_frame_and_parents": ("deep_stacks",),
    "set_tracing_for_untraced_contexts": ("running_frames",),
    # Threads are traced, and end (the first three up to 3.11).
    "enable_tracing": ("retracing",),
    "disable_tracing": ("retracing",),
    "process_internal_commands": ("retracing",),
    "notify_thread_not_alive": ("lifetimes",),
}


class Hooks(object):
    def __init__(self, db):
        self.db = db
        self.phases = {name: {} for name in ORDER}  # function → phase → the function that wraps it
        self.own = {}  # function → the debugger's original, once there are phases around it
        self.swapped = []  # (owner, name, the original)
        self.is_in = False

    def around(self, function, phase, make):
        """`make(below)` returns the function that is called instead of `below`."""
        if phase not in ORDER[function]:
            raise KeyError(phase)
        self.phases[function][phase] = make
        if self.is_in:
            self.compose(function)

    def drop(self, function, phase):
        """Remove a phase."""
        if self.phases[function].pop(phase, None) is not None and self.is_in:
            self.compose(function)

    def swap(self, owner, name, value):
        """Replace an attribute of a module, a class or an object."""
        if any(held is owner and known == name for held, known, _ in self.swapped):
            raise ValueError("%s is replaced already" % name)
        self.swapped.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def put_in(self):
        self.is_in = True
        for function, phases in self.phases.items():
            if phases:
                self.compose(function)

    def compose(self, function):
        """Build the wrapper and set it in one assignment: threads of the program may be
        calling it.
        """
        if function not in self.own:
            self.own[function] = getattr(self.db, function)
        makes, made = self.phases[function], self.own[function]
        for phase in reversed(ORDER[function]):
            if phase in makes:
                made = makes[phase](made)
        setattr(self.db, function, made)

    def remove(self):
        self.is_in = False
        for function, own in self.own.items():
            # Most functions are the class's; some the object has set on itself.
            if hasattr(type(self.db), function):
                self.db.__dict__.pop(function, None)
            else:
                setattr(self.db, function, own)
        self.own.clear()
        for owner, name, original in reversed(self.swapped):
            setattr(owner, name, original)
        del self.swapped[:]
