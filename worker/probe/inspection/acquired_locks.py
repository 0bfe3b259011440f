"""Follows byte code back from a frame's present instruction to calls of `acquire()`.

A lock counts as acquired only if each way to the present instruction has called `acquire()` with
success, and no way has called `release()` since, or assigned to a name in the lock's expression.
"""

import bisect
import dis
import sys

AWAIT = 12  # Instructions from the call of a coroutine function to the end of its `await`.
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
_ENDS = frozenset(
    ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_ABSOLUTE",
     "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "CALL_FINALLY", "INTERPRETER_EXIT")
)  # fmt: skip
_SETUPS = ("SETUP_FINALLY", "SETUP_WITH", "SETUP_ASYNC_WITH")
_BETWEEN = ("TO_BOOL", "NOT_TAKEN", "CACHE")
_HELD, _LOST = True, False


def ways_back(code, steps):
    """For each instruction those that may run just before it, and whether they jump to it."""
    offsets = [step.offset for step in steps]
    found = [[] for _ in steps]
    after_finally = []  # indexes: on 3.8 every `END_FINALLY` may go on at each of them

    def link(index, target, jumps):
        at = bisect.bisect_left(offsets, target)
        if at < len(steps):
            found[at].append((index, jumps))

    for index, step in enumerate(steps):
        if step.opcode in _JUMPS:
            link(index, step.argval, True)
        if step.opname in _SETUPS:
            for inner in range(index + 1, bisect.bisect_left(offsets, step.argval)):
                link(inner, step.argval, False)
        if step.opname == "CALL_FINALLY":
            after_finally.append(index + 1)
        elif step.opname not in _ENDS and index + 1 < len(steps):
            found[index + 1].append((index, False))
    for index, step in enumerate(steps):
        if step.opname == "END_FINALLY":
            for after in after_finally:
                found[after].append((index, False))
    if sys.version_info >= (3, 11):
        for entry in dis._parse_exception_table(code):
            first = bisect.bisect_left(offsets, entry.start)
            for inner in range(first, bisect.bisect_left(offsets, entry.end)):
                link(inner, entry.target, False)
    return found


def is_acquired(at, ways, effects):
    """Whether each way to the instruction at this index has acquired the lock."""
    pending, seen = list(ways[at]), set()
    while pending:
        index, jumps = one = pending.pop()
        if one in seen:
            continue
        seen.add(one)
        effect = effects.get((index, jumps), effects.get((index, None)))
        if effect is _HELD:
            continue
        if effect is _LOST or index == 0 or not ways[index]:
            return False
        pending += ways[index]
    return bool(seen)


def effects_on(reached, steps, calls):
    """The effects of instructions on the lock: (index, whether it jumps; None for both) → held.

    `calls` has (index of the call, whether it is without arguments, what it calls).
    """
    names = set(reached.text.replace("[", ".").split("."))
    found = {
        (index, None): _LOST
        for index, step in enumerate(steps)
        if step.opname.startswith(("STORE_", "DELETE_")) and _assigns(step, names)
    }
    for index, is_bare, called in calls:
        if called.value is not reached.value:
            continue
        if called.method == "release":
            found[index, None] = _LOST
        elif called.method == "acquire":
            place = _success(steps, index, is_bare)
            if place is not None:
                found[place] = _HELD
    return found


def _assigns(step, names):
    assigned = step.argval if type(step.argval) is tuple else (step.argval,)
    return any(type(name) is str and name in names for name in assigned)


def _success(steps, call, is_bare):
    """The instruction after which the call has succeeded: (index, whether it jumps or None)."""
    at = call + 1
    while at < len(steps) and steps[at].opname in _BETWEEN:
        at += 1
    if at >= len(steps):
        return None
    name = steps[at].opname
    if name.startswith("POP_JUMP") and name.endswith(("IF_FALSE", "IF_TRUE")):
        return at, name.endswith("IF_TRUE")
    if not is_bare:
        return None
    if name == "GET_AWAITABLE":
        while at < min(len(steps) - 1, call + AWAIT) and steps[at].opname != "POP_TOP":
            at += 1
    return (at, None) if steps[at].opname == "POP_TOP" else None
