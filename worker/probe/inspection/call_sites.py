"""Reads from byte code what a frame is about to call, and which `with` blocks it is in.

A thread that is blocked in C has no frame for the function in C: the lock that it waits for is on
the frame's stack, which Python does not show. So we read the instructions before the call, and look
up the names in them as Python would, where that runs no code of the program.
"""

import dis
import sys
import types

from debug_relay.worker.probe.values.attributes import own
from debug_relay.worker.probe.values.class_facts import key_of, lookup

CODE_BYTES = 1 << 16  # Bytes of the longest function that is read.
CHAIN = 12  # Instructions of one expression such as `self.pool.lock`.
AWAIT = 12  # Instructions between `await` and the place where the coroutine is suspended.
ARGUMENTS = 60  # Instructions between a method and its call: the arguments.
_HAS_TABLE = sys.version_info >= (3, 11)  # of exceptions; before, blocks are instructions
_ENTERS = ("BEFORE_WITH", "SETUP_WITH", "BEFORE_ASYNC_WITH", "SETUP_ASYNC_WITH")
_PASSED = frozenset(("PUSH_NULL", "CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "COPY", "SWAP"))
_CALLS = frozenset(
    ("CALL", "CALL_METHOD", "CALL_FUNCTION", "CALL_FUNCTION_KW", "CALL_KW", "CALL_FUNCTION_EX")
)
_METHODS = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
_SUBSCRIPTS = frozenset(("BINARY_SUBSCR", "BINARY_OP"))
_MISSING = object()


class Reached(object):
    """An expression of names, attributes and constant keys: its text and its value."""

    def __init__(self, text, value, method=None):
        self.text, self.value, self.method = text, value, method


class CallSites(object):
    """The instructions of one frame's code. `level` has the frame and its locals, as `values`."""

    def __init__(self, level, known):
        self.frame, self.level = level.frame, level
        code = self.frame.f_code
        found = known.get(id(code))
        if found is None:
            found = known[id(code)] = _read(code)
        self.steps, self.blocks, self.acquires = found

    def may_hold(self):
        """Whether the code has a `with` block or calls `acquire`."""
        return bool(self.blocks) or self.acquires

    def present(self):
        """The call that the frame makes at this moment: a `Reached` with the name of the method,
        which is `__enter__` for a `with`. None if that is not known.
        """
        at = self._index(self.frame.f_lasti)
        if at is None:
            return None
        name = self.steps[at].opname
        if name in ("BEFORE_WITH", "SETUP_WITH"):
            return self._entered(at)
        if name not in _CALLS:
            return None
        before = self.steps[at - 1] if at else None
        if before is not None and before.opname == "LOAD_SPECIAL":
            return self._entered(at)
        return self._called(at)

    def held(self):
        """The context managers of the `with` blocks around the present instruction, the outermost
        first, each a `Reached`."""
        here, found = self.frame.f_lasti, []
        for entry, spans in self.blocks:
            if any(start <= here < end for start, end in spans):
                reached = self._entered(entry)
                if reached is not None:
                    found.append(reached)
        return found

    def acquired(self):
        """The objects whose `acquire()` was called before the present instruction, and not
        `release()` since; in the order of the code, which may not be the order in which it ran."""
        if not self.acquires:
            return []
        found, here, present = {}, self.frame.f_lasti, self.present()
        for at, step in enumerate(self.steps):
            if step.offset >= here:
                break
            if step.opname not in _METHODS or step.argval not in ("acquire", "release"):
                continue
            reached = self._chain(at - 1)
            if reached is None:
                continue
            if step.argval == "release":
                found.pop(id(reached.value), None)
            else:
                found[id(reached.value)] = reached
        if present is not None and present.method == "acquire":
            found.pop(id(present.value), None)
        return list(found.values())

    # -- expressions

    def _called(self, at):
        """The function that the instruction at this index calls, or the receiver of its method."""
        wanted, index = _arguments_of(self.steps[at]), at - 1
        if index >= 0 and self.steps[index].opname == "PRECALL":  # on 3.11 it takes the arguments
            index -= 1
        while wanted and index >= max(0, at - ARGUMENTS):
            before = self.steps[index]
            try:
                wanted -= dis.stack_effect(before.opcode, before.arg, jump=False)
            except ValueError:
                return None
            index -= 1
        while index >= 0 and self.steps[index].opname in ("PUSH_NULL", "KW_NAMES", "PRECALL"):
            index -= 1
        if wanted or index < 0:
            return None
        if self.steps[index].opname not in _METHODS:
            return self._chain(index)
        reached = self._chain(index - 1)
        if reached is not None:
            reached.method = self.steps[index].argval
        return reached

    def _entered(self, at):
        """The context expression of the `with` that is entered at this index or just before."""
        for index in range(at, max(-1, at - ARGUMENTS), -1):
            step = self.steps[index]
            if step.opname in _ENTERS:
                reached = self._chain(index - 1)
                break
            if step.opname == "LOAD_SPECIAL" and step.argrepr in ("__exit__", "__aexit__"):
                reached = self._chain(index - 1)  # from 3.14 on, a COPY precedes it
                break
        else:
            return None
        if reached is not None:
            reached.method = "__enter__"
        return reached

    def _chain(self, at):
        """The expression that ends at this index."""
        parts = []
        for index in range(at, max(-1, at - CHAIN), -1):
            step = self.steps[index]
            if step.opname in _PASSED:
                continue
            if step.opname in _METHODS:
                parts.append(("attribute", step.argval))
            elif step.opname in _SUBSCRIPTS and step.argrepr in ("", "[]"):
                parts.append(("key", None))
            elif step.opname in ("LOAD_CONST", "LOAD_SMALL_INT") and parts[-1:] == [("key", None)]:
                parts[-1] = ("key", step.argval)
            else:
                name = _name_of(step)
                if name is None:
                    return None
                value = self._named(name)
                return None if value is _MISSING else _followed(name, value, parts[::-1])
        return None

    def _named(self, name):
        for names in (self.level.values, self.frame.f_globals, self.frame.f_builtins):
            if issubclass(type(names), dict):
                value = dict.get(names, name, _MISSING)
                if value is not _MISSING:
                    return value
        return _MISSING

    def awaited(self):
        """The object that a suspended coroutine awaits: the receiver of the awaited call, or the
        awaited name itself."""
        at = self._index(self.frame.f_lasti)
        if at is None:
            return None
        for index in range(at, max(0, at - AWAIT), -1):
            if self.steps[index].opname != "GET_AWAITABLE":
                continue
            before = self.steps[index - 1].opname
            is_special = self.steps[index - 2].opname == "LOAD_SPECIAL"
            if before == "BEFORE_ASYNC_WITH" or (before in _CALLS and is_special):
                return self._entered(index - 1)
            return self._called(index - 1) if before in _CALLS else self._chain(index - 1)
        return None

    def _index(self, offset):
        for index, step in enumerate(self.steps):
            if step.offset == offset:
                return index
            if step.offset > offset:
                # The last one may lie in the caches of an instruction.
                return index - 1 if index else None
        return None


def _name_of(step):
    """The name whose value the instruction loads."""
    if not step.opname.startswith(("LOAD_FAST", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF",
                                   "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR")):  # fmt: skip
        return None
    name = step.argval[-1] if type(step.argval) is tuple else step.argval
    return name if type(name) is str else None


def _arguments_of(step):
    """How many values the call takes from the stack, without the function."""
    if step.opname == "CALL_FUNCTION_EX":
        return 1 + (step.arg & 1 if sys.version_info < (3, 14) else 1)
    return step.arg + (step.opname in ("CALL_FUNCTION_KW", "CALL_KW"))  # and the names of some


def _followed(text, value, parts):
    for sort, name in parts:
        if sort == "attribute":
            text = "%s.%s" % (text, name)
            value = attribute(value, name)
        else:
            text = "%s[%r]" % (text, name)
            value = _item(value, name)
        if value is _MISSING:
            return None
    return Reached(text, value)


def attribute(value, name):
    """The attribute as it is stored: no property and no `__getattr__` runs."""
    kind = type(value)
    if issubclass(kind, type):
        found = lookup(value, name)
        return _MISSING if found is None else found
    if issubclass(kind, types.ModuleType):
        return dict.get(types.ModuleType.__getattribute__(value, "__dict__"), name, _MISSING)
    held = own(value, kind)
    if name in held:
        return held[name]
    found = lookup(kind, name)
    if type(found) is types.MemberDescriptorType:
        try:
            return found.__get__(value)
        except AttributeError:
            return _MISSING
    if found is None or lookup(type(found), "__get__") is not None:
        return _MISSING
    return found


def _item(value, key):
    if type(value) is dict and key_of(type(key)) in (str, int):
        return value.get(key, _MISSING)
    if type(value) in (list, tuple) and type(key) is int and -len(value) <= key < len(value):
        return value[key]
    return _MISSING


# -- blocks


def _read(code):
    """(instructions, blocks, whether it calls `acquire`); a block is the index of the instruction
    that has entered it, and the spans of offsets inside it."""
    if len(code.co_code) > CODE_BYTES:
        return [], [], False
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    blocks = _blocks_of_table(code, steps) if _HAS_TABLE else _blocks_of_code(steps)
    return steps, blocks, "acquire" in code.co_names


def _blocks_of_code(steps):
    """Up to 3.10 an instruction begins the block and names its end."""
    found = []
    for index, step in enumerate(steps):
        if step.opname in ("SETUP_WITH", "SETUP_ASYNC_WITH"):
            entry = index
            if step.opname == "SETUP_ASYNC_WITH":
                entry = _before(steps, index, "BEFORE_ASYNC_WITH")
            if entry is not None:
                found.append((entry, [(step.offset + 2, step.argval)]))
    return found


def _blocks_of_table(code, steps):
    """From 3.11 on a table says which instructions are covered by which handler, the innermost
    only: a handler's own instructions are covered by the next one."""
    try:
        table = list(dis._parse_exception_table(code))
    except (AttributeError, ValueError, IndexError, StopIteration):
        return []
    index_of = {step.offset: index for index, step in enumerate(steps)}
    handlers = {}  # offset of a handler of `with` → its direct spans
    for entry in table:
        at = index_of.get(entry.target)
        if at is None or at + 1 >= len(steps):
            continue
        if steps[at + 1].opname == "WITH_EXCEPT_START":
            handlers.setdefault(entry.target, []).append((entry.start, entry.end))
    found = []
    for target, spans in sorted(handlers.items(), key=lambda one: min(one[1])):
        first = index_of.get(min(spans)[0])
        entry = None if first is None else _entry_before(steps, first)
        if entry is not None:
            found.append((entry, _with_nested(table, target, spans)))
    return found


def _with_nested(table, target, spans):
    """The spans with those of blocks inside: their handlers lie in these spans."""
    spans, pending = list(spans), [target]
    seen = {target}
    while pending:
        outer = pending.pop()
        for entry in table:
            if entry.target in seen:
                continue
            covered = [one for one in table if one.start <= entry.target < one.end]
            if any(one.target == outer for one in covered):
                seen.add(entry.target)
                pending.append(entry.target)
                spans += [(e.start, e.end) for e in table if e.target == entry.target]
    return spans


def _entry_before(steps, first):
    for index in range(first - 1, max(-1, first - ARGUMENTS), -1):
        if steps[index].opname in ("BEFORE_WITH", "BEFORE_ASYNC_WITH"):
            return index
        if steps[index].opname == "LOAD_SPECIAL" and "exit__" in steps[index].argrepr:
            return index
    return None


def _before(steps, index, name):
    for at in range(index - 1, max(-1, index - ARGUMENTS), -1):
        if steps[at].opname == name:
            return at
    return None
