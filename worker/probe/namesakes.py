"""Standard modules for the debugger, whatever the program has by the same names.

Runs in the program: Python 3.8 to 3.14, standard library only. Executed by `bootstrap`, and by what
the injection has started; imports nothing of ours.

A program may have a queue.py or a json.py beside its script. What the debugger imports by such a
name is the library's; what the program imports by it, before and after, is its own.
"""

import _thread
import os
import sys

# What the interpreter itself asks about threads at its end, and what the debugger has no use for.
_LEFT_ALONE = ("threading", "test")
_LIBRARY = os.path.dirname(os.__file__)
# The standard library's places, as they stand in sys.path.
STANDARD = (
    os.path.join(os.path.dirname(_LIBRARY), "python%d%d.zip" % sys.version_info[:2]),
    _LIBRARY,
    os.path.join(_LIBRARY, "lib-dynload"),
)


class StandardFirst(object):
    """`with` it, what this thread imports by the name of a standard module is that one."""

    def __enter__(self):
        self.ident = _thread.get_ident()
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_):
        sys.meta_path.remove(self)

    def find_spec(self, name, path=None, target=None):
        if path is None and _thread.get_ident() == self.ident:
            return find(name, STANDARD)
        return None


class Apart(StandardFirst):
    """The same in a program that runs, and may have loaded such modules of its own already."""

    def __init__(self, own):
        """`own` is told what the debugger keeps for itself."""
        self.own = own

    def __enter__(self):
        loaded = [name for name in list(sys.modules) if "." not in name]
        self.aside = [_taken(name) for name in loaded if _is_namesake(name)]
        self.known = frozenset(sys.modules)
        return StandardFirst.__enter__(self)

    def __exit__(self, *error):
        StandardFirst.__exit__(self, *error)
        give_back(self.known, self.own)
        for modules in self.aside:
            for name in modules:
                if "." not in name and name in sys.modules:
                    self.own[name] = sys.modules[name]
                    _taken(name)
            sys.modules.update(modules)


def give_back(known, own):
    """What was loaded since then, and has a namesake in front: that one is the program's."""
    before = []
    for place in sys.path:
        if place in STANDARD:
            break
        before.append(place)
    for name in [name for name in list(sys.modules) if "." not in name and name not in known]:
        theirs = find(name, before)
        file = getattr(sys.modules.get(name), "__file__", None)
        if theirs and find(name, STANDARD) and theirs.origin != file:
            own[name] = sys.modules[name]
            _taken(name)


def find(name, places):
    """A module in these directories alone, nothing of it run; a bare directory is none."""
    spec = sys.modules["_frozen_importlib_external"].PathFinder.find_spec(name, list(places))
    return spec if spec is not None and spec.has_location else None


def _is_namesake(name):
    file = getattr(sys.modules.get(name), "__file__", None)
    if name in _LEFT_ALONE or not file or file.startswith(STANDARD):
        return False
    standard = find(name, STANDARD)
    return standard is not None and standard.origin != file


def _taken(name):
    """A module and its parts, out of the way."""
    names = [one for one in list(sys.modules) if one.partition(".")[0] == name]
    return {one: sys.modules.pop(one) for one in names}
