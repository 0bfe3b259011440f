"""Calls as a suggestion names them: verb and whole path, from the operations table.

Where a session's id is not at hand its placeholder stays in the text, and is filled in where the
error is answered: see `RelayError.about`.
"""

from __future__ import annotations

from debug_relay.protocol.operations import OPERATIONS, path_variables
from debug_relay.protocol.version import API_PREFIX


def call_of(operation: str, session_id: str | None = None, /, **values: object) -> str:
    """`POST /api/v1/sessions/sess_1/step-over`; of several paths the first that takes `values`."""
    row = OPERATIONS[operation]
    known = values if session_id is None else {"session_id": session_id, **values}
    return f"{row.verb} {filled(_path(row.paths, values), known)}"


def filled(path: str, values: dict[str, object]) -> str:
    """With the prefix; what no value is known of stays as it is in the table."""
    for name in path_variables(path):
        if name in values:
            path = path.replace(f"{{{name}}}", str(values[name]))
    return API_PREFIX + path


def _path(paths: tuple[str, ...], values: dict[str, object]) -> str:
    for path in paths:
        if values.keys() <= set(path_variables(path)):
            return path
    raise ValueError(f"none of {', '.join(paths)} takes {', '.join(values)}")
