"""The text of a call as suggestions name it: verb and full path, taken from the operations table.

Error messages on both sides use it, so a suggestion cannot name a path that does not exist. Where
the session's id is unknown, its placeholder stays in the text; `RelayError.for_session` fills it in
when the error is answered.
"""

from __future__ import annotations

from debug_relay.protocol.operation_row import path_variables
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.version import API_PREFIX


def call_of(operation: str, session_id: str | None = None, /, **values: object) -> str:
    """The verb and path, such as `POST /api/v1/sessions/sess_1/step-over`.

    If the operation has several paths, the first one whose variables include all `values` is used.
    """
    row = OPERATIONS[operation]
    known = values if session_id is None else {"session_id": session_id, **values}
    return f"{row.verb} {filled(_path(row.paths, values), known)}"


def filled(path: str, values: dict[str, object]) -> str:
    """The path with the API prefix and the known values; unknown variables keep their
    placeholder.
    """
    for name in path_variables(path):
        if name in values:
            path = path.replace(f"{{{name}}}", str(values[name]))
    return API_PREFIX + path


def _path(paths: tuple[str, ...], values: dict[str, object]) -> str:
    for path in paths:
        if values.keys() <= set(path_variables(path)):
            return path
    raise ValueError(f"none of {', '.join(paths)} takes {', '.join(values)}")
