"""Finds completions: the names in scope, or the attributes of the value before a dot.

The stopped thread does it itself, because `__dir__` and properties are the program's code. If that
code raises or takes too long, and with `safe`, we list the attributes without running any code.
"""

import ast
import keyword
import re
import types

from debug_relay.worker.probe.inspection import lazy_imports
from debug_relay.worker.probe.inspection.first_c_call import valued
from debug_relay.worker.probe.runtime.deferred_signals import hold
from debug_relay.worker.probe.runtime.expressions import Expression
from debug_relay.worker.probe.values.attributes import own, rank
from debug_relay.worker.probe.values.class_facts import key_of, mro, names_in
from debug_relay.worker.probe.values.rendering import Interrupted

MOST = 1000  # Completions in one answer.
# Names, texts, attributes and elements. No calls: typing a dot must not call anything.
_OWNER = re.compile(
    r"""((?:[^\W\d]\w*|'[^'\\]*'|"[^"\\]*")(?:\.[^\W\d]\w*|\[[^\[\]]*\])*)\.([^\W\d]\w*)?$"""
)
_NAME = re.compile(r"[^\W\d]\w*$")
_PLAIN = (
    ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Slice, ast.UnaryOp, ast.USub,
    ast.Load, ast.Index, ast.Tuple,
)  # fmt: skip
_ROUTINES = frozenset((
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.ClassMethodDescriptorType, classmethod, staticmethod,
))  # fmt: skip


class Completions(object):
    def __init__(self, probe):
        self.probe = probe
        probe.questions.update(complete=self.ask)

    def ask(self, id, frame, text):
        return self.probe.answers.ask_thread_of(frame, id, self.complete, text)

    def complete(self, id, thread_id, frame_id, text):
        frame = self.probe.engine.frame(thread_id, frame_id)
        if frame is None:
            return {"id": id, "gone": True}
        owner = _OWNER.search(text)
        if owner is not None:
            prefix = owner.group(2) or ""
            names = self.attributes(frame, owner.group(1))
        else:
            name = _NAME.search(text)
            prefix = name.group() if name is not None else ""
            before = text[: len(text) - len(prefix)].rstrip()
            # The value before this dot is unknown without calling something.
            names = {} if before[-1:] == "." else in_scope(frame)
        rows = [
            pair
            for pair in names.items()
            if pair[0].startswith(prefix) and pair[0].isidentifier() and pair[0].isprintable()
        ]
        rows = sorted(rows, key=rank)[:MOST]
        return {"id": id, "rows": rows, "start": len(text) - len(prefix)}

    def attributes(self, frame, expression):
        value, names = None, {}
        try:
            tree = ast.parse(expression, mode="eval").body
            if lazy_imports.first_of(expression, frame) is not None:
                return {}  # the names of a lazy import are unknown until it is done
            if self.probe.pages.mode == "safe":
                value = valued(tree, frame)
            elif all(isinstance(node, _PLAIN) for node in ast.walk(tree)):
                value = Expression(expression)(frame)
                names = {name: "field" for name in dir(value) if type(name) is str}
        except (Exception, SystemExit, Interrupted, KeyboardInterrupt) as error:
            if type(error) is KeyboardInterrupt:
                hold(error)
        if value is not None:
            outside = visible(value)
            names = {name: outside.get(name, "field") for name in names} or outside
        return names


def in_scope(frame):
    names = dict.fromkeys(keyword.kwlist, "keyword")
    for held in (frame.f_builtins, frame.f_globals, frame.f_locals):
        for name in list(held):
            if type(name) is str:
                names[name] = sort_of(held[name])
    return names


def visible(value):
    """Name → sort, of the attributes of a value and its classes; runs no code of theirs."""
    kind = type(value)
    found = {}
    for names in [names_in(base) for base in reversed(mro(kind))] + (
        [names_in(base) for base in reversed(mro(value))]
        if issubclass(kind, type)
        else [own(value, kind)]
    ):
        for name, held in list(names.items()):
            if type(name) is str:
                found[name] = sort_of(held)
    return found


def sort_of(value):
    kind = key_of(type(value))
    if kind in _ROUTINES:
        return "function"
    if issubclass(type(value), type):
        return "class"
    if issubclass(type(value), types.ModuleType):
        return "module"
    return "property" if kind is property else "field"
