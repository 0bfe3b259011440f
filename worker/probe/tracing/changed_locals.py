"""The locals of a frame that differ from those of its last row in a trace."""

import itertools
import types

from debug_relay.worker.probe.values.class_facts import key_of
from debug_relay.worker.probe.values.rendering import ATOMS, View

NAMES = 100  # Locals that one row of a trace looks at.
FRAMES = 1000  # Frames whose last locals are remembered.
HELD = 200  # Characters from which on texts are compared by their rendering.


class ChangedLocals(object):
    def __init__(self):
        self._seen = {}  # address of a frame → its code, and its locals in its last row

    def of(self, frame, begins):
        """(name → value, whether there may be more changes); runs no code of the program. `begins`:
        it is the first line of a call.
        """
        seen = self._seen_in(frame, begins)
        names = frame.f_locals
        changed, bounded, view = {}, len(names) > NAMES, None
        for name in set(seen).difference(names):
            del seen[name]
        for name in itertools.islice(list(names), NAMES):
            if type(name) is not str or name.startswith(("__", ".")):
                continue
            value = names.get(name)
            kind = type(value)
            if kind is types.ModuleType:
                continue
            plain = key_of(kind) in ATOMS or (kind is str and len(value) < HELD)
            before = seen.get(name)
            if plain and before is not None and before[0] is value and before[2] is kind:
                continue
            if view is None:
                view = View("safe", width=120, nodes=64, depth=3, items=16)
            text = view.text(value, name)
            if before is None or before[1] != text or before[2] is not kind:
                changed[name] = text
            bounded = bounded or view.cut
            seen[name] = (value if plain else None, text, kind)
        return changed, bounded

    def _seen_in(self, frame, begins):
        """The locals as the frame's last row had them. A frame is known by its address, which the
        next call of the function may have as well; such a call begins with the first line.
        """
        code, key = frame.f_code, id(frame)
        known = self._seen.get(key)
        if known is None or known[0] is not code or begins:
            if len(self._seen) >= FRAMES:
                self._seen.clear()
            known = self._seen[key] = (code, {})
        return known[1]
