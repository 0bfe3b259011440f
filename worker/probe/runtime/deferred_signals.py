"""What signals raise while a thread works for the relay: the program's, given back to it.

Only the main thread gets signals, so there is one of this. It is raised when the thread runs on:
at once it would be raised in what we do next, and end that instead of the program. In what the
program asked of us at a hit, and in what is evaluated, it is raised at once: it may be meant there.
"""

import _thread
import opcode
import signal
import threading

_RAISE = opcode.opmap["RAISE_VARARGS"]
_main = threading.main_thread().ident
_held = []
stops = []  # those of the main thread: the debugger repeats one within itself


class Interrupted(BaseException):
    """Raised into a thread that works for the relay and takes too long."""


def hold(error):
    """Keep it, unless the program's own code has raised it by itself: then it is just an error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    raised = trace is not None and trace.tb_frame.f_code.co_code[trace.tb_lasti] == _RAISE
    handled = bool(stops) and from_handler(error) is not None
    return (handled or not raised) and keep(error)


def keep(error):
    """For the thread when it runs on, if it comes from a signal; and whether it does."""
    if isinstance(error, KeyboardInterrupt) or is_foreign(error):
        if not isinstance(error, Interrupted):
            _held[:] = [error.with_traceback(from_handler(error))]
        return True
    return False


def is_main():
    return _thread.get_ident() == _main


def give_back():
    """In the thread that runs on; others have nothing to do with it."""
    if _held and not stops and is_main():
        raise _held.pop()


def is_foreign(error):
    """Whether it only passes: what the program asked of us at a hit has not raised it by itself."""
    if isinstance(error, Interrupted):
        return True
    if not is_main():
        return False
    return from_handler(error) is not None


def from_handler(error):
    """Its traceback from the program's handler on, if it was raised in one."""
    handlers = set(_code(signal.getsignal(number)) for number in signal.valid_signals()) - {None}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in handlers:
        trace = trace.tb_next
    return trace


def _code(handler):
    handler = getattr(handler, "func", handler)  # of a `functools.partial`
    return getattr(getattr(handler, "__func__", handler), "__code__", None)
