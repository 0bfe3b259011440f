"""Four parts of a session that nearly every other part needs. They import none of the others."""

from __future__ import annotations

from msgspec import Struct

from debug_relay.worker.state.lifecycle import Lifecycle
from debug_relay.worker.state.log import SessionLog
from debug_relay.worker.state.publication import Publication
from debug_relay.worker.state.settings import Settings


class Core(Struct, frozen=True):
    """A part that needs three of them or more takes this; others name what they need."""

    settings: Settings
    lifecycle: Lifecycle
    log: SessionLog
    publication: Publication
