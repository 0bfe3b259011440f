"""The debugger of a session: its debug servers, the ways to ask them, the stops, the program."""

from __future__ import annotations

from msgspec import Struct

from debug_relay.worker.debugger.hub import Hub
from debug_relay.worker.debugger.probe_client import ProbeClient
from debug_relay.worker.debugger.stops import Stops
from debug_relay.worker.debugger.target import Debuggee


class Debugging(Struct, frozen=True):
    """A part that needs three of them or more takes this; others name what they need."""

    hub: Hub
    probes: ProbeClient
    stops: Stops
    debuggee: Debuggee
