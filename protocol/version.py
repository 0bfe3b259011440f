"""Version numbers and names by which the parts of the relay recognise each other."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
API_VERSION: Final = "v1"
API_PREFIX: Final = "/api/v1"

# The version of the framing between supervisor and worker. A new supervisor adopts workers of the
# version before.
WIRE: Final = 1
WIRE_ACCEPTED: Final = frozenset({1})

# The body of one request, unless `max_body_bytes` says otherwise.
MAX_BODY_BYTES: Final = 10 * 1024 * 1024
# One frame between supervisor and worker: a broken peer cannot fill the memory.
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024

# The Pythons that the pinned debugpy debugs. `worker/probe/startup/bootstrap.py` repeats them,
# because it runs alone inside programs.
FIRST_PYTHON: Final = (3, 8)
LAST_PYTHON: Final = (3, 15)
PYTHONS: Final = "{}.{} to {}.{}".format(*FIRST_PYTHON, *LAST_PYTHON)

# This variable in the environment of every launched program lets us find a session's processes
# again.
MARK: Final = "DEBUG_RELAY_SESSION"
