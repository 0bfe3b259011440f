"""Function breakpoints: finds the code with the name, and recognises where a call of it begins.

A name becomes code objects: of existing functions, and of each module before its first line runs,
so that functions that are called during the import are not missed. A code object gets a trap at the
first line of its body; a trap only counts if a call has just begun there. So a name is exact, other
functions cost nothing, and no code of the program runs to find it.
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
from debug_relay.worker.probe.breakpoints.inherited_methods import InheritedMethods
from debug_relay.worker.probe.engine.identical_sources import keep_apart
from debug_relay.worker.probe.engine.library_files import by_place, is_library
from debug_relay.worker.probe.engine.watched_lines import TRAP
from debug_relay.worker.probe.values.rendering import clean

_SHOWN = 20  # Places of a function that are reported to the worker.
_UNKNOWN = object()


class WantedName(object):
    """A name as requested: `f`, `K.m`, `f.<locals>.g`, `module.f`, `pkg.module.K.m`."""

    def __init__(self, name, path):
        self.name = plain(name)
        self.last = self.name.rpartition(".")[2]
        self.path = path  # the only file in which it counts, if one was named

    def fits(self, name, modules, library):
        """Whether a function of this name fits. A name without a module means the program's own
        functions in any module, and no library's.
        """
        if self.name == name:
            return not library
        if not self.name.endswith("." + name):
            return False
        module = self.name[: -len(name) - 1]
        return any(
            module == known or (not library and known.endswith("." + module)) for known in modules
        )


class EntryPoint(object):
    """The entry point of one function: the first line of its body, or the line that the worker
    takes for that.
    """

    def __init__(self, code, file, line=None):
        body = Body(code, line)
        self.code, self.file = code, file
        self.line, self.offset, self.loops = body.line, body.offset, body.loops
        self.ids = []
        # Breakpoint id → this function's name, for calls with an instance of a subclass only.
        self.subclass_ids = {}
        self.frames = []  # calls that have begun, if a loop can come back to the beginning

    def begins(self, frame):
        """Whether the frame has just been entered; called once for each hit of the line."""
        if frame.f_lasti > self.offset or frame.f_code != self.code:
            return False
        if not self.loops:
            return True
        # Frames are kept as long as they run, because a later call may have the same address.
        self.frames = [held for held in self.frames if sys.getrefcount(held) > _ONLY_OURS]
        if any(held is frame for held in self.frames):
            return False
        self.frames.append(frame)
        return True


def _only_ours():
    """The result of getrefcount in `begins` for an object that nothing else refers to."""
    counts = []
    [counts.append(sys.getrefcount(held)) for held in [object()]]
    return counts[0]


_ONLY_OURS = _only_ours()


class Functions(object):
    def __init__(self, probe):
        self.probe = probe
        self.wanted = {}  # breakpoint id → WantedName
        self.entry_points = {}  # (file name, first line, name) of a code object → [EntryPoint]
        self.reported = {}  # breakpoint id → how many places were reported
        self.files = {}  # file name of a code object → the result of `file_of`
        self.inherited = InheritedMethods(self)
        self.heads = frozenset(["<module>"])  # names of code that we examine when it begins
        probe.commands.update(functions=self.find, inherited=self.find_inherited)

    # -- commands of the worker, in the debugger's own thread

    def find(self, names):
        """Find functions, given as [[id, name, path]]. Returns for each id the places where the
        function is now, and full names that may have been meant.
        """
        for id, name, path in names:
            self.wanted[id] = WantedName(name, path)
            self.reported[id] = 0
            self.inherited.want(id, self.wanted[id])
        self.heads = frozenset(self.inherited.heads() | {"<module>"})
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
        for id, one in self.inherited.find(missed).items():
            found[id]["places"] = one["places"]
        if any(one["places"] for one in found.values()):
            self.probe.engine.breakpoints_changed()
        return found

    def find_inherited(self, ids):
        """Find methods again: classes that were made since may inherit them."""
        found = self.inherited.find([id for id in ids if id in self.wanted])
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
                continue  # code of the debugger or the probe
            library = is_library(path) and one.path is None
            if one.path in (None, file) and one.fits(name, modules, library):
                place, fresh = self.put(id, code)
                places = found[id]["places"]
                place["name"] = _full(name, modules)
                if (fresh or renew) and self.reported[id] < _SHOWN and place not in places:
                    self.reported[id] += 1
                    places.append(place)
            elif (name == one.name or name.endswith("." + one.name)) and (
                len(found[id]["elsewhere"]) < _SHOWN
            ):
                found[id]["elsewhere"].append(_full(name, modules))

    def forget(self, ids):
        gone = [id for id in ids if self.wanted.pop(id, None) is not None]
        if not gone:
            return
        self.inherited.forget(gone)
        for key, entry_points in list(self.entry_points.items()):
            for entry_point in entry_points:
                entry_point.ids = [id for id in entry_point.ids if id not in gone]
                entry_point.subclass_ids = dict(
                    row for row in entry_point.subclass_ids.items() if row[0] not in gone
                )
            kept = [
                entry_point
                for entry_point in entry_points
                if entry_point.ids or entry_point.subclass_ids
            ]
            if kept:
                self.entry_points[key] = kept
            else:
                del self.entry_points[key]
        kept = self.places()
        if self.probe.run_to_line.place is not None:
            kept.add(self.probe.run_to_line.place)
        self.probe.points.watched_lines.keep_traps(kept)
        if not self.wanted:
            self.probe.engine.watch_new_code(False)

    def places(self):
        """(file, line) of each entry point that has a trap."""
        return set(
            (entry_point.file, entry_point.line)
            for entry_points in self.entry_points.values()
            for entry_point in entry_points
        )

    def clear(self):
        self.wanted.clear()
        self.entry_points.clear()
        self.inherited.owners.clear()

    # -- code that appears, in the thread that loads it

    def hook(self):
        """Wrap the function by which the debugger looks up a code object's file before its first
        line runs.
        """
        probe = self.probe
        files_with_same_text = probe.points.watched_lines.identical_sources
        apart = files_with_same_text.apart = keep_apart(probe.engine.hooks)

        probe.engine.hooks.around("get_file_type", "functions", self.classifying)
        probe.engine.hooks.around("_internal_get_file_type", "library_files", by_place)
        probe.engine.forget_kinds()
        if apart:
            # The debugger would look into its own cache first, which is keyed by code: it would not
            # call us for a file that is loaded once more.
            probe.engine.hooks.around("get_cache_file_type", "functions", lambda _: dict)

    def classifying(self, ask):
        files_with_same_text = self.probe.points.watched_lines.identical_sources
        apart = files_with_same_text.apart

        def get_file_type(frame, place=None):
            code, kinds = frame.f_code, files_with_same_text.kinds
            kind = kinds.get(code.co_filename, _UNKNOWN)
            if kind is not _UNKNOWN and code.co_name not in self.heads:
                return kind  # for every call: the debugger's own table, keyed by code, is slow
            strange = not (apart or code.co_filename.startswith("<")) and kind is _UNKNOWN
            # A frame that begins is at -1 (up to 3.10) or at its first instruction.
            begins = self.wanted and code.co_name in self.heads and frame.f_lasti <= 4
            if strange or begins:
                try:
                    if begins and code.co_name == "<module>":
                        self.loading(frame, apart)
                    elif begins and not code.co_flags & FUNCTION:
                        self.inherited.class_begins(code.co_name)
                    if strange:
                        files_with_same_text.look(self.file_of(code)[1])
                except KeyboardInterrupt:
                    _thread.interrupt_main()  # a signal for the program: give it back
                except Exception:  # noqa: S110  otherwise it would be raised in the program
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
            # Without this trap the debugger would not call us for another module with the same
            # text.
            line = Body(frame.f_code).line
            self.probe.points.watched_lines.trap(self.file_of(frame.f_code)[1], line, TRAP)
        for id, one in found.items():
            if one["places"] or one["elsewhere"]:
                self.probe.emit("relayFunction", dict(one, id=id))

    # -- traps

    def put(self, id, code, inherited=None):
        """Set a trap at the function's first line; returns the place, and whether it is new to this
        breakpoint.

        `inherited`: the method's name, if only calls for a subclass count.
        """
        key = (code.co_filename, code.co_firstlineno, code.co_name)
        path, file, _ = self.file_of(code)
        for entry_point in self.entry_points.get(key, ()):
            if entry_point.code == code:
                break
        else:
            entry_point = EntryPoint(code, file)
            self.entry_points[key] = self.entry_points.get(key, []) + [entry_point]
            self.probe.points.watched_lines.trap(file, entry_point.line, TRAP)
        fresh = id not in entry_point.ids
        if inherited is not None:
            entry_point.subclass_ids = dict(entry_point.subclass_ids, **{id: inherited})
        elif fresh:
            entry_point.ids = entry_point.ids + [id]
        out = self.probe.points.watched_lines.left_out([(id, path)]).get(id)
        place = {"path": clean(path), "line": entry_point.line, "left_out": out}
        place["inherited"] = inherited is not None
        return place, fresh

    def file_of(self, code):
        """(the path, the debugger's name for the file, whether it is the program's)."""
        known = self.files.get(code.co_filename)
        if known is None:
            path, file, own = self.probe.engine.file_of(code.co_filename)
            known = self.files[code.co_filename] = (path, file, not own)
        return known

    def begun(self, frame):
        """The breakpoints of the function, if the frame has just been entered."""
        code = frame.f_code
        entry_points = self.entry_points.get((code.co_filename, code.co_firstlineno, code.co_name))
        if entry_points is None:
            return ()
        for entry_point in entry_points:
            if entry_point.begins(frame):
                return (
                    entry_point.ids + self.for_subclass(entry_point, frame)
                    if entry_point.subclass_ids
                    else entry_point.ids
                )
        return ()

    def for_subclass(self, entry_point, frame):
        called = []
        for id, name in entry_point.subclass_ids.items():
            if id in entry_point.ids or not self.inherited.is_called(id, name, frame):
                continue
            called.append(id)
            if not self.reported.get(id):
                self.reported[id] = 1
                place, _ = self.put(id, entry_point.code, inherited=name)
                place["name"] = _full(name, _modules(frame.f_globals, entry_point.code))
                self.probe.emit("relayFunction", {"id": id, "places": [place], "elsewhere": []})
        return called


def _modules(names, code):
    """The names of a module; the main module is also known by its file."""
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
