"""Sends the session's events to an IDE as messages of DAP, in the order in which they were
journaled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from debug_relay.protocol.models.breakpoints import Breakpoint
from debug_relay.worker.debugger.stopped_threads import Stop
from debug_relay.worker.ide.joined_ide import JoinedIde
from debug_relay.worker.ide.shapes import breakpoint_of, number_of

_LIVE: Final = ("running", "paused")
_DONE: Final = {"new": "set", "removed": "removed"}  # The words for what a caller did.
_TAIL_CHARACTERS: Final = 4000  # The output before an IDE has joined, as the IDE gets it.
_MOST_LISTED: Final = 20  # The agents' breakpoints that an IDE is told when it joins.


def pass_on(ide: JoinedIde, type: str, body: Mapping[str, Any]) -> None:
    """Send the IDE an event that was journaled just now."""
    own = ide.own_request()
    for request in list(ide.requests.values()):
        on_event = request.on_event
        if on_event is not None and on_event[0] == type and (type != "continued" or request is own):
            ide.respond(request, on_event[1])
    if not ide.is_configured:
        return
    teller = _TELLERS.get(type)
    if teller is not None:
        teller(ide, body)


def present(ide: JoinedIde) -> None:
    """Show an IDE that joins where the program is."""
    session = ide.session
    current, program = session.stops.current, session.debuggee.program
    what = (program.script or program.module or f"pid {program.pid}") if program else "no program"
    ide.say(f"Joined {session.settings.id} ({session.settings.name}): {what}")
    lease = session.lease.shown()
    if lease is not None and lease.holder != ide.name:
        ide.say(f"{lease.holder} drives this session.")
    theirs = session.breakpoints.owned_by(None)
    if theirs:
        listed = [described(ide, session.breakpoints.show(one)) for one in theirs[:_MOST_LISTED]]
        more = [f"{len(theirs) - _MOST_LISTED} more"] if len(theirs) > _MOST_LISTED else []
        ide.say("Agents have set:\n  " + "\n  ".join(listed + more))
    tail = session.log.tail(_TAIL_CHARACTERS)
    if tail:
        ide.send_event("output", {"category": "console", "output": f"Earlier output:\n{tail}\n"})
    if current is not None:
        caller = session.callers.of("stopped", {"reason": current.reason})
        description = _by(ide, f"Paused on {current.reason}", caller)
        tell_stop(ide, current, current.reason, description, None)
    elif session.lifecycle.state.value in ("terminated", "failed"):
        ide.say("Its program has ended.")
        ide.send_event("terminated")


def tell_stop(ide: JoinedIde, stop: Stop, reason: str, description: str, text: str | None) -> None:
    session = ide.session
    stopped = session.stops.stopped_threads()
    everyone = stopped == session.hub.thread_ids()
    ide.stopped.update(stopped if everyone else [stop.thread_id])
    if stop.value_changes:
        reason = "data breakpoint"
        text = "; ".join(f"{one.watch}: {one.before} → {one.after}" for one in stop.value_changes)
    own = {entry.id for entry in session.breakpoints.owned_by(ide.name)}
    hits = [number_of(id) for id in stop.hit_breakpoints if id in own]
    if stop.hit_breakpoints and not hits:
        agents = {entry.id for entry in session.breakpoints.owned_by(None)}
        whose = "an agent" if agents & {*stop.hit_breakpoints} else "another IDE"
        description = f"{description} ({', '.join(stop.hit_breakpoints)} of {whose})"
    body: dict[str, Any] = {
        "reason": "goto" if reason == "run-to" else reason,
        "description": description,
        "threadId": stop.thread_id,
        "preserveFocusHint": False,
        "allThreadsStopped": everyone,
    }
    if hits:
        body["hitBreakpointIds"] = hits
    if text is not None:
        body["text"] = text
    ide.send_event("stopped", body)


def _by(ide: JoinedIde, description: str, caller: str | None) -> str:
    """The description of a stop, with the caller that has caused it if that is another one."""
    return description if caller in (None, ide.name) else f"{description}, by {caller}"


def _stopped(ide: JoinedIde, body: Mapping[str, Any]) -> None:
    stop = ide.session.stops.threads.of(body["thread_id"])
    if stop is None:
        return
    description = _by(ide, body["description"], body.get("caller"))
    tell_stop(ide, stop, body["reason"], description, body["text"])


def _continued(ide: JoinedIde, body: Mapping[str, Any]) -> None:
    """Report that threads run again; the IDE that has resumed them has its answer already."""
    still = set(ide.session.stops.stopped_threads())
    resumed = sorted(ide.stopped - still)
    ide.stopped &= still
    if not resumed or ide.own_request() is not None:
        return
    if not ide.stopped:
        thread_id = body.get("thread_id") or resumed[0]
        ide.send_event("continued", {"threadId": thread_id, "allThreadsContinued": True})
        return
    for thread_id in resumed:
        ide.send_event("continued", {"threadId": thread_id, "allThreadsContinued": False})


def _terminated(ide: JoinedIde, body: Mapping[str, Any]) -> None:
    if body["restart"]:
        _continued(ide, {})  # its threads are gone; those of the next run follow
        ide.say(f"{body.get('caller') or 'A caller'} restarts the program.")
        return
    caller = body.get("caller")
    if caller is not None and caller != ide.name:
        ide.say(f"{caller} has ended the program.")
    if body["signal"]:
        ide.say(f"The program was ended by {body['signal']}.")
    if body["exit_code"] is None:
        ide.say("The program has ended; the exit code of an attached one is not known.")
    else:
        ide.send_event("exited", {"exitCode": body["exit_code"]})
    ide.send_event("terminated")


def _session(ide: JoinedIde, body: Mapping[str, Any]) -> None:
    if body["status"] == "created" and body.get("previous_status") in _LIVE:
        ide.say(f"{body.get('caller') or 'The relay'} has detached from the program.")
        ide.send_event("terminated")
    elif "lease" in body:
        lease = body["lease"]
        holder = lease.holder if lease is not None else None
        driver = "You drive" if holder == ide.name else f"{holder or 'Nobody'} drives"
        ide.say(f"{body['message']}. {driver} this session now.")
    elif body.get("message") and body.get("caller") != ide.name:
        ide.say(body["message"])


def _output(ide: JoinedIde, body: Mapping[str, Any]) -> None:
    ide.send_event("output", {"category": body["category"], "output": body["output"]})


def _breakpoint(ide: JoinedIde, body: Mapping[str, Any]) -> None:
    """Send an IDE its own breakpoints, and tell it of others in words: it would show them as its
    user's.
    """
    shown: Breakpoint = body["breakpoint"]
    reason, caller = body["reason"], body.get("caller")
    if shown.owner != ide.name:
        if caller is not None and reason in _DONE:
            ide.say(f"{caller} has {_DONE[reason]} {described(ide, shown)}")
    elif reason == "changed" and ide.own_request() is None:
        ide.send_event("breakpoint", {"reason": "changed", "breakpoint": breakpoint_of(ide, shown)})


def described(ide: JoinedIde, shown: Breakpoint) -> str:
    """A breakpoint in a few words."""
    kind = "a log point" if shown.log_message else "a watchpoint" if shown.watch else "a breakpoint"
    if shown.watch or shown.function:
        where = f"on {shown.watch or shown.function}"
    else:
        where = f"at {ide.paths.to_ide(shown.source['path'])}:{ide.line(shown.line or 0)}"
    when = f" if {shown.condition}" if shown.condition else ""
    count = f", hit {shown.hit_condition}" if shown.hit_condition else ""
    return f"{kind} {where}{when}{count}"


def _thread(ide: JoinedIde, body: Mapping[str, Any]) -> None:
    if body["reason"] == "exited":
        ide.stopped.discard(body["thread_id"])
    ide.send_event("thread", {"reason": body["reason"], "threadId": body["thread_id"]})


def _module(ide: JoinedIde, body: Mapping[str, Any]) -> None:
    module = body["module"]
    shown = {"id": module["id"], "name": module["name"], "isUserCode": module["is_user_code"]}
    if module["path"]:
        shown["path"] = ide.paths.to_ide(module["path"])
    ide.send_event("module", {"reason": "new", "module": shown})


def _process(ide: JoinedIde, body: Mapping[str, Any]) -> None:
    if body.get("message"):
        ide.say(str(msgspec.to_builtins(body["message"])))


_Teller = Callable[[JoinedIde, Mapping[str, Any]], None]
_TELLERS: Final[Mapping[str, _Teller]] = {
    "stopped": _stopped,
    "continued": _continued,
    "terminated": _terminated,
    "session": _session,
    "output": _output,
    "breakpoint": _breakpoint,
    "thread": _thread,
    "module": _module,
    "process": _process,
}
