"""What signals raise while a thread works for the relay: the program's, given back to it.

Runs in the program: Python 3.8 to 3.14, standard library only. See `core`.

Only the main thread gets signals, so there is one of this. It is raised when the thread runs on:
at once it would be raised in what we do next, and end that instead of the program.
What a handler of the program's own raises, a timeout's perhaps, goes on from where it came.
"""

import _thread
import opcode
import signal
import threading

_RAISE = opcode.opmap["RAISE_VARARGS"]
_main = threading.main_thread().ident
_held = []


class Interrupted(BaseException):
    """Raised into a thread that works for the relay and takes too long."""


def hold(error):
    """Keep it, unless the program's own code has raised it by itself: then it is just an error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    raised = trace is not None and trace.tb_frame.f_code.co_code[trace.tb_lasti] == _RAISE
    if not raised:
        _held.append(error)
    return not raised


def give_back():
    """In the thread that runs on; others have nothing to do with it."""
    if _held and _thread.get_ident() == _main:
        del _held[:]
        _thread.interrupt_main()


def is_foreign(error):
    """Whether it only passes: what the program asked of us at a hit has not raised it by itself."""
    if isinstance(error, Interrupted):
        return True
    if _thread.get_ident() != _main:
        return False
    handlers = set(_code(signal.getsignal(number)) for number in signal.valid_signals()) - {None}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in handlers:
        trace = trace.tb_next
    return trace is not None


def _code(handler):
    handler = getattr(handler, "func", handler)  # of a `functools.partial`
    return getattr(getattr(handler, "__func__", handler), "__code__", None)
