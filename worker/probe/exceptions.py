"""Which exceptions stop the program: by type, once each, where the user's code is.

Runs in the program: Python 3.8 to 3.14, standard library only. See `core`.
"""

import os
import sys

from debug_relay.worker.probe.answers import Interrupted


class Exceptions(object):
    def __init__(self, probe):
        self.probe = probe
        self.types = frozenset()
        self.raised_everywhere = False
        probe.commands.update(exceptions=self.choose)

    def choose(self, types=(), raised_everywhere=False):
        self.types = frozenset(types)
        self.raised_everywhere = raised_everywhere
        return True

    def hook(self):
        probe, db, told = self.probe, self.probe.db, self.probe.told
        find, exclude = db.get_exception_breakpoint, db.exclude_exception_by_filter
        library = tuple(
            {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.__file__)}
        )

        def get_exception_breakpoint(kind, table):
            # SystemExit is an exit, not a crash.
            if not probe.started or issubclass(kind, (SystemExit, Interrupted)):
                return None
            told.uncaught = table is db.break_on_uncaught_exceptions
            if table is db.break_on_caught_exceptions and self.types and not self.named(kind):
                return None
            return find(kind, table)

        def exclude_exception_by_filter(breakpoint, trace):
            if breakpoint not in db.break_on_caught_exceptions.values():
                return exclude(breakpoint, trace)
            if told.uncaught:
                # At the end of its journey: once is enough, where it was raised.
                return _origin(trace) in getattr(told, "origins", ()) or exclude(breakpoint, trace)
            if trace.tb_next is None:
                # raised in this very frame: a new journey
                told.stopped = False
            if getattr(told, "stopped", False):
                return True
            if not self.types and not self.raised_everywhere:
                path = trace.tb_frame.f_code.co_filename
                if path.startswith("<frozen") or _in_library(path, library):
                    return True
            told.stopped = True
            # The last few: while an exception travels, others may be raised and handled.
            told.origins = getattr(told, "origins", ())[-15:] + (_origin(trace),)
            return False

        probe.replace("get_exception_breakpoint", get_exception_breakpoint)
        probe.replace("exclude_exception_by_filter", exclude_exception_by_filter)

    def named(self, kind):
        return any(
            k.__qualname__ in self.types or "%s.%s" % (k.__module__, k.__qualname__) in self.types
            for k in kind.__mro__
        )


def _origin(trace):
    """Where an exception was raised, such that no other is taken for it; keeps nothing alive."""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return id(trace), id(trace.tb_frame.f_code), trace.tb_lasti


def _in_library(path, library):
    if "/site-packages/" in path or "/dist-packages/" in path:
        return True
    return path.startswith(library) and "/lib/python" in path
