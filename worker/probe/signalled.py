"""Ctrl-C that comes while a thread works for the relay: the program's, given back afterwards.

Runs in the program: Python 3.8 to 3.14, standard library only. See `core`.

Only the main thread gets signals, so there is one of this. It is raised when the thread runs on:
at once it would be raised in what we do next, and end that instead of the program.
"""

import _thread
import opcode
import threading

_RAISE = opcode.opmap["RAISE_VARARGS"]
_main = threading.main_thread().ident
_held = []


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
