"""Sets a variable in a frame, a container or an object; the stopped thread does it itself."""

import ast
import types

from debug_relay.worker.probe.inspection.evaluation import (
    RESULT_SECONDS,
    described,
    expression_problem,
)
from debug_relay.worker.probe.runtime.muted_output import unmute
from debug_relay.worker.probe.values.attributes import Lazy, OfClass, own
from debug_relay.worker.probe.values.class_facts import key_of, mro, name_of, names_in, printable
from debug_relay.worker.probe.values.parts import NAMED
from debug_relay.worker.probe.values.rendering import BRACKETS, MAPPINGS, View, extent


class VariableSetter(object):
    def __init__(self, probe):
        self.probe = probe
        probe.questions.update(assign=self.ask)

    def ask(self, id, reference, name, text, scope):
        return self.probe.answers.ask_thread_of(reference, id, self.assign, name, text, scope)

    def assign(self, id, thread_id, reference, name, text, scope):
        tracker = self.probe.engine.tracker(thread_id)
        if tracker is None:
            return {"id": id, "gone": True}
        refused = expression_problem(self.probe.engine, text)
        if refused is not None:
            return {"id": id, "refused": refused}
        variable = tracker.get_variable(reference)
        frame = getattr(variable, "frame", None)
        if frame is None:
            frame = self.probe.engine.frames(thread_id)[0]
        pages = self.probe.pages
        node = pages.opened(tracker, variable, scope)
        place = (
            Names(self.probe.engine, frame, scope)
            if scope is not None
            else place_in(node.value, name, pages.mode)
        )
        # Checked before the value is evaluated: the evaluation may have side effects.
        if place is None or not place.has(name):
            return {"id": id, "unknown": True}
        value = self.probe.engine.evaluate(frame, text, False)
        if name_of(type(value)) == "ExceptionOnEvaluate":
            return {"id": id, "raised": described(value.result, value.tb)}
        try:
            place.set(name, value)
        except Exception as error:
            return {"id": id, "kept": described(error)}
        # Read the variable again: some objects ignore an assignment without an error.
        try:
            now = place.get(name)
        except Exception as error:
            return {"id": id, "unread": described(error)}
        view = pages.view("whole", seconds=RESULT_SECONDS, quiet=False)
        step = place.step % name
        row = pages.row(tracker, node, (NAMED, name), name, now, view, step)
        return {"id": id, "value": row}


def place_in(owner, name, mode):
    for place in places(owner, type(owner), name, mode):
        if place.has(name):
            return place
    return None


def places(owner, kind, name, mode):
    """The places where the name may be: the elements, and the attributes of a value that has
    both.
    """
    if kind is Lazy:
        return [Attributes(owner.owner)]
    if kind is OfClass:
        return [Attributes(class_with(owner.owner, name))]
    if kind is types.MappingProxyType:
        return [Fixed(owner)]
    found = []
    if issubclass(kind, dict):
        found.append(Keys(owner, mode))
    elif name.isdecimal() and issubclass(kind, (tuple, set, frozenset)):
        found.append(Fixed(owner))
    elif name.isdecimal() and "length" in extent(owner, kind):
        found.append(Items(owner))
    exact = key_of(kind)
    return found if exact in BRACKETS or exact in MAPPINGS else found + [Attributes(owner)]


def class_with(owner, name):
    """The class that has the attribute: the owner's own class, or one of its bases."""
    for base in mro(owner)[1:] if issubclass(type(owner), type) else mro(type(owner)):
        if name in names_in(base):
            return base
    return type(owner)


class Names(object):
    """The variables of a frame, or of its module."""

    step = "%s"

    def __init__(self, engine, frame, scope):
        self.engine, self.frame = engine, frame
        self.of_module = scope.lower() == "globals"

    def has(self, name):
        return spelled(name, self.names()) in self.names()

    def get(self, name):
        return self.names()[spelled(name, self.names())]

    def set(self, name, value):
        names = self.names()
        names[spelled(name, names)] = value
        if not self.of_module:
            self.engine.save_locals(self.frame)

    def names(self):
        return self.frame.f_globals if self.of_module else self.frame.f_locals


class Items(object):
    step = "[%s]"

    def __init__(self, owner):
        self.owner = owner

    def has(self, name):
        return name.isdecimal() and int(name) < len(self.owner)

    def get(self, name):
        kind = list if issubclass(type(self.owner), list) else type(self.owner)
        return kind.__getitem__(self.owner, int(name))  # a list is read as it was rendered

    def set(self, name, value):
        self.owner[int(name)] = value


class Keys(object):
    """Entries of a dict, by the text that a page showed for the key."""

    step = "[%s]"

    def __init__(self, owner, mode):
        self.owner, self.mode = owner, mode
        self.found = None

    def keys(self, name):
        if self.found is None:
            self.found = self.simple(name)
        if self.found is None:
            view = View(self.mode)
            self.found = [key for key in list(dict.keys(self.owner)) if view.label(key) == name]
            unmute()
        return self.found

    def simple(self, name):
        """Find a number or a str directly, without rendering all keys."""
        try:
            key = ast.literal_eval(name)
            known = key_of(type(key)) in (str, int) and dict.__contains__(self.owner, key)
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            return None
        return [key] if known else None

    def has(self, name):
        return bool(self.keys(name))

    def get(self, name):
        return dict.__getitem__(self.owner, self.keys(name)[0])

    def set(self, name, value):
        if len(self.keys(name)) > 1:
            raise KeyError("%d keys read %s" % (len(self.keys(name)), name))
        self.owner[self.keys(name)[0]] = value


class Attributes(object):
    step = ".%s"

    def __init__(self, owner):
        self.owner = owner

    def spelled(self, name):
        return spelled(name, own(self.owner, type(self.owner)))

    def has(self, name):
        return hasattr(self.owner, self.spelled(name))

    def get(self, name):
        return getattr(self.owner, self.spelled(name))

    def set(self, name, value):
        setattr(self.owner, self.spelled(name), value)


def spelled(name, names):
    """The name as the program writes it; we have shown unprintable characters as escapes."""
    if "\\" not in name or name in names:
        return name
    return next((one for one in names if type(one) is str and printable(one) == name), name)


class Fixed(Items):
    def set(self, name, value):
        raise TypeError("a %s cannot be changed" % type(self.owner).__name__)

    def has(self, name):
        return True
