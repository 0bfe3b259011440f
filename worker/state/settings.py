"""The settings of a session: those of its creation, with the changes of its callers."""

from __future__ import annotations

from pathlib import Path

from debug_relay.protocol.models.sessions import SessionConfig
from debug_relay.protocol.models.worker_messages import WorkerParams


class Settings:
    def __init__(self, params: WorkerParams) -> None:
        self.params = params
        self.id = params.session_id
        self.name = params.name
        self.folder = Path(params.session_dir)
        # The interpreter that the settings mean now, as callers see it.
        self.interpreter = params.config.python_path

    @property
    def config(self) -> SessionConfig:
        return self.params.config

    @config.setter
    def config(self, config: SessionConfig) -> None:
        self.params.config = config

    @property
    def request_timeout(self) -> float:
        return self.params.request_timeout

    @property
    def evaluate_timeout(self) -> float:
        return self.params.evaluate_timeout
