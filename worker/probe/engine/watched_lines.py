"""Keeps the lines at which pydevd calls the probe.

Writes them into pydevd's tables. pydevd's own `setBreakpoints` compiles the file once for every
line, moves lines, and accepts none in a file that does not exist yet. Here lines are not moved: a
line without code never stops.
"""

import _thread
import sys

from debug_relay.worker.probe.engine.frames import number_of
from debug_relay.worker.probe.engine.identical_sources import IdenticalSources
from debug_relay.worker.probe.engine.suspended_coroutines import reach_waiting

TRAP = "'relay:functions'"
# From this number on, lines are those of traces and watchpoints. Breakpoints have lower numbers.
FIRST_OBSERVED = 1 << 30


class WatchedLines(object):
    def __init__(self, probe):
        self.probe = probe
        self.known = {}  # breakpoint id → (real path of the file, line)
        self.lock = _thread.allocate_lock()
        self.traps = {}  # file → {line: the entry for functions that begin there}
        self.copies = {}  # file → lines where its code may equal that of a file with breakpoints
        self.identical_sources = IdenticalSources(self)
        self.tables = _thread.allocate_lock()  # held while a table is made; nothing may wait there

    def change(self, put, take):
        """Watch and unwatch lines. `put` has (id, real path, line); an id that has another line
        already moves.

        Paths are used as they are: pydevd would remember the name of a missing file for ever.
        """
        with self.lock:
            gone = [(id,) + self.known.pop(id) for id in take if id in self.known]
            for id, path, line in put:
                place = (path, line)
                if self.known.get(id, place) != place:
                    gone.append((id,) + self.known[id])
                self.known[id] = place
            added = [(id,) + self.known[id] for id, _, _ in put]
            if gone or added:
                self.notify_pydevd(gone, added)

    def notify_pydevd(self, gone, added):
        db = self.probe.engine.db
        breakpoint = sys.modules["_pydevd_bundle.pydevd_breakpoints"].LineBreakpoint
        policy = "ALL" if db.multi_threads_single_notification else "NONE"
        files = {}
        for file in set(row[1] for row in gone + added):
            files[file] = dict(db.file_to_id_to_line_breakpoint.get(file, ()))
        for id, file, line in gone:
            files[file].pop(number_of(id), None)
        for id, file, line in added:
            number = number_of(id)
            files[file][number] = breakpoint(
                number, line, "'relay:%s'" % id, "None", None, policy, None, False
            )
        # Each table is replaced in one assignment, because the program's threads read it meanwhile.
        for file, by_id in files.items():
            with self.tables:
                if by_id:
                    db.file_to_id_to_line_breakpoint[file] = by_id
                else:
                    db.file_to_id_to_line_breakpoint.pop(file, None)
                self.tabulate(file)
        self.changed()
        db.on_breakpoints_changed(removed=not added)
        reach_waiting(set(row[1] for row in added))

    def tabulate(self, file):
        """The table of one file. pydevd has one breakpoint for each line: the line breakpoint, if
        any. A line of a trace or a watchpoint yields to all others, and is there when they go.
        """
        db = self.probe.engine.db
        by_id = db.file_to_id_to_line_breakpoint.get(file, {})
        lines, points = {}, {}
        for number, point in by_id.items():
            (lines if number >= FIRST_OBSERVED else points)[point.line] = point
        lines.update((n, self.nothing(n)) for n in self.copies.get(file, ()))
        lines.update(self.traps.get(file, ()))
        lines.update(points)
        if lines:
            db.breakpoints[file] = lines
        else:
            db.breakpoints.pop(file, None)

    def trap(self, file, line, condition):
        """Watch the first line of a function. May run in a thread of the program that is about to
        run it.
        """
        with self.tables:
            self.traps.setdefault(file, {})[line] = self.nothing(line, condition)
            self.tabulate(file)
        # Code that is equal to code which pydevd passed over before must be examined again.
        self.changed()
        self.probe.engine.db.mtime += 1

    def nothing(self, line, condition=TRAP):
        """A breakpoint for pydevd at which only the probe decides whether to stop."""
        breakpoint = sys.modules["_pydevd_bundle.pydevd_breakpoints"].LineBreakpoint
        policy = "ALL" if self.probe.engine.db.multi_threads_single_notification else "NONE"
        return breakpoint(0, line, condition, "None", None, policy, None, False)

    def watch_copy(self, file, lines):
        """Watch these lines of a file that has the same text as another. Runs in a thread that is
        about to run the file's first code.
        """
        with self.tables:
            self.copies[file] = lines
            self.tabulate(file)

    def changed(self):
        """Lines have changed: make pydevd examine all code anew."""
        with self.tables:
            known = {}
            for file, points in list(self.probe.engine.db.file_to_id_to_line_breakpoint.items()):
                known[file] = set(point.line for point in points.values())
            for file, lines in self.traps.items():
                known.setdefault(file, set()).update(lines)
            self.identical_sources.renew(known)
            stale, self.copies = self.copies, {}
            for file in stale:
                self.tabulate(file)
        self.probe.engine.db._clear_caches()

    def keep_traps(self, kept):
        """Keep the traps at these (file, line), and no others."""
        with self.tables:
            for file, lines in list(self.traps.items()):
                left = dict((line, trap) for line, trap in lines.items() if (file, line) in kept)
                if len(left) == len(lines):
                    continue
                if left:
                    self.traps[file] = left
                else:
                    del self.traps[file]
                self.tabulate(file)
        self.changed()
        self.probe.engine.db.on_breakpoints_changed(removed=True)

    def left_out(self, rows):
        """The ids whose files pydevd passes over, with the reason; `rows` has (id, path)."""
        db = self.probe.engine.db
        frame = sys.modules["_pydevd_bundle.pydevd_api"].PyDevdAPI._DummyFrame
        filtered = db.is_files_filter_enabled and not db.get_require_module_for_filters()
        why = {}
        for path in set(path for _, path in rows):
            if db._internal_get_file_type((path, path, path.rpartition("/")[2])) is not None:
                why[path] = "debugger"
            elif filtered and db.apply_files_filter(frame(path), path, False):
                why[path] = "just_my_code"
        return dict((id, why[path]) for id, path in rows if path in why)

    def clear(self):
        self.known.clear()
        self.traps.clear()
        self.copies.clear()
