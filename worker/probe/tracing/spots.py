"""A spot is what a trace records at some lines: expressions, and the condition for it."""

import weakref

from debug_relay.worker.probe.breakpoints.functions import EntryPoint
from debug_relay.worker.probe.runtime.expressions import Expression, base_of


class Spot(object):
    """Some lines of a trace: the values to record there, and the condition."""

    def __init__(self, spec):
        condition = spec.get("condition")
        self.condition = Expression(condition) if condition else None
        self.capture = [Capture(text) for text in spec.get("capture", ())]
        self.changes = spec.get("changes", False)
        self.label = spec.get("label")
        self.code = None  # record only in this function, if set
        self.function = spec.get("function")  # only where a call of this function begins, if set
        self.entry_points = {}  # code of that name → its EntryPoint

    def wants(self, frame):
        """Whether the spot records this hit. The first line of a function may have other code, such
        as a generator expression, and a loop may come back to it.
        """
        code = frame.f_code
        if self.function is None:
            return self.code is None or self.code is code
        if code.co_name != self.function:
            return False
        entry_point = self.entry_points.get(code)
        if entry_point is None:
            entry_point = EntryPoint(code, code.co_filename, frame.f_lineno)
            entry_point = self.entry_points.setdefault(code, entry_point)
        return entry_point.begins(frame)


class Capture(object):
    """An expression whose value is recorded, and the object from which that is taken."""

    def __init__(self, text):
        self.text, self.expression = text, Expression(text)
        self.base, self.attribute = base_of(text)
        self.owner = None  # the last object, weakly

    def look(self, frame):
        """(the number of the object, the value). Where the names are not known, the attribute of
        the last object is meant: another function may change `self.balance` as `account.balance`.
        """
        if self.base is None:
            return None, self.expression(frame)
        try:
            owner = self.base(frame)
        except (NameError, AttributeError, LookupError):
            owner = self.owner() if self.owner is not None else None
            if owner is None:
                raise
            return id(owner), getattr(owner, self.attribute)
        if self.attribute is None:
            return id(owner), self.expression(frame)
        try:
            self.owner = weakref.ref(owner)
        except TypeError:
            self.owner = None
        return id(owner), getattr(owner, self.attribute)
