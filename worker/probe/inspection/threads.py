"""The program's threads one by one: which stand, where the others are, and moving one alone.

Over DAP alone, the debugger moves all threads where one stop halts all. What is asked here is done
to one thread and leaves the others as they are.
"""

from debug_relay.worker.probe.engine.frames import module_of
from debug_relay.worker.probe.engine.threads import control
from debug_relay.worker.probe.engine.threads import running_frames as all_frames
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

    @all_frames.steady
    def rows(self):
        """[DAP's number, whether it stands, whether it will before its next line, top frame]."""
        current, known, found = all_frames.of_all(), {}, []
        for id, thread in control.of_program():
            held = control.is_suspended(thread)
            listed = self.probe.engine.frames(id) if held else None
            if listed is not None:
                frames = self.probe.engine.stack(listed, 1, count=False)[0]
            else:
                frames = self.walked(current.get(thread.ident), 0, 1, known)[0]
            dap_id = self.probe.engine.dap_id(id)
            found.append([dap_id, listed is not None, held, frames[0] if frames else None])
        return found

    @all_frames.steady
    def live(self, thread, start, levels):
        """The stack of a thread that does not stand, as it is at this moment."""
        found = self.found(thread)
        if found is None:
            return {"gone": True}
        id, thread = found
        if control.is_suspended(thread) and self.probe.engine.frames(id) is not None:
            return {"stands": True}
        frame = all_frames.of_all().get(thread.ident)
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
        """Whether the stop of one thread halts the others too."""
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
        """In the stopped thread itself."""
        self.probe.turns.free()
        control.step(self.probe.engine, id, thread, how)

    def halt(self, thread):
        """Stop this thread at its next line; its stop is the one that is told."""
        found = self.found(thread)
        if found is None or control.is_suspended(found[1]):
            return False
        control.halt(self.probe.engine, found[1])
        return True
