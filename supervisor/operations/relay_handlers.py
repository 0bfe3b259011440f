"""Operations about the relay as a whole: its documents, health, settings and metrics."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from msgspec import Struct

from debug_relay.protocol.docs import reference_page
from debug_relay.protocol.docs.llms import first_calls, index_text, llms_text
from debug_relay.protocol.docs.openapi import openapi
from debug_relay.protocol.models import relay
from debug_relay.protocol.models.fields import Empty
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.version import API_PREFIX, API_VERSION, VERSION
from debug_relay.protocol.wire.envelope import encode_json, timestamp_of
from debug_relay.protocol.wire.frames import Caller
from debug_relay.supervisor.access.tickets import (
    PROTOCOL,
    TICKET_PREFIX,
    TICKET_SECONDS,
    Tickets,
)
from debug_relay.supervisor.config.runtime import RuntimeConfig
from debug_relay.supervisor.operations import metrics
from debug_relay.supervisor.operations.answers import Answer, Document, Handler
from debug_relay.supervisor.sessions.registry import Registry
from debug_relay.supervisor.storage.disk_health import DiskWatch

_JSON_TYPE: Final = "application/json; charset=utf-8"
_NAME: Final = "OpenCode Debug Relay Server"
_LINKED: Final = ("health", "info", "list-sessions", "openapi", "docs", "llms", "metrics", "mcp")


class RelayFacts(Struct):
    """Facts about the relay as a whole, for handlers."""

    url: str
    started: float  # monotonic
    debugpy_version: str | None
    stop: Callable[[bool | None], bool]  # takes and returns whether sessions are kept
    disk: DiskWatch


class RelayHandlers:
    def __init__(
        self,
        registry: Registry,
        facts: RelayFacts,
        config: RuntimeConfig,
        counted: metrics.Metrics,
        tickets: Tickets,
    ) -> None:
        self._registry = registry
        self._facts = facts
        self._config = config
        self._metrics = counted
        self._tickets = tickets
        self._openapi: bytes | None = None
        self._docs_page: bytes | None = None

    def table(self) -> Mapping[str, Handler]:
        return {
            "index": self._index,
            "ticket": self._ticket,
            "health": self._health,
            "info": self._info,
            "get-config": self._get_config,
            "patch-config": self._patch_config,
            "shutdown": self._shutdown,
            "openapi": self._openapi_document,
            "llms": self._llms,
            "docs": self._docs,
            "metrics": self._metrics_page,
        }

    async def _index(self, params: Empty, caller: Caller) -> Struct:
        url = self._facts.url
        linked = (OPERATIONS[name] for name in _LINKED)
        links = {row.name: url + row.path for row in linked}
        index = {
            "name": _NAME,
            "version": VERSION,
            "links": links,
            "try": first_calls(url),
        }
        body = encode_json(index) + b"\n"
        return Document(body, _JSON_TYPE, is_json=True, text=index_text(VERSION, url))

    async def _llms(self, params: Empty, caller: Caller) -> Struct:
        body = llms_text(self._facts.url).encode()
        return Document(body, "text/plain; charset=utf-8")

    async def _ticket(self, params: Empty, caller: Caller) -> Struct:
        ticket = self._tickets.issue(caller)
        return relay.Ticket(
            ticket=ticket,
            protocols=[PROTOCOL, TICKET_PREFIX + ticket],
            expires_at=timestamp_of(time.time() + TICKET_SECONDS),
        )

    async def _health(self, params: Empty, caller: Caller) -> Struct:
        warnings = []
        is_well = self._registry.directories.are_held()
        if not is_well:
            warnings.append("the data directory's lock was lost: another relay may use it")
        if lacking := await self._registry.room.lacking():
            is_well = False
            warnings.append(f"no session can be started: {lacking}")
        if self._facts.debugpy_version is None:
            warnings.append("debugpy is not installed: no program can be debugged")
        warnings += self._facts.disk.warnings()
        health = relay.Health(
            status="healthy" if is_well else "unhealthy",
            version=VERSION,
            uptime_seconds=round(time.monotonic() - self._facts.started, 3),
            active_sessions=len(self._registry.counted()),
            debugpy_available=self._facts.debugpy_version is not None,
            warnings=warnings,
        )
        return health if is_well else Answer(health, HTTPStatus.SERVICE_UNAVAILABLE)

    async def _info(self, params: Empty, caller: Caller) -> Struct:
        return relay.Info(
            name=_NAME,
            version=VERSION,
            api_version=API_VERSION,
            python_version=platform.python_version(),
            debugpy_version=self._facts.debugpy_version,
            runs_as_root=os.geteuid() == 0,
            capabilities={
                "supports_conditional_breakpoints": True,
                "supports_hit_conditional_breakpoints": True,
                "supports_log_points": True,
                "supports_exception_breakpoints": True,
                "supports_function_breakpoints": True,
                "supports_evaluate": True,
                "supports_set_variable": True,
                "supports_restart": True,
                "supports_attach": True,
                "max_sessions": self._registry.settings.sessions.max_sessions,
            },
            endpoints=list(
                dict.fromkeys(API_PREFIX + row.path.rstrip("/") for row in OPERATIONS.values())
            ),
        )

    async def _get_config(self, params: Empty, caller: Caller) -> Struct:
        return self._config.shown()

    async def _patch_config(self, params: relay.PatchConfig, caller: Caller) -> Struct:
        return await self._config.patch(params)

    async def _shutdown(self, params: relay.Shutdown, caller: Caller) -> Struct:
        kept = self._facts.stop(params.keep_sessions)
        return relay.ShuttingDown(
            stopping=True,
            keep_sessions=kept,
            sessions=len(self._registry.counted()),
        )

    async def _openapi_document(self, params: Empty, caller: Caller) -> Struct:
        if self._openapi is None:
            self._openapi = encode_json(openapi(VERSION, self._facts.url)) + b"\n"
        return Document(self._openapi, _JSON_TYPE, is_json=True)

    async def _docs(self, params: Empty, caller: Caller) -> Struct:
        if self._docs_page is None:
            self._docs_page = await asyncio.to_thread(reference_page.html_page, self._facts.url)
        kind, headers = reference_page.CONTENT_TYPE, reference_page.HEADERS
        return Document(self._docs_page, kind, headers=headers)

    async def _metrics_page(self, params: Empty, caller: Caller) -> Struct:
        page = await asyncio.to_thread(self._metrics.text, dict(self._registry.sessions))
        return Document(page, metrics.CONTENT_TYPE)
