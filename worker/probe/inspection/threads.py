"""Handles single threads: which are stopped, where the others are, and resuming one alone.

By DAP the debugger always resumes all threads if one stop halts all. The commands here affect one
thread and leave the others as they are.
"""

from debug_relay.worker.probe.engine.frames import module_of
from debug_relay.worker.probe.engine.library_files import library_of
from debug_relay.worker.probe.engine.threads import control, running_frames
from debug_relay.worker.probe.values.rendering import clean


class Threads(object):
    def __init__(self, probe):
        self.probe = probe
        probe.commands.update(
            threads=self.rows,
            live=self.live,
            alone=self.go_on,
            halt=self.halt,
            stop_all=self.stop_all,
        )

    # -- where they are

    @running_frames.steady
    def rows(self):
        """[DAP's number, whether it is stopped, whether it will stop before its next line, top
        frame] for each thread; of one that runs, the first frame of the program's own.
        """
        current, known, found = running_frames.of_all(), {}, []
        for id, thread in control.of_program():
            held = control.is_suspended(thread)
            listed = self.probe.engine.frames(id) if held else None
            if listed is not None:
                frames = self.probe.engine.stack(listed, 1, count=False)[0]
                top = frames[0] if frames else None
            else:
                top = self.first_own(current.get(thread.ident), known)
            found.append([self.probe.engine.dap_id(id), listed is not None, held, top])
        return found

    def first_own(self, frame, known):
        """The first frame of the program's own; the top frame of a thread that has none."""
        top = None
        while frame is not None:
            path = self.probe.engine.visible(frame, known)
            if path is not None:
                code = frame.f_code
                is_own = library_of(code.co_filename, code.co_name) is None
                if is_own or top is None:
                    top = [code.co_name, clean(path), frame.f_lineno or 0, module_of(frame)]
                if is_own:
                    break
            frame = frame.f_back
        return top

    @running_frames.steady
    def live(self, thread, start, levels):
        """The present stack of a thread that is not stopped."""
        found = self.found(thread)
        if found is None:
            return {"gone": True}
        id, thread = found
        if control.is_suspended(thread) and self.probe.engine.frames(id) is not None:
            return {"stands": True}
        frame = running_frames.of_all().get(thread.ident)
        rows, total = self.walked(frame, start, levels, {})
        return {"rows": rows, "total": total}

    def walked(self, frame, start, levels, known):
        rows, total = [], 0
        while frame is not None:
            path = self.probe.engine.visible(frame, known)
            if path is not None:
                if start <= total < start + levels:
                    place = frame.f_code.co_name, clean(path), frame.f_lineno or 0
                    rows.append([*place, module_of(frame)])
                total += 1
            frame = frame.f_back
        return rows, total

    def found(self, dap_thread):
        return control.find(self.probe.engine, dap_thread)

    # -- one alone

    def stop_all(self, on):
        """Set whether the stop of one thread halts the others, too."""
        control.stop_all(self.probe.engine, on)
        return on

    def go_on(self, threads, how):
        for found in [self.found(thread) for thread in threads]:
            if found is None:
                continue
            if how == "continue":
                control.resume(found[0])
            else:
                self.probe.engine.post(found[0], self.step, *found, how)

    def step(self, id, thread, how):
        """Begin the step; the stopped thread runs this itself."""
        self.probe.stop_arbiter.free()
        control.step(self.probe.engine, id, thread, how)

    def halt(self, thread):
        """Stop this thread at its next line; its stop is the one that is reported."""
        found = self.found(thread)
        if found is None or control.is_suspended(found[1]):
            return False
        control.halt(self.probe.engine, found[1])
        return True
