"""A step passes a comprehension at once, on 3.12 too.

Runs in the program: Python 3.8 to 3.14, standard library only. See `core`.

Since 3.12 a comprehension is no function of its own. On 3.12 pydevd takes each of its rounds for a
new line, as it does with a loop that stands in one line: a step over a thousand items takes a
thousand steps. It asks which lines a jump connects; those of a comprehension connect none.
"""

import dis
import sys

WANTED = sys.version_info[:2] == (3, 12)
_MADE = ("BUILD_LIST", "BUILD_SET", "BUILD_MAP")


def hook(undo):
    if not WANTED:
        return
    facts = sys.modules["_pydevd_sys_monitoring._pydevd_sys_monitoring"].FuncCodeInfo
    line_of = facts.get_line_of_offset

    def get_line_of_offset(this, offset):
        spans = this.__dict__.get("_inlined")
        if spans is None:
            spans = this._inlined = inlined(this.code_obj)
        if any(first <= offset < end for first, end in spans):
            return -1 - offset  # of no line, and not that of any other
        return line_of(this, offset)

    undo.append((facts, "get_line_of_offset", line_of))
    facts.get_line_of_offset = get_line_of_offset


def inlined(code):
    """Where the rounds of comprehensions are: the loops that fill what was made just before."""
    known = [one for one in dis.get_instructions(code) if one.opname != "EXTENDED_ARG"]
    return [
        (swap.offset, loop.argval)
        for made, swap, loop in zip(known, known[1:], known[2:])
        if loop.opname == "FOR_ITER" and swap.opname == "SWAP" and made.opname in _MADE
    ]
