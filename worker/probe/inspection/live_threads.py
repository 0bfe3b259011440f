"""Looks at the frames of any thread from outside, also of one that is blocked in C.

The debugger's own thread reads `sys._current_frames()`. Values are shown safely, so no code of the
program runs. An evaluation runs in a thread of its own, with a copy of the frame's locals.
"""

import types

from debug_relay.worker.probe.engine.frames import module_of
from debug_relay.worker.probe.engine.library_files import library_of
from debug_relay.worker.probe.engine.threads import control, running_frames
from debug_relay.worker.probe.inspection.evaluation import (
    RESULT_SECONDS,
    dedented,
    syntax_problem,
)
from debug_relay.worker.probe.inspection.variable_pages import BOUNDS, LEAVES
from debug_relay.worker.probe.inspection.waits import Level, Waits
from debug_relay.worker.probe.values.attributes import in_order, own
from debug_relay.worker.probe.values.class_facts import key_of, printable
from debug_relay.worker.probe.values.parts import NAMED, names_of, parts, rows
from debug_relay.worker.probe.values.rendering import View, clean

DEPTH = 2  # Levels inside a value that a look shows.
LOOK_SECONDS = 2.0  # The values of one look are rendered within this time.
NODES = 100_000  # Nodes of all values of one look.
EVALUATIONS = 3  # Evaluations that may hang in C at once.
# Data is shown of a module's variables; its functions, classes and modules are left out.
_DEFINED = (types.FunctionType, types.ModuleType, types.BuiltinFunctionType, type)


class LiveThreads(object):
    def __init__(self, probe):
        self.probe = probe
        self.evaluating = set()  # ids of live evaluations that have not ended
        probe.commands.update(look=self.look, peek=self.peek, peek_sizes=self.peek_sizes)
        probe.questions.update(evaluate_aside=self.ask_evaluate)

    # -- all threads

    @running_frames.steady
    def look(self, threads, frames, locals, width, every):
        """The stacks of these threads, or of all, with the locals of the program's own frames and
        what each thread waits for. `every` shows the libraries' frames, too.
        """
        about, stacks, stopped = self.stacks()
        waits = Waits(stacks, stopped)
        view = live_view(width)
        shown = []
        for ident, (dap_id, thread) in about.items():
            if threads and dap_id not in threads:
                continue
            row = self.stack_row(stacks[ident], frames, locals, every, view)
            wait = wait_row(waits, ident, view, lambda key: about[key][0])
            self.add_thread(row, dap_id, thread, ident in stopped, wait)
            shown.append(row)
        circles = [[about[ident][0] for ident in circle] for circle in waits.cycles()]
        return {"rows": shown, "circles": circles}

    def stacks(self):
        """ident → (DAP's number, thread); ident → its levels; the idents of stopped threads."""
        current, known = running_frames.of_all(), {}
        about, stacks, stopped = {}, {}, set()
        for id, thread in control.of_program():
            ident = thread.ident
            if ident is None:
                continue
            about[ident] = (self.probe.engine.dap_id(id), thread)
            listed = self.probe.engine.frames(id)
            if listed is None:
                stacks[ident] = self.levels(_outwards(current.get(ident)), known)
            else:
                stopped.add(ident)
                # On top of these are the functions by which the debugger holds the thread.
                stacks[ident] = self.levels(listed, known, listed.frame_id_to_lineno)
        return about, stacks, stopped

    def waits(self):
        _, stacks, stopped = self.stacks()
        return Waits(stacks, stopped)

    def ids(self):
        """ident → DAP's number of each thread."""
        return {thread.ident: self.probe.engine.dap_id(id) for id, thread in control.of_program()}

    def add_thread(self, row, dap_id, thread, is_stopped, wait):
        native = own(thread, type(thread)).get("_native_id")
        native = native if type(native) is int else None
        row.update(thread=dap_id, stopped=is_stopped, native=native, wait=wait)

    def levels(self, frames, known, lines=None):
        found = []
        for frame in frames:
            path = self.probe.engine.visible(frame, known)
            if path is not None:
                code = frame.f_code
                is_own = library_of(code.co_filename, code.co_name) is None
                line = lines.get(id(frame)) if lines is not None else None
                found.append(Level(frame, clean(path), len(found), is_own, line))
        return found

    def stack_row(self, stack, frames, most, every, view):
        shown = [level for level in stack if every or level.is_own]
        if not shown:
            shown = stack[:1]
        return {
            "frames": [self.frame_row(level, most, view) for level in shown[:frames]],
            "own": len(shown),
            "total": len(stack),
        }

    def frame_row(self, level, most, view):
        frame = level.frame
        name, path, line = level.place()
        pairs = level.values.items() if level.is_own else ()
        if frame.f_code.co_name == "<module>":
            pairs = [(key, value) for key, value in pairs if not issubclass(type(value), _DEFINED)]
        pairs = [pair for pair in pairs if not is_made_by_tool(pair[0])]
        return {
            "number": level.number,
            "name": name,
            "path": path,
            "line": line,
            "module": module_of(frame),
            "own": level.is_own,
            "locals": [view.row(key, value) for key, value in list(pairs)[:most]],
            "total_locals": len(pairs),
        }

    # -- one frame

    def level_of(self, thread, number):
        """The frame of that number in a thread's present stack; None if there is none."""
        found = control.find(self.probe.engine, thread)
        if found is None:
            return None
        stack = self.levels(_outwards(running_frames.of_all().get(found[1].ident)), {})
        return stack[number] if number < len(stack) else None

    @running_frames.steady
    def peek(self, thread, frame, scope, way, start, count, filter, bounds):
        """A page of a scope, or of a value inside it: `way` is the name of the variable, then for
        each step the number of the part and the place in it.
        """
        level = self.level_of(thread, frame)
        if level is None:
            return {"gone": True}
        named = names_of(level.frame, True) if scope == "globals" else level.values.items()
        pairs = in_order([(*pair, None) for pair in named])
        listed, at = [rows(NAMED, pairs)], None
        if way:
            found = [pair[1] for pair in pairs if pair[0] == way[0]]
            for number, place in way[1:]:
                found = found and entry_at(found[0], number, place)
            if not found:
                return {"gone": True}
            at, listed = found[0], parts(found[0])
        view = View("safe", outline=True) if bounds == "outline" else View("safe", **BOUNDS["row"])
        shown, total = [], 0
        for number, part in enumerate(listed):
            if filter is not None and part.kind != filter:
                continue
            first, room = max(0, start - total), count - len(shown)
            if room > 0 and first < part.size:
                taken = part.take(first, room)
                shown += [
                    row_of(view, entry, part, way, number, first + place, at is None)
                    for place, entry in enumerate(taken)
                ]
            total += part.size
        return {"rows": shown, "total": total, "function": level.frame.f_code.co_name}

    @running_frames.steady
    def peek_sizes(self, thread, frame):
        level = self.level_of(thread, frame)
        if level is None:
            return {"gone": True}
        counts = len(level.values), len(names_of(level.frame, True))
        name, path, line = level.place()
        return {"locals": counts[0], "globals": counts[1], "place": [name, path, line]}

    # -- evaluating

    def ask_evaluate(self, id, thread, frame, text, context):
        """Evaluate in a thread of its own, with the frame's globals and a copy of its locals."""
        if len(self.evaluating) >= EVALUATIONS:
            return {"gone": True, "busy": True}
        self.evaluating.add(id)
        self.probe.engine.spawn(self.evaluate, id, thread, frame, text, context)
        return {"gone": False}

    def evaluate(self, id, *arguments):
        try:
            self.probe.answers.work(id, self.answer, *arguments)
        finally:
            self.evaluating.discard(id)

    def answer(self, id, thread, frame, text, context):
        level = self.level_of(thread, frame)
        if level is None:
            return {"id": id, "gone": True}
        text = dedented(text).strip()
        try:
            code, is_expression = compile(text, "<expression>", "eval", dont_inherit=True), True
        except (SyntaxError, ValueError) as error:
            if context != "repl":
                return {"id": id, "refused": syntax_problem(error)}
            try:
                code = compile(text, "<expression>", "exec", dont_inherit=True)
            except (SyntaxError, ValueError) as worse:
                return {"id": id, "refused": syntax_problem(worse)}
            is_expression = False
        names, values = level.frame.f_globals, dict(level.values)
        level = None
        if not is_expression:
            exec(code, names, values)  # noqa: S102  the caller asks for that
            return {"id": id}
        value = eval(code, names, values)  # noqa: S307  the caller asks for that
        pages = self.probe.pages
        view = pages.view("whole", seconds=RESULT_SECONDS, quiet=False)
        return {"id": id, "value": view.row(clean(text)[:100], value)}


def _outwards(frame):
    while frame is not None:
        yield frame
        frame = frame.f_back


def live_view(width):
    return View("safe", width=width, depth=DEPTH, seconds=LOOK_SECONDS, total=NODES)


def is_made_by_tool(name):
    """Whether a test runner, a decorator or Python itself has added the name: pytest's
    `@py_assert1`, the `.0` of a generator expression.
    """
    return name.startswith(("@", ".")) or not name.isprintable()


def entry_at(value, number, place):
    """[the value] at a place of a part; empty if it is not there any more, or would have to run."""
    found = parts(value)
    if number >= len(found) or place >= found[number].size:
        return []
    try:
        taken = found[number].take(place, 1)
    except Exception:
        return []
    return [taken[0][1]] if taken and taken[0][2] is None else []


def row_of(view, entry, part, way, number, place, is_scope):
    name, value, what = entry
    if part.keyed:
        name = view.label(name)
    if what is not None:
        return {"name": printable(str(name)), "type": "", "value": "<%s>" % what}
    row = view.row(name, value)
    if key_of(type(value)) not in LEAVES and (row.get("length") != 0 or row.get("more")):
        row["way"] = [name] if is_scope else [*way, [number, place]]
    return row


def wait_row(waits, key, view, number):
    """The wait of a thread or task, and who could end it."""
    wait = waits.found.get(key)
    if wait is None:
        return None
    by = [
        holder_row(None if holder is None else number(holder), how, level and level.place())
        for holder, level, how in waits.holders(key)
    ]
    shown = view.text(wait.subject) if wait.subject is not None else None
    return {"kind": wait.kind, "text": wait.text, "doing": wait.doing, "value": shown, "by": by}


def holder_row(key, how, place):
    return {"key": key, "how": how, "place": place}
