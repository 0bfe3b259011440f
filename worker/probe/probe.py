"""The probe: the relay's own code inside the debugged program, beside the debugger.

The program never imports it: `bootstrap` executes the files of this folder in namespaces of its
own, under file names that start with `<frozen `. The debugger treats such files as its own, so they
appear in no stack and are never stepped into. The probe has no socket, no module
in `sys.modules`, and no thread but one that watches in an attached program.

The debugger stops threads. The probe decides *whether* they stop (conditions and hit counts
together, each exception once), evaluates without ever blocking a session, reports child processes,
and detaches forked children. It uses the debugger only by the verbs of `engine.engine`;
`engine.hooks` lists the functions that it replaces.

In:  requests `relay` with `{"do": …}` and their fields; see `engine.connection.relay_requests`.
Out: DAP events `relayAnswer`, `relayError`, `relayFunction`, `relayGreenlets`, `relayLog`,
     `relayStop`, `relaySubprocess`, `relayTrace`; and in each `stopped` its place,
     `relayPlace`.
"""

import os
import threading

from debug_relay.worker.probe.breakpoints.exceptions import Exceptions
from debug_relay.worker.probe.breakpoints.line_breakpoints import LineBreakpoints
from debug_relay.worker.probe.breakpoints.run_to_line import RunToLine
from debug_relay.worker.probe.breakpoints.watchpoints import Watchpoints
from debug_relay.worker.probe.children.child_processes import ChildProcesses
from debug_relay.worker.probe.engine import backward_jumps, stack_overflow
from debug_relay.worker.probe.engine.connection import message_encoding
from debug_relay.worker.probe.engine.connection.relay_requests import RelayRequests
from debug_relay.worker.probe.engine.deep_stacks import DeepStacks
from debug_relay.worker.probe.engine.gevent_support import GreenletWarning
from debug_relay.worker.probe.engine.returns import Returns
from debug_relay.worker.probe.engine.settrace.fast_tracer import shorten
from debug_relay.worker.probe.engine.settrace.retracing import Retracing
from debug_relay.worker.probe.engine.step_unwinding import StepUnwinding
from debug_relay.worker.probe.engine.stop_arbiter import StopArbiter
from debug_relay.worker.probe.engine.suspended_wait import keep_suspended
from debug_relay.worker.probe.engine.threads import listing, running_frames
from debug_relay.worker.probe.engine.threads.lifetimes import ThreadLifetimes
from debug_relay.worker.probe.engine.uncaught_exceptions import UncaughtExceptions
from debug_relay.worker.probe.inspection.completions import Completions
from debug_relay.worker.probe.inspection.evaluation import Evaluations
from debug_relay.worker.probe.inspection.exception_details import ExceptionDetails
from debug_relay.worker.probe.inspection.live_threads import LiveThreads
from debug_relay.worker.probe.inspection.modules_and_tasks import ModulesAndTasks
from debug_relay.worker.probe.inspection.set_variable import VariableSetter
from debug_relay.worker.probe.inspection.source_texts import SourceTexts
from debug_relay.worker.probe.inspection.step_into_c import StepIntoC
from debug_relay.worker.probe.inspection.stop_report import StopReports
from debug_relay.worker.probe.inspection.threads import Threads
from debug_relay.worker.probe.inspection.variable_pages import VariablePages, untie
from debug_relay.worker.probe.tracing.trace import Tracer


class Probe(object):
    def __init__(self, engine):
        self.engine = engine
        self.pid = os.getpid()
        self.commands = {}  # name → the function that does it, in the debugger's command thread
        self.questions = {}  # name → the function that puts the question to a stopped thread
        self.started = False  # no thread stops before the program's own first line
        # Facts that one phase of a decision leaves for a later one in the same thread.
        self.this_thread = threading.local()
        self.requests = RelayRequests(self)
        self.points = LineBreakpoints(self)
        self.exceptions = Exceptions(self)
        self.answers = Evaluations(self)
        self.pages = VariablePages(self)
        self.raised = ExceptionDetails(self)
        self.reports = StopReports(self)
        self.variable_setter = VariableSetter(self)
        self.modules_and_tasks = ModulesAndTasks(self)
        self.completions = Completions(self)
        self.texts = SourceTexts(self)
        self.threads = Threads(self)
        self.live_threads = LiveThreads(self)
        self.run_to_line = RunToLine(self)
        self.watchpoints = Watchpoints(self)
        self.step_into_c = StepIntoC(self)
        self.step_unwinding = StepUnwinding(self)
        self.uncaught_exceptions = UncaughtExceptions(self)
        self.deep_stacks = DeepStacks(self, untie)
        self.returns = Returns(self)
        self.tracer = Tracer(self)
        self.children = ChildProcesses(self)
        self.stop_arbiter = StopArbiter(self)
        self.greenlet_warning = GreenletWarning(self)
        self.retracing = Retracing(self)
        self.lifetimes = ThreadLifetimes(self)

    def emit(self, event, body, until_sent=False):
        self.engine.emit(event, body, until_sent)

    def hook(self):
        self.requests.hook()
        self.answers.hook()
        self.points.hook()
        self.run_to_line.hook()
        self.exceptions.hook()
        self.stop_arbiter.hook()
        self.step_into_c.hook()
        self.step_unwinding.hook()
        self.deep_stacks.hook()
        running_frames.hook(self)
        backward_jumps.hook(self.engine.hooks)
        message_encoding.hook(self.engine.hooks)
        listing.hook(self)
        stack_overflow.hook(self.engine.hooks)
        self.uncaught_exceptions.hook()
        self.reports.hook()
        self.tracer.hook_entry()
        keep_suspended(self)
        self.greenlet_warning.hook()
        shorten(self)
        self.retracing.hook()
        self.lifetimes.hook()
        self.engine.hooks.put_in()

    def remove(self):
        self.tracer.remove()
        self.returns.end()
        self.watchpoints.remove()
        self.step_unwinding.remove()
        self.engine.hooks.remove()
        self.points.clear()


def start(engine, wanted):
    """Put the probe in. If it is not wanted, or the debugger lacks names that it needs, it only
    reports children and decides nothing.
    """
    probe = Probe(engine)
    if wanted and not engine.gone:
        try:
            probe.hook()
        except BaseException:
            probe.remove()
            raise
    return probe
