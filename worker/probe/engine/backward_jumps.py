"""Which jumps back come to a new line, from 3.12 on.

pydevd takes a jump within a line for a new line, and asks which lines a jump connects. Since 3.12 a
comprehension is no function of its own, and a step over a thousand items would take a thousand
steps: its jumps connect none. And the first instruction of a line is not of the line before, as
pydevd has it: a loop in one line would be passed for as long as it runs. From 3.13 on pydevd asks
for no jumps at all, since most come with a line event; that of a loop in one line has none.
"""

import dis
import functools
import sys

from debug_relay.worker.probe.engine import monitoring_tool as own_tool

WANTED = sys.version_info >= (3, 12)
_MADE = ("BUILD_LIST", "BUILD_SET", "BUILD_MAP")
_ASIDE = ("EXTENDED_ARG", "GET_ITER")  # the second stands before a comprehension up to 3.14
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
            return -1 - offset  # no line, and unlike that of any other jump
        lines = this.code_obj.co_lines()
        return next((line for start, end, line in lines if line and start <= offset < end), -1)

    hooks.swap(facts, "get_line_of_offset", get_line_of_offset)
    if sys.version_info >= (3, 13):
        ask_for_jumps(module, hooks)


def ask_for_jumps(module, hooks):
    """Whenever pydevd asks for calls, and with them for lines."""
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
    """The places of loops that are no statements.

    A comprehension's loop fills what was made just before. A loop over a generator, which `any`,
    `all` and `tuple` become from 3.14 on, and `list` and `set` from 3.15 on, uses each item at
    once, where a `for` would store it.
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
