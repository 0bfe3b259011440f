"""Decides which jumps back come to a new line, from 3.12 on.

pydevd treats a jump within a line as a new line, and looks up which lines a jump connects. Since
3.12 a comprehension is no function any more, and a step over a thousand items would take a thousand
steps: here its jumps connect no lines. And pydevd counts the first instruction of a line to the
line before: it would pass over a loop in one line for as long as that runs. From 3.13 on pydevd
does not request jump events at all, since most jumps come with a line event; that of a loop in one
line does not.
"""

import dis
import functools
import sys

from debug_relay.worker.probe.engine import monitoring_tool as own_tool

WANTED = sys.version_info >= (3, 12)
_MADE = ("BUILD_LIST", "BUILD_SET", "BUILD_MAP")
_ASIDE = ("EXTENDED_ARG", "GET_ITER")  # the second precedes a comprehension up to 3.14
_USED = ("LIST_APPEND", "SET_ADD", "TO_BOOL")


def hook(hooks):
    if not WANTED:
        return
    module = sys.modules["_pydevd_sys_monitoring._pydevd_sys_monitoring"]
    facts = module.FuncCodeInfo

    def get_line_of_offset(this, offset):
        spans = this.__dict__.get("_inlined")
        if spans is None:
            spans = this._inlined = inlined(this.code_obj)
        if any(first <= offset < end for first, end in spans):
            return -1 - offset  # not a line, and different for each jump
        lines = this.code_obj.co_lines()
        return next((line for start, end, line in lines if line and start <= offset < end), -1)

    hooks.swap(facts, "get_line_of_offset", get_line_of_offset)
    if sys.version_info >= (3, 13):
        ask_for_jumps(module, hooks)


def ask_for_jumps(module, hooks):
    """Request jump events whenever pydevd requests those of calls, and so of lines."""
    monitoring = sys.monitoring
    update = module.update_monitor_events

    @functools.wraps(update)
    def update_monitor_events(*args, **kwargs):
        update(*args, **kwargs)
        tool = own_tool.number()
        if tool is not None and monitoring.get_events(tool):
            monitoring.register_callback(tool, monitoring.events.JUMP, module._jump_event)

    for place in (module, sys.modules["_pydevd_sys_monitoring.pydevd_sys_monitoring"]):
        hooks.swap(place, "update_monitor_events", update_monitor_events)


def inlined(code):
    """The places of loops that are not statements.

    A comprehension's loop fills an object that was created just before. Calls of `any`, `all` and
    `tuple` with a generator become a loop from 3.14 on, those of `list` and `set` from 3.15 on;
    such a loop uses each item at once, where a `for` would store it.
    """
    known = [one for one in dis.get_instructions(code) if one.opname not in _ASIDE]
    comprehensions = [
        (swap.offset, loop.argval)
        for made, swap, loop in zip(known, known[1:], known[2:])
        if loop.opname == "FOR_ITER" and swap.opname == "SWAP" and made.opname in _MADE
    ]
    generators = [
        (loop.offset, loop.argval)
        for loop, use in zip(known, known[1:])
        if loop.opname == "FOR_ITER" and use.opname in _USED
    ]
    return comprehensions + generators
