"""Looking into a stopped program: stacks, variables, evaluation, in the shapes of the API."""

from __future__ import annotations

import os
from typing import Any, Final, Literal

from debug_relay.protocol import dap
from debug_relay.protocol import inspection as i
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.execution import ReturnValue
from debug_relay.protocol.state import State
from debug_relay.worker.session import Session

# pydevd adds these to what it lists: what functions returned, and the length as a child.
_RETURNED: Final = "(return) "
_NOTES: Final = frozenset({"len()", "more", "Unable to handle:"})
_METHODS: Final = frozenset(
    {"builtin_function_or_method", "method", "method-wrapper", "method_descriptor"}
)
_VALUE_LIMIT: Final = 65536


def thread_of(session: Session, thread_id: int | None) -> int:
    """The thread that was named, or the one that stopped."""
    if thread_id is not None:
        return session.hub.thread(thread_id).id
    if session.stop is not None:
        return session.stop.thread_id
    known = session.hub.thread_ids()
    if not known:
        session.hub.main_server()
        raise RelayError(
            Code.THREAD_NOT_FOUND,
            "The program has told of no thread yet",
            "GET …/threads asks for them.",
        )
    return known[0]


async def stack(session: Session, thread_id: int | None, start: int, levels: int) -> i.Stack:
    chosen = thread_of(session, thread_id)
    live = session.state is not State.PAUSED
    if live:
        # A running thread's stack is of a moment: nothing of it is kept.
        session.hub.forget_stop(chosen)
    window = await session.hub.stack(chosen, start, levels)
    frames = [_frame(session, start + index, frame) for index, frame in enumerate(window.frames)]
    return i.Stack(
        thread_id=chosen,
        frames=frames,
        total_frames=window.total,
        has_more=start + len(frames) < window.total,
        live=live,
    )


def _frame(session: Session, index: int, frame: dap.StackFrame) -> i.Frame:
    path = frame.source.path if frame.source and frame.source.path else "<unknown>"
    return i.Frame(
        id=index,
        name=frame.name,
        source=i.SourceRef(path=path, name=os.path.basename(path)),
        line=frame.line,
        column=frame.column,
        module_name=session.hub.module_of(path),
        presentation_hint=frame.presentation_hint or "normal",
    )


async def variables(
    session: Session,
    reference: int,
    start: int,
    count: int,
    kind: Literal["indexed", "named"] | None,
) -> i.VariableList:
    paged = await session.hub.page(reference, start, count, session.params.evaluate_timeout)
    if paged is not None:
        return _paged(session, reference, paged, start, kind)
    entry = session.hub.resolve(reference)
    listed = [
        variable
        for variable in await session.hub.variables(reference)
        if _is_of_the_program(variable, is_scope=entry.scope is not None)
        and (kind is None or _is_index(variable.name) == (kind == "indexed"))
    ]
    page = listed[start : start + count]
    return i.VariableList(
        variables_reference=reference,
        variables=[
            _variable(session, variable, entry.thread_id, entry.server) for variable in page
        ],
        total=len(listed),
        has_more=start + len(page) < len(listed),
    )


def _paged(
    session: Session,
    reference: int,
    paged: dict[str, Any],
    start: int,
    kind: Literal["indexed", "named"] | None,
) -> i.VariableList:
    """What the probe has listed; children of the other kind there are none."""
    entry = session.hub.resolve(reference)
    wanted = kind is None or (kind == "indexed") == paged["indexed"]
    rows = paged["rows"] if wanted else []
    total = paged["total"] if wanted else 0
    return i.VariableList(
        variables_reference=reference,
        variables=[_row(session, row, entry.thread_id, entry.server) for row in rows],
        total=total,
        has_more=start + len(rows) < total,
    )


def _row(session: Session, row: dict[str, Any], thread_id: int, server: Any) -> i.Variable:
    reference = session.hub.reference(server, row["reference"], thread_id)
    length = row.get("length")
    return i.Variable(
        name=row["name"],
        value=row["value"],
        type=row["type"] or "",
        variables_reference=reference,
        named_variables=_count_of(reference, length, row.get("indexed") is False),
        indexed_variables=_count_of(reference, length, row.get("indexed") is True),
        length=length,
        expandable=reference != 0,
        truncated=row["cut"],
    )


def _count_of(reference: int, length: int | None, is_this_kind: bool) -> int | None:
    """How many children of a kind: none for what cannot be expanded, unknown for objects."""
    if not reference:
        return 0
    if length is None:
        return None
    return length if is_this_kind else 0


def _is_of_the_program(variable: dap.Variable, is_scope: bool) -> bool:
    """Whether pydevd has not added it: lengths, returned values, notes about its own limits."""
    if variable.name in _NOTES or variable.name.startswith(_RETURNED):
        return False
    return is_scope or variable.type not in _METHODS


def _is_index(name: str) -> bool:
    return name.isdigit()


def _variable(session: Session, variable: dap.Variable, thread_id: int, server: Any) -> i.Variable:
    reference = session.hub.reference(server, variable.variables_reference, thread_id)
    cut = len(variable.value) > _VALUE_LIMIT
    return i.Variable(
        name=variable.name,
        value=variable.value[:_VALUE_LIMIT],
        type=variable.type or "",
        variables_reference=reference,
        named_variables=None if reference else 0,
        indexed_variables=None if reference else 0,
        expandable=reference != 0,
        presentation_hint=variable.presentation_hint,
        truncated=cut,
    )


async def return_value(session: Session) -> ReturnValue | None:
    """What the function returned that was just stepped out of."""
    if session.stop is None or session.stop.reason != "step":
        return None
    thread = session.hub.thread(session.stop.thread_id)
    frame = await session.hub.frame(thread.id, 0)
    found = await session.hub.returned(thread.server, frame, session.params.evaluate_timeout)
    return ReturnValue(type=found["type"], value=found["result"]) if found else None


async def evaluate(session: Session, params: i.Evaluate) -> i.Evaluated:
    thread_id = thread_of(session, params.thread_id)
    frame = await session.hub.frame(thread_id, params.frame_id)
    answer = await session.hub.evaluate(
        thread_id,
        frame,
        params.expression,
        statements=params.context == "repl",
        timeout=params.timeout or session.params.evaluate_timeout,
    )
    if answer.get("gone"):
        raise RelayError(
            Code.INVALID_SESSION_STATE,
            "The thread has run on before it could evaluate",
            "GET …/status, and evaluate at the next stop.",
            current_state=session.state.value,
            required_state="paused",
        )
    if refused := answer.get("refused"):
        raise _refused(params, refused)
    if answer.get("interrupted"):
        raise RelayError(
            Code.DEBUGPY_TIMEOUT,
            "The evaluation was interrupted",
            "The session is as before; give a larger timeout.",
            operation="evaluate",
            evaluating=False,
        )
    if raised := answer.get("raised"):
        short = raised["type"].rpartition(".")[2]
        return i.Evaluated(
            result=None,
            type=None,
            error=f"{short}: {raised['message']}" if raised["message"] else short,
            error_details=i.ErrorDetails(**raised),
        )
    if answer.get("statement"):
        return i.Evaluated(result=None, type=None)
    return i.Evaluated(
        result=answer["result"],
        type=answer["type"],
        variables_reference=session.hub.reference(
            session.hub.thread(thread_id).server, answer["reference"], thread_id
        ),
        presentation_hint=answer["hint"],
        truncated=answer["length"] > len(answer["result"]),
    )


def _refused(params: i.Evaluate, problem: dict[str, Any]) -> RelayError:
    statement = params.context != "repl" and "invalid syntax" in problem["message"]
    return RelayError(
        Code.EVALUATE_ERROR,
        f"The expression does not compile: {problem['message']}",
        "Statements need context repl; otherwise correct the expression."
        if statement
        else f"Correct it at column {problem.get('offset') or 1}.",
        expression=params.expression[:200],
        error_message=problem["message"],
        line=problem.get("line"),
        offset=problem.get("offset"),
    )
