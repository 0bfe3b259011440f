"""Finds methods that a class inherits, and recognises the calls for that class.

A breakpoint on `Sub.m` that `Sub` inherits from `Base` stops in `Base.m` if the receiver is a
`Sub`; the first argument shows that. A static method has no receiver, and a method in C has no
code: for these we only report the class that defines them. Which method is inherited is known when
the class exists. Before that, from the first line of the class's body on, all methods of that name
get a trap, so that the first call is not missed.
"""

import os
import sys

from debug_relay.worker.probe.breakpoints.code_objects import alive, plain
from debug_relay.worker.probe.engine.library_files import is_library
from debug_relay.worker.probe.values.class_facts import full_name, mro, names_in

_subclasses = type.__dict__["__subclasses__"]
_qualname = type.__dict__["__qualname__"].__get__
_MOST_CLASSES = 100000  # Subclasses that a search for inherited methods looks at.


class InheritedMethods(object):
    def __init__(self, functions):
        self.functions = functions
        self.owners = {}  # breakpoint id → (the name of its class as requested, method)

    def want(self, id, wanted):
        owner, _, method = wanted.name.rpartition(".")
        if owner and wanted.path is None:
            self.owners[id] = (type(wanted)(owner, None), method)

    def forget(self, ids):
        for id in ids:
            self.owners.pop(id, None)

    def heads(self):
        """The names of class bodies that may make one of the classes."""
        return set(owner.last for owner, _ in self.owners.values())

    def find(self, ids):
        """For each breakpoint: the places that have a trap for its class, or the classes that
        define the method.
        """
        wanted, targets = {}, {}
        found = dict((id, {"places": [], "elsewhere": []}) for id in ids)
        for id in ids:
            if id in self.owners:
                wanted.setdefault(self.owners[id][0].last, []).append(id)
        for kind in _classes() if wanted else ():
            for id in wanted.get(plain(_qualname(kind)).rpartition(".")[2], ()):
                owner, method = self.owners[id]
                base = self.source(kind, owner, method)
                if base is None or base is kind or base is object:
                    continue
                found[id]["elsewhere"].append("%s.%s" % (full_name(base), method))
                if type(names_in(base)[method]) is not staticmethod:
                    name = "%s.%s" % (plain(_qualname(base)), method)
                    targets.setdefault((_module(base), name), []).append(id)
        for name, code, names in alive() if targets else ():
            for id in targets.get((dict.get(names, "__name__"), name), ()):
                place, _ = self.functions.put(id, code, inherited=name)
                if place not in found[id]["places"]:
                    place["name"] = "%s.%s" % (dict.get(names, "__name__"), name)
                    found[id]["places"].append(place)
        return found

    def class_begins(self, name):
        """The body of a class of that name is about to run, so its bases exist."""
        methods = {}
        for id, (owner, method) in list(self.owners.items()):
            if owner.last == name:
                methods.setdefault(method, []).append(id)
        for candidate, code, _ in alive():
            head, _, last = candidate.rpartition(".")
            for id in methods.get(last, ()) if head else ():
                if self.functions.file_of(code)[2]:
                    self.functions.put(id, code, inherited=candidate)

    def is_called(self, id, name, frame):
        """Whether the call that begins, of the method with this name, is for the class."""
        code = frame.f_code
        if id not in self.owners or not code.co_argcount:
            return False
        owner, method = self.owners[id]
        value = frame.f_locals.get(code.co_varnames[0])
        kind = value if issubclass(type(value), type) else type(value)
        for base in mro(kind):
            source = self.source(base, owner, method)
            if source is not None and source is not base:
                return "%s.%s" % (plain(_qualname(source)), method) == name
        return False

    def source(self, kind, owner, method):
        """The class from which a class of the wanted name has the method; None for other
        classes.
        """
        own = plain(_qualname(kind))
        if own.rpartition(".")[2] != owner.last:
            return None
        module = _module(kind)
        loaded = sys.modules.get(module)
        path = getattr(loaded, "__file__", None)
        modules = [module]
        if module == "__main__":
            spelled = getattr(getattr(loaded, "__spec__", None), "name", None)
            stem = os.path.basename(path or "").rpartition(".")[0]
            modules += [name for name in (spelled, stem) if name]
        if not owner.fits(own, modules, type(path) is str and is_library(path)):
            return None
        return next((base for base in mro(kind) if method in names_in(base)), None)


def _classes():
    """Every class in the program."""
    pending, seen = [object], set()
    while pending and len(seen) < _MOST_CLASSES:
        kind = pending.pop()
        if id(kind) in seen:
            continue
        seen.add(id(kind))
        pending.extend(_subclasses(kind))
        yield kind


def _module(kind):
    name = names_in(kind).get("__module__")
    return name if type(name) is str else "builtins"
