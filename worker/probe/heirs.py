"""Methods that a class has from another one: whose they are.

Runs in the program: Python 3.8 to 3.14, standard library only. See `core`.
"""

from debug_relay.worker.probe.codes import plain
from debug_relay.worker.probe.shapes import full_name, mro, names_in

_subclasses = type.__dict__["__subclasses__"]
_qualname = type.__dict__["__qualname__"].__get__
_MOST_CLASSES = 100000


def inherited(names):
    """For [id, `Sub.m`] each: `K.m` in full, of the class from which a `Sub` has its `m`."""
    wanted = {}
    for id, name in names:
        owner, _, method = plain(name).rpartition(".")
        if owner:
            wanted.setdefault(owner.rpartition(".")[2], []).append((id, owner, method))
    found = dict((id, []) for id, _ in names)
    pending, seen = [object], set()
    while pending and len(seen) < _MOST_CLASSES:
        kind = pending.pop()
        if id(kind) in seen:
            continue
        seen.add(id(kind))
        pending.extend(_subclasses(kind))
        own = plain(_qualname(kind))
        for id, owner, method in wanted.get(own.rpartition(".")[2], ()):
            full = plain(full_name(kind))
            # The main module goes by its file's name as well.
            if not (full.endswith(owner) or full == "__main__." + own and owner.endswith(own)):
                continue
            base = next((base for base in mro(kind) if method in names_in(base)), None)
            if not (base is None or base is kind or base is object):
                found[id].append("%s.%s" % (full_name(base), method))
    return found
