"""Reads from byte code what a frame is about to call, and which locks it holds.

A thread that is blocked in C has no frame for the function in C: the lock that it waits for is on
the frame's stack, which Python does not show. So we read the instructions before the call, and look
up the names in them as Python would, where that runs no code of the program.
"""

import dis
import sys
import types

from debug_relay.worker.probe.engine import with_blocks
from debug_relay.worker.probe.inspection import acquired_locks
from debug_relay.worker.probe.values.attributes import own
from debug_relay.worker.probe.values.class_facts import key_of, lookup

CHAIN = 12  # Instructions of one expression such as `self.pool.lock`.
AWAIT = 12  # Instructions between `await` and the place where the coroutine is suspended.
ARGUMENTS = 60  # Instructions between a method and its call: the arguments.
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


class Facts(object):
    """The instructions, blocks and ways of one code, which are read once."""

    def __init__(self, code):
        self.code = code
        self.steps, self.blocks = with_blocks.read(code)
        self._ways = None

    @property
    def ways(self):
        if self._ways is None:
            self._ways = acquired_locks.ways_back(self.code, self.steps)
        return self._ways


class CallSites(object):
    """The instructions of one frame's code. `level` has the frame and its locals, as `values`;
    `known` keeps the facts of each code.
    """

    def __init__(self, level, known):
        self.frame, self.level = level.frame, level
        code = self.frame.f_code
        found = known.get(id(code))
        if found is None:
            found = known[id(code)] = Facts(code)
        self.facts, self.steps, self.blocks = found, found.steps, found.blocks

    def may_hold(self):
        """Whether the code has a `with` block or calls `acquire`."""
        return bool(self.blocks) or "acquire" in self.frame.f_code.co_names

    def present(self):
        """The call that the frame makes at this moment: a `Reached` with the name of the method,
        which is `__enter__` for a `with`. None if that is not known.
        """
        at = self._index(self.frame.f_lasti)
        if at is None:
            return None
        name = self.steps[at].opname
        if name == "PRECALL" and at + 1 < len(self.steps):
            at += 1  # on 3.11, once the code is hot, PRECALL makes the call of the CALL behind it
            name = self.steps[at].opname
        if name in ("BEFORE_WITH", "SETUP_WITH"):
            return self._entered(at)
        if name not in _CALLS:
            return None
        before = self.steps[at - 1] if at else None
        if before is not None and before.opname == "LOAD_SPECIAL":
            return self._entered(at)
        return self._called(at)

    def entered(self):
        """The context managers of the `with` blocks around the present instruction, the outermost
        first: (address, a `Reached` or None). The address is exact where it can be read; the names
        in the code may have other values by now.
        """
        here, found = self.frame.f_lasti, []
        for block in self.blocks:
            if not block.is_around(here):
                continue
            reached = self._entered(block.entry)
            address = with_blocks.entered(self.frame, block)
            if address is None and reached is not None:
                address = id(reached.value)
            if reached is not None and id(reached.value) != address:
                reached = None
            if address and not (reached is not None and self._releases(reached, block)):
                found.append((address, reached))
        return found

    def _releases(self, reached, block):
        """Whether code in the block calls `release()` of the lock that it has entered."""
        return any(
            called.method == "release"
            and called.value is reached.value
            and block.is_around(self.steps[index].offset)
            for index, _, called in self._calls()
        )

    def acquired(self):
        """The objects whose `acquire()` has succeeded on each way to the present instruction, and
        that none has released since."""
        at = self._index(self.frame.f_lasti)
        calls = self._calls() if at else []
        if not any(called.method == "acquire" for _, _, called in calls):
            return []
        ways, found = self.facts.ways, {}
        for _, _, called in calls:
            if called.method == "acquire" and id(called.value) not in found:
                effects = acquired_locks.effects_on(called, self.steps, calls)
                if acquired_locks.is_acquired(at, ways, effects):
                    found[id(called.value)] = called
        return list(found.values())

    def _calls(self):
        """Calls of `acquire` and `release`: (index, whether without arguments, what is called)."""
        names = self.frame.f_code.co_names
        if "acquire" not in names and "release" not in names:
            return []
        found = []
        for index, step in enumerate(self.steps):
            if step.opname in _CALLS:
                called = self._called(index)
                if called is not None and called.method in ("acquire", "release"):
                    found.append((index, not _arguments_of(step), called))
        return found

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
                                   "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR",
                                   "STORE_FAST_LOAD_FAST")):  # fmt: skip
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
