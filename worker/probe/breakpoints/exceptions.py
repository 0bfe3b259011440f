"""Decides which exceptions stop the program: by filter or by type, each once, in the user's code.

The debugger calls us in every frame that an exception passes. We decide before it prepares a stop,
which takes a hundred times as long. It calls us once more just before the stop, also for an
exception that leaves a frame.
"""

import _thread
import dis
import os
import sys
import weakref

from debug_relay.worker.probe.engine.library_files import is_library
from debug_relay.worker.probe.engine.stack_overflow import has_room
from debug_relay.worker.probe.engine.step_unwinding import is_pause
from debug_relay.worker.probe.runtime.deferred_signals import is_foreign
from debug_relay.worker.probe.runtime.expressions import Expression, raised_text
from debug_relay.worker.probe.values.class_facts import full_name, key_of, lookup, qualname
from debug_relay.worker.probe.values.rendering import ATOMS, Interrupted

_getpid = os.getpid
# Exceptions that are remembered for each thread: while one passes frames, others begin and end.
_REMEMBERED = 64
_NEVER = (SystemExit, Interrupted)
_LEAVES = object()
_RETURN = dis.opmap["RETURN_VALUE"]
_subclasses = type.__dict__["__subclasses__"]
_mro = type.__dict__["__mro__"].__get__
_MOST_TYPES = 100000  # Exception classes that a search for a name looks at.
_MOST_KINDS = 1000  # Exception classes whose match is remembered.
_MOST_CALLERS = 100  # Callers that are searched for the origin of an exception.


class NotReported(Exception):
    """Raised so that the debugger gives up a stop that we do not want: it does so if the report
    fails.
    """


class CurrentException(object):
    """The exception at which a thread is stopped."""

    def __init__(self, arg, how, frame):
        self.kind, self.value, self.trace = arg
        self.how, self.frame = how, frame


class Exceptions(object):
    def __init__(self, probe):
        self.probe = probe
        self.raised = self.everywhere = self.types_everywhere = False
        self.types = frozenset()
        self.kinds = {}  # id of a class that was raised → itself, whether it is one of the types
        self.condition = None
        self.unconditional = frozenset()  # tables for which the condition does not count
        self.failed = False
        probe.commands.update(exceptions=self.choose, known_types=known_types)

    def choose(
        self,
        raised=False,
        types=(),
        everywhere=False,
        types_everywhere=True,
        condition=None,
        unconditional=(),
    ):
        """Set the filters; returns those of the types that exist in the program."""
        self.raised, self.everywhere = raised, everywhere
        self.types_everywhere = types_everywhere
        self.condition = Expression(condition) if condition else None
        self.unconditional = frozenset(unconditional)
        self.failed = False
        self.types = frozenset(bare(name) for name in types)
        self.kinds = {}
        return known_types(types)

    def hook(self):
        hooks = self.probe.engine.hooks
        hooks.around("get_exception_breakpoint", "exceptions", self.finding)
        hooks.around("exclude_exception_by_filter", "exceptions", self.excluding)
        hooks.around("send_caught_exception_stack", "exceptions", self.reporting)
        hooks.around("do_wait_suspend", "exceptions", self.waiting)

    def finding(self, find):
        probe, this_thread = self.probe, self.probe.this_thread

        def get_exception_breakpoint(kind, table):
            """The debugger calls this for each table first; `this_thread.tables` names those that
            apply.
            """
            which = probe.engine.table_of(table)
            raised = which == "raised"
            if not raised:
                this_thread.tables = []
            # SystemExit is an exit, not a crash.
            if not probe.started or probe.points.suspended or issubclass(kind, _NEVER):
                return None
            if raised:
                if this_thread.__dict__.get("leaving"):
                    return None  # decided when the exception reached this frame
                this_thread.named = self.named(kind)
                if not (self.raised or this_thread.named):
                    return None
            found = find(kind, table)
            if found is not None:
                this_thread.tables.append(which)
            return found

        return get_exception_breakpoint

    def excluding(self, exclude):
        engine, this_thread = self.probe.engine, self.probe.this_thread

        def exclude_exception_by_filter(breakpoint, trace):
            which = this_thread.table = this_thread.tables[0]
            if which == "uncaught":
                # The exception leaves the program. If it has stopped before, once is enough.
                stopped_before = origin(trace) in self.decided_origins()
                return (
                    stopped_before
                    or engine.is_below_own(trace.tb_frame)
                    or exclude(breakpoint, trace)
                )
            del this_thread.tables[0]
            begins = trace.tb_next is None
            if which == "user":
                if begins and not (this_thread.tables or this_thread.__dict__.get("leaving")):
                    self.forget(origin(trace))
                return thrown_in(trace) or exclude(breakpoint, trace)
            if not begins and origin(trace) in self.decided_origins():
                return True
            counts = self.everywhere or (this_thread.named and self.types_everywhere)
            if not counts and (
                is_library(trace.tb_frame.f_code.co_filename) or exclude(breakpoint, trace)
            ):
                if begins:
                    self.forget(origin(trace))
                return True
            this_thread.begins = origin(trace) if begins else None
            frame_id = id(trace.tb_frame)
            if not (has_room() and self.stops(this_thread.raised, trace, frame_id)):
                return True
            this_thread.decided = origin(trace)
            return False

        return exclude_exception_by_filter

    def reporting(self, report):
        this_thread = self.probe.this_thread

        def send_caught_exception_stack(thread, arg, frame_id):
            start = origin(arg[2])
            decided = this_thread.__dict__.pop("decided", None) == start
            # A stop that fails half-way would leave its thread suspended without a report.
            if not (has_room() and (decided or self.stops(arg[1], arg[2], frame_id))):
                raise NotReported()
            self.remember(start)
            return report(thread, arg, frame_id)

        return send_caught_exception_stack

    def waiting(self, wait):
        this_thread = self.probe.this_thread

        def do_wait_suspend(thread, frame, event, arg, exception_type=None):
            if event != "exception" or not arg:
                return wait(thread, frame, event, arg, exception_type)
            this_thread.exception = CurrentException(arg, exception_type, frame)
            try:
                # The debugger calls its str() before it reports the stop, which may take for ever.
                shown = (arg[0], plain_words(arg[1]), arg[2])
                return wait(thread, frame, event, shown, exception_type)
            finally:
                this_thread.exception = None

        return do_wait_suspend

    def uncaught(self, error):
        """Stop at an exception that ends the program, after a stack overflow (up to 3.11): Python
        has stopped tracing then.
        """
        if (
            sys.gettrace() is not None
            or hasattr(sys, "monitoring")
            or not self.probe.engine.hooks.is_in
        ):
            return
        if self.probe.points.suspended:
            return
        self.probe.retracing.leave()  # code that runs at the stop is not the program's
        self.probe.engine.stop_uncaught(error)

    # -- deciding

    def stops(self, value, trace, frame_id):
        """Whether to stop: once for each exception, where it would stop first; there the condition
        decides. The stop itself is remembered when it happens, because the debugger may still
        ignore the exception (`# @IgnoreException`).
        """
        if _getpid() != self.probe.pid:
            return False  # a forked child that is not debugged must not wait for a debugger
        # `begins` is absent when the exception leaves a frame that it had come into.
        begins = self.probe.this_thread.__dict__.pop("begins", _LEAVES)
        if has_resumed(frame_of_stop(trace, frame_id), begins is _LEAVES):
            return False
        start = origin(trace)
        if begins == start:
            self.forget(start)  # another exception had the same address
        elif start in self.decided_origins():
            return False
        table = getattr(self.probe.this_thread, "table", None)
        if self.condition is None or table in self.unconditional:
            return True
        try:
            if self.condition(frame_of_stop(trace, frame_id), exc=value):
                return True
        except KeyboardInterrupt:
            _thread.interrupt_main()  # a signal arrived while our code ran: give it back
        except BaseException as error:
            if is_foreign(error):
                raise
            self.report_error(error)
        self.remember(start)
        return False

    def report_error(self, error):
        """Report the condition's first error, and no later ones."""
        if self.failed:
            return
        self.failed = True
        self.probe.emit("relayError", {"id": "exceptions", "error": raised_text(error)[:1000]})

    def named(self, kind):
        if not self.types:
            return False
        known = self.kinds.get(id(kind))
        if known is None or known[0]() is not kind:
            is_it = any(qualname(k) in self.types or full_name(k) in self.types for k in _mro(kind))
            if len(self.kinds) >= _MOST_KINDS:
                self.kinds.clear()
            # The key is not the class itself: to compare it may run the program's code.
            known = self.kinds[id(kind)] = weakref.ref(kind), is_it
        return known[1]

    def decided_origins(self):
        """The origins of the exceptions that were decided; this keeps nothing alive."""
        return getattr(self.probe.this_thread, "decided_origins", ())

    def remember(self, start):
        self.forget(start)
        self.probe.this_thread.decided_origins = self.decided_origins()[1 - _REMEMBERED :] + (
            start,
        )

    def forget(self, start):
        known = self.decided_origins()
        if start in known:
            self.probe.this_thread.decided_origins = tuple(one for one in known if one != start)


def has_resumed(frame, leaves):
    """Whether the frame has handled the exception and continues. Up to 3.11 the debugger guesses
    this, and is wrong at returns and at pauses of generators.
    """
    if hasattr(sys, "monitoring") or frame.f_lasti < 0:
        return False
    if frame.f_code.co_code[frame.f_lasti] == _RETURN:
        return True
    # A frame that has ended has no caller.
    return leaves and frame.f_back is not None and is_pause(frame)


def origin(trace):
    """The place where an exception was raised, in a form that identifies the exception."""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return id(trace), id(trace.tb_frame.f_code), trace.tb_lasti


def thrown_in(trace):
    """Whether the exception was thrown into a generator, as by a `with`: it returns to its
    caller.
    """
    if trace.tb_next is None:
        return False
    callers, frame = set(), trace.tb_frame.f_back
    while frame is not None and len(callers) < _MOST_CALLERS:
        callers.add(id(frame))
        frame = frame.f_back
    while trace.tb_next is not None:
        trace = trace.tb_next
        if id(trace.tb_frame) in callers:
            return True
    return False


def frame_of_stop(trace, frame_id):
    """The frame in which the thread would stop: one of those that the exception has passed."""
    while id(trace.tb_frame) != frame_id and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame


def plain_words(value):
    """An exception with the same text, if its text needs no code of the program; otherwise an empty
    one.
    """
    kind = type(value)
    in_c = all(type(lookup(kind, name)) is _SLOT for name in ("__str__", "__repr__"))
    if in_c and all(key_of(type(part)) in ATOMS or type(part) is str for part in _args(value)):
        return Exception(str(value))
    return Exception("")


_SLOT = type(BaseException.__str__)
_args = BaseException.__dict__["args"].__get__


def bare(name):
    """The name as `full_name` writes it."""
    return name[len("builtins.") :] if name.startswith("builtins.") else name


def known_types(types):
    """The subset of these names that belong to an existing exception class."""
    wanted, found = dict((bare(name), name) for name in types), set()
    pending, seen = [BaseException], set()
    while pending and len(seen) < _MOST_TYPES:
        kind = pending.pop()
        if id(kind) in seen:
            continue
        seen.add(id(kind))
        found |= {wanted[n] for n in (qualname(kind), full_name(kind)) if n in wanted}
        pending.extend(_subclasses(kind))
    return sorted(found)
