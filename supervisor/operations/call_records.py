"""Each finished request is counted in the metrics, and written to the audit or refusal log."""

from __future__ import annotations

import time
from http import HTTPStatus

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.supervisor.access.audit import Audit, AuditedCall, is_audited
from debug_relay.supervisor.access.refusal_log import BEFORE_AUTHENTICATION, RefusalLog
from debug_relay.supervisor.operations.answers import Finished, error_code_of
from debug_relay.supervisor.operations.metrics import Metrics
from debug_relay.supervisor.operations.request import Call, Request


class CallRecords:
    def __init__(self, audit: Audit, refused: RefusalLog, metrics: Metrics) -> None:
        self._audit = audit
        self._refused = refused
        self._metrics = metrics

    def count_refusal(self, call: Call, error: RelayError) -> None:
        """Passes refusals of unauthenticated or unauthorised callers to the refusal log."""
        request = call.request
        operation = request.operation
        call.not_admitted = error.code in BEFORE_AUTHENTICATION
        has_audit_line = operation is not None and is_audited(operation)
        lacks_scope = error.code is Code.INSUFFICIENT_SCOPE
        if call.not_admitted or (lacks_scope and not has_audit_line):
            caller = call.caller.name if call.caller is not None else None
            self._refused.request(
                error, request.uid, request.address, caller, request.id, *_asked(request)
            )

    def note(self, call: Call, finished: Finished | None) -> None:
        """Counts the request and writes the audit log; `finished` is None if the caller left before
        the answer.
        """
        operation = call.request.operation
        if finished is not None:
            self.count_answer(call, finished)
        if operation is None or not is_audited(operation) or call.not_admitted:
            return
        self._audit.note(
            AuditedCall(
                operation=operation.name,
                request_id=call.request.id,
                uid=call.request.uid,
                address=call.request.address,
                caller=call.caller.name if call.caller is not None else None,
                session_id=call.session_id,
                params=call.params,
                status=finished.status if finished is not None else None,
                code=error_code_of(finished) if finished is not None else None,
                seconds=time.monotonic() - call.began,
            )
        )

    def count_answer(self, call: Call, finished: Finished) -> None:
        operation, status = call.request.operation, finished.status
        seconds = time.monotonic() - call.began
        code = None
        if status >= HTTPStatus.BAD_REQUEST:
            code = call.refused_with or error_code_of(finished) or f"status {status}"
        elif operation is not None and operation.name == "attach":
            self._metrics.count_attach(seconds)
        name = operation.name if operation is not None else "unknown"
        self._metrics.count(name, status, seconds, code)


def _asked(request: Request) -> tuple[str, str]:
    if request.asked is not None:
        return request.asked
    operation = request.operation
    return (operation.verb, operation.path) if operation is not None else ("", "")
