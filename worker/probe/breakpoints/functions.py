"""Function breakpoints: which code has the name, and where a call of it begins.

A name becomes code objects: of functions that are there already, and of each module before its
first line runs, so nothing is missed that is called while it is being loaded. A code object gets a
trap at the first line of its body; a trap only counts when a call has just come there. So a name
is exact, other functions cost nothing, and no code of the program's is run to find it.
"""

import _thread
import os
import sys

from debug_relay.worker.probe.breakpoints.code_objects import (
    FUNCTION,
    Body,
    alive,
    being_loaded,
    inside,
    plain,
)
from debug_relay.worker.probe.breakpoints.inherited_methods import Heirs
from debug_relay.worker.probe.engine.identical_sources import keep_apart
from debug_relay.worker.probe.engine.library_files import by_place, is_library
from debug_relay.worker.probe.engine.line_table import TRAP
from debug_relay.worker.probe.values.rendering import clean

_SHOWN = 20  # Places of a function that are reported to the worker.
_UNKNOWN = object()


class Wanted(object):
    """A name as it was asked for: `f`, `K.m`, `f.<locals>.g`, `module.f`, `pkg.module.K.m`."""

    def __init__(self, name, path):
        self.name = plain(name)
        self.last = self.name.rpartition(".")[2]
        self.path = path  # the only file that is meant, if one was named

    def fits(self, name, modules, library):
        """Without its module a name means the program's own, in any of its modules."""
        if self.name == name:
            return not library
        if not self.name.endswith("." + name):
            return False
        module = self.name[: -len(name) - 1]
        return any(
            module == known or (not library and known.endswith("." + module)) for known in modules
        )


class Door(object):
    """Where a call of one function begins."""

    def __init__(self, code, file):
        body = Body(code)
        self.code, self.file = code, file
        self.line, self.offset, self.loops = body.line, body.offset, body.loops
        self.ids = []
        self.heirs = {}  # breakpoint id → this function's name: for calls with an heir alone
        self.frames = []  # calls that have begun: where loops come back to the beginning only

    def begins(self, frame):
        """Whether the frame has just been entered; asked once each time it comes by."""
        if frame.f_lasti > self.offset or frame.f_code != self.code:
            return False
        if not self.loops:
            return True
        # Held as long as they run: a later call may have the same address.
        self.frames = [held for held in self.frames if sys.getrefcount(held) > _ONLY_OURS]
        if any(held is frame for held in self.frames):
            return False
        self.frames.append(frame)
        return True


def _only_ours():
    """What getrefcount tells, there above, of something that nobody else holds."""
    counts = []
    [counts.append(sys.getrefcount(held)) for held in [object()]]
    return counts[0]


_ONLY_OURS = _only_ours()


class Functions(object):
    def __init__(self, probe):
        self.probe = probe
        self.wanted = {}  # breakpoint id → Wanted
        self.doors = {}  # (file name, first line, name) of a code object → [Door]
        self.told = {}  # breakpoint id → how many places were told
        self.files = {}  # file name of a code object → what it is
        self.heirs = Heirs(self)
        self.heads = frozenset(["<module>"])  # names of code that is looked at when it begins
        probe.commands.update(functions=self.find, inherited=self.find_heirs)

    # -- asked by the relay, in the debugger's own thread

    def find(self, names):
        """[[id, name, path]]; for each id where it is now, and full names that may be meant."""
        for id, name, path in names:
            self.wanted[id] = Wanted(name, path)
            self.told[id] = 0
            self.heirs.want(id, self.wanted[id])
        self.heads = frozenset(self.heirs.heads() | {"<module>"})
        self.probe.engine.watch_new_code(True)
        fresh = dict((row[0], self.wanted[row[0]]) for row in names)
        found = dict((id, {"places": [], "elsewhere": []}) for id in fresh)
        for name, code, names_of_module in alive():
            self.look_at(name, code, _modules(names_of_module, code), fresh, found)
            for inner, nested in inside(code, name + "."):
                self.look_at(inner, nested, _modules(names_of_module, nested), fresh, found)
        for code, names_of_module in being_loaded():
            modules = _modules(names_of_module, code)
            for name, nested in inside(code, ""):
                self.look_at(name, nested, modules, fresh, found)
        missed = [id for id, one in found.items() if not one["places"]]
        for id, one in self.heirs.find(missed).items():
            found[id]["places"] = one["places"]
        if any(one["places"] for one in found.values()):
            self.probe.engine.breakpoints_changed()
        return found

    def find_heirs(self, ids):
        """Classes that were made since they were asked for have methods from others, perhaps."""
        found = self.heirs.find([id for id in ids if id in self.wanted])
        if any(one["places"] for one in found.values()):
            self.probe.engine.breakpoints_changed()
        return found

    def look_at(self, name, code, modules, wanted, found, renew=True):
        last = name.rpartition(".")[2]
        for id, one in wanted.items():
            if one.last != last:
                continue
            path, file, known = self.file_of(code)
            if not known:
                continue  # of the debugger, or ours
            library = is_library(path) and one.path is None
            if one.path in (None, file) and one.fits(name, modules, library):
                place, fresh = self.put(id, code)
                places = found[id]["places"]
                place["name"] = _full(name, modules)
                if (fresh or renew) and self.told[id] < _SHOWN and place not in places:
                    self.told[id] += 1
                    places.append(place)
            elif (name == one.name or name.endswith("." + one.name)) and (
                len(found[id]["elsewhere"]) < _SHOWN
            ):
                found[id]["elsewhere"].append(_full(name, modules))

    def forget(self, ids):
        gone = [id for id in ids if self.wanted.pop(id, None) is not None]
        if not gone:
            return
        self.heirs.forget(gone)
        for key, doors in list(self.doors.items()):
            for door in doors:
                door.ids = [id for id in door.ids if id not in gone]
                door.heirs = dict(row for row in door.heirs.items() if row[0] not in gone)
            kept = [door for door in doors if door.ids or door.heirs]
            if kept:
                self.doors[key] = kept
            else:
                del self.doors[key]
        kept = self.places()
        if self.probe.goal.place is not None:
            kept.add(self.probe.goal.place)
        self.probe.points.places.keep_traps(kept)
        if not self.wanted:
            self.probe.engine.watch_new_code(False)

    def places(self):
        """(file, line) of each that has a trap."""
        return set((door.file, door.line) for doors in self.doors.values() for door in doors)

    def clear(self):
        self.wanted.clear()
        self.doors.clear()
        self.heirs.owners.clear()

    # -- code that appears, in the thread that loads it

    def hook(self):
        """The debugger asks what kind of file a code object is of, before its first line runs."""
        probe = self.probe
        twins = probe.points.places.twins
        apart = twins.apart = keep_apart(probe.engine.hooks)

        probe.engine.hooks.around("get_file_type", "functions", self.judging)
        probe.engine.hooks.around("_internal_get_file_type", "library_files", by_place)
        probe.engine.forget_kinds()
        if apart:
            # Looked into before we are asked, by code again: the same file loaded once more.
            probe.engine.hooks.around("get_cache_file_type", "functions", lambda _: dict)

    def judging(self, ask):
        twins = self.probe.points.places.twins
        apart = twins.apart

        def get_file_type(frame, place=None):
            code, kinds = frame.f_code, twins.kinds
            kind = kinds.get(code.co_filename, _UNKNOWN)
            if kind is not _UNKNOWN and code.co_name not in self.heads:
                return kind  # asked at every call; its own table is by code, slow
            strange = not (apart or code.co_filename.startswith("<")) and kind is _UNKNOWN
            # ≤ 3.10: -1; later the instruction that starts a frame. Any later line is no news.
            begins = self.wanted and code.co_name in self.heads and frame.f_lasti <= 4
            if strange or begins:
                try:
                    if begins and code.co_name == "<module>":
                        self.loading(frame, apart)
                    elif begins and not code.co_flags & FUNCTION:
                        self.heirs.class_begins(code.co_name)
                    if strange:
                        twins.look(self.file_of(code)[1])
                except KeyboardInterrupt:
                    _thread.interrupt_main()  # the program's: give it back
                except Exception:  # noqa: S110  it would be raised in the program
                    pass
            kind = ask(frame, place)
            if strange:
                kinds[code.co_filename] = kind
            return kind

        return get_file_type

    def loading(self, frame, apart):
        wanted = dict(self.wanted)
        found = dict((id, {"places": [], "elsewhere": []}) for id in wanted)
        modules = _modules(frame.f_globals, frame.f_code)
        named = set(one.last for one in wanted.values())
        meant = False
        for name, code in inside(frame.f_code, ""):
            self.look_at(name, code, modules, wanted, found, renew=False)
            meant = meant or code.co_name in named
        if meant and not apart:
            # Or the debugger would not ask about another module with the same text.
            line = Body(frame.f_code).line
            self.probe.points.places.trap(self.file_of(frame.f_code)[1], line, TRAP)
        for id, one in found.items():
            if one["places"] or one["elsewhere"]:
                self.probe.emit("relayFunction", dict(one, id=id))

    # -- traps

    def put(self, id, code, heir=None):
        """A trap at its first line; where that is, and whether it is new to this breakpoint.

        `heir`: the name of a method, where it is called for an heir of its class.
        """
        key = (code.co_filename, code.co_firstlineno, code.co_name)
        path, file, _ = self.file_of(code)
        for door in self.doors.get(key, ()):
            if door.code == code:
                break
        else:
            door = Door(code, file)
            self.doors[key] = self.doors.get(key, []) + [door]
            self.probe.points.places.trap(file, door.line, TRAP)
        fresh = id not in door.ids
        if heir is not None:
            door.heirs = dict(door.heirs, **{id: heir})
        elif fresh:
            door.ids = door.ids + [id]
        out = self.probe.points.places.left_out([(id, path)]).get(id)
        place = {"path": clean(path), "line": door.line, "left_out": out}
        place["inherited"] = heir is not None
        return place, fresh

    def file_of(self, code):
        """(its path, what the debugger calls it, whether it is the program's)."""
        known = self.files.get(code.co_filename)
        if known is None:
            path, file, own = self.probe.engine.file_of(code.co_filename)
            known = self.files[code.co_filename] = (path, file, not own)
        return known

    def begun(self, frame):
        """The breakpoints of the function that the frame has just been called for."""
        code = frame.f_code
        doors = self.doors.get((code.co_filename, code.co_firstlineno, code.co_name))
        if doors is None:
            return ()
        for door in doors:
            if door.begins(frame):
                return door.ids + self.for_heirs(door, frame) if door.heirs else door.ids
        return ()

    def for_heirs(self, door, frame):
        called = []
        for id, name in door.heirs.items():
            if id in door.ids or not self.heirs.is_called(id, name, frame):
                continue
            called.append(id)
            if not self.told.get(id):
                self.told[id] = 1
                place, _ = self.put(id, door.code, heir=name)
                place["name"] = _full(name, _modules(frame.f_globals, door.code))
                self.probe.emit("relayFunction", {"id": id, "places": [place], "elsewhere": []})
        return called


def _modules(names, code):
    """What the module is called; the main one by its file as well."""
    name = dict.get(names, "__name__") if isinstance(names, dict) else None
    if type(name) is not str:
        return []
    if name != "__main__":
        return [name]
    spec = dict.get(names, "__spec__")
    spelled = getattr(spec, "name", None)
    stem = os.path.basename(code.co_filename).rpartition(".")[0]
    return [name] + [other for other in (spelled, stem) if type(other) is str and other]


def _full(name, modules):
    return "%s.%s" % (modules[0], name) if modules else name
