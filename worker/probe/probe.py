"""The probe: the relay's own code inside the debugged program, beside pydevd.

The program never imports it: `bootstrap` executes the files of this folder in namespaces of its
own, under file names that start with `<frozen `. pydevd treats such files as its own, so they
appear in no stack and are never stepped into. The probe has no thread, no socket, and no module in
`sys.modules`.

pydevd stops threads. The probe decides *whether* they stop (conditions and hit counts together,
each exception once), evaluates without ever blocking a session, reports child processes, and
detaches forked children. It uses pydevd only by the verbs of `engine.engine`; `engine.hooks` lists
the functions that it replaces.

In:  requests `relay` with `{"do": …}` and their fields; see `engine.connection/relay_requests`.
Out: DAP events `relayAnswer`, `relayError`, `relayFunction`, `relayGreenlets`, `relayLog`,
     `relayStop`, `relaySubprocess`, `relayTrace`; and in each `stopped` its place, `relayPlace`.
"""

import os
import threading

from debug_relay.worker.probe.breakpoints.exceptions import Exceptions
from debug_relay.worker.probe.breakpoints.line_breakpoints import Points
from debug_relay.worker.probe.breakpoints.run_to_line import Goal
from debug_relay.worker.probe.children.child_processes import Children
from debug_relay.worker.probe.engine import backward_jumps as jumps
from debug_relay.worker.probe.engine import stack_overflow as overflow
from debug_relay.worker.probe.engine.connection import message_encoding as encoding
from debug_relay.worker.probe.engine.connection.relay_requests import Requests
from debug_relay.worker.probe.engine.deep_stacks import Deep
from debug_relay.worker.probe.engine.gevent_support import Greenlets
from debug_relay.worker.probe.engine.settrace.fast_tracer import shorten
from debug_relay.worker.probe.engine.settrace.retracing import Rearming
from debug_relay.worker.probe.engine.step_unwinding import Unwinding
from debug_relay.worker.probe.engine.stop_arbiter import Turns
from debug_relay.worker.probe.engine.suspended_wait import withstand
from debug_relay.worker.probe.engine.threads import listing
from debug_relay.worker.probe.engine.threads import running_frames as all_frames
from debug_relay.worker.probe.engine.threads.lifetimes import Lifetimes
from debug_relay.worker.probe.engine.uncaught_exceptions import Uncaught
from debug_relay.worker.probe.inspection.completions import Completing
from debug_relay.worker.probe.inspection.evaluation import Answers
from debug_relay.worker.probe.inspection.exception_details import Raised
from debug_relay.worker.probe.inspection.modules_and_tasks import Reads
from debug_relay.worker.probe.inspection.set_variable import Assigning
from debug_relay.worker.probe.inspection.source_texts import Texts
from debug_relay.worker.probe.inspection.step_into_c import Native
from debug_relay.worker.probe.inspection.stop_report import Reports
from debug_relay.worker.probe.inspection.threads import Threads
from debug_relay.worker.probe.inspection.variable_pages import Pages, untie
from debug_relay.worker.probe.tracing.trace import Tracer


class Probe(object):
    def __init__(self, engine):
        self.engine = engine
        self.pid = os.getpid()
        self.commands = {}  # name → the function that does it, in pydevd's command thread
        self.questions = {}  # name → the function that puts the question to a stopped thread
        self.started = False  # no thread stops before the program's own first line
        self.told = threading.local()
        self.requests = Requests(self)
        self.points = Points(self)
        self.exceptions = Exceptions(self)
        self.answers = Answers(self)
        self.pages = Pages(self)
        self.raised = Raised(self)
        self.reports = Reports(self)
        self.assigning = Assigning(self)
        self.reads = Reads(self)
        self.completing = Completing(self)
        self.texts = Texts(self)
        self.threads = Threads(self)
        self.goal = Goal(self)
        self.native = Native(self)
        self.unwinding = Unwinding(self)
        self.uncaught = Uncaught(self)
        self.deep = Deep(self, untie)
        self.tracer = Tracer(self)
        self.children = Children(self)
        self.turns = Turns(self)
        self.greenlets = Greenlets(self)
        self.rearming = Rearming(self)
        self.lifetimes = Lifetimes(self)

    def emit(self, event, body, until_sent=False):
        self.engine.emit(event, body, until_sent)

    def hook(self):
        self.requests.hook()
        self.answers.hook()
        self.points.hook()
        self.goal.hook()
        self.exceptions.hook()
        self.turns.hook()
        self.native.hook()
        self.unwinding.hook()
        self.deep.hook()
        all_frames.hook(self)
        jumps.hook(self.engine.hooks)
        encoding.hook(self.engine.hooks)
        listing.hook(self)
        overflow.hook(self.engine.hooks)
        self.uncaught.hook()
        self.reports.hook()
        self.tracer.hook_entry()
        withstand(self)
        self.greenlets.hook()
        shorten(self)
        self.rearming.hook()
        self.lifetimes.hook()
        self.engine.hooks.put_in()

    def remove(self):
        self.tracer.remove()
        self.unwinding.remove()
        self.engine.hooks.remove()
        self.points.clear()


def start(engine, wanted):
    """Put the probe in. If it is not wanted, or pydevd lacks names that it needs, it only reports
    children and decides nothing.
    """
    probe = Probe(engine)
    if wanted and not engine.gone:
        try:
            probe.hook()
        except BaseException:
            probe.remove()
            raise
    return probe
