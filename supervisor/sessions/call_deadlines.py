"""How long a call of a worker may take, for the worker and for those who wait for the worker.

An operation's row says what its deadline consists of. Dispatch, `POST /run`, `POST /sessions` with
a mode and everything else that calls a worker take their numbers from here, so they agree.
"""

from __future__ import annotations

from typing import Final

from debug_relay.protocol.models.fields import Params
from debug_relay.protocol.operation_row import Operation
from debug_relay.supervisor.config.settings import Dap

# The worker needs this time to word its own refusal when its debugger is late.
_WORDING_SECONDS: Final = 5.0
# A worker that answers this much later than its deadline counts as unresponsive.
_UNRESPONSIVE_SECONDS: Final = 2.0


def for_worker(operation: Operation, lasts: float, dap: Dap) -> float:
    """The time in which the worker answers, if only with a refusal, a call that may itself last
    `lasts` seconds.
    """
    setting: float = getattr(dap, operation.deadline.setting)
    return setting + _WORDING_SECONDS + lasts


def for_call(operation: Operation, params: Params, dap: Dap) -> float:
    """How long the call itself may last, whatever it takes to serve it. A worker that answers no
    heartbeat is not waited for any longer.
    """
    row = operation.deadline
    seconds = 0.0
    for name in row.fields:
        given = getattr(params, name)
        if not given and row.otherwise is not None:
            given = getattr(dap, row.otherwise)
        seconds += given or 0.0
    return seconds


def for_caller(worker_seconds: float) -> float:
    """The time after which we give up waiting for a worker that has `worker_seconds`."""
    return worker_seconds + _UNRESPONSIVE_SECONDS
