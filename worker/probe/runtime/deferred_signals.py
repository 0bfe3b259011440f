"""Keeps an exception that a signal handler of the program raises while the main thread works for
the relay, and raises it when the thread runs on.

Only the main thread gets signals, so there is at most one such exception. Raised at once it would
end our work instead of the program. In conditions and log messages at a hit, and in evaluations, it
is raised at once: it may be meant for them.
"""

import _thread
import opcode
import signal
import threading

_RAISE = opcode.opmap["RAISE_VARARGS"]
_main = threading.main_thread().ident
_held = []
stops = []  # the main thread's present stops: the debugger may begin a stop within a stop


class Interrupted(BaseException):
    """Raised into a thread that works for the relay and takes too long."""


def hold(error):
    """Keep an exception, unless the program's own code raised it itself: that is a plain error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    raised = trace is not None and trace.tb_frame.f_code.co_code[trace.tb_lasti] == _RAISE
    handled = bool(stops) and from_handler(error) is not None
    return (handled or not raised) and keep(error)


def keep(error):
    """Keep an exception for the moment when the thread runs on, if it comes from a signal; whether
    it does.
    """
    if isinstance(error, KeyboardInterrupt) or is_foreign(error):
        if not isinstance(error, Interrupted):
            _held[:] = [error.with_traceback(from_handler(error))]
        return True
    return False


def is_main():
    return _thread.get_ident() == _main


def give_back():
    """Raise the kept exception in the main thread, which runs on now."""
    if _held and not stops and is_main():
        raise _held.pop()


def is_foreign(error):
    """Whether the expression at a hit did not raise this itself: a signal handler or our own
    interrupt did.
    """
    if isinstance(error, Interrupted):
        return True
    if not is_main():
        return False
    return from_handler(error) is not None


def from_handler(error):
    """The traceback from the program's signal handler on; None if no handler raised it."""
    handlers = set(_code(signal.getsignal(number)) for number in signal.valid_signals()) - {None}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in handlers:
        trace = trace.tb_next
    return trace


def _code(handler):
    handler = getattr(handler, "func", handler)  # the handler may be a `functools.partial`
    return getattr(getattr(handler, "__func__", handler), "__code__", None)
