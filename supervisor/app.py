"""The relay's process: puts the parts together, starts them, and stops them in order.

The command line calls `serve`. One line goes to stdout when the relay accepts connections;
everything else is log and goes to stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import importlib.metadata
import importlib.util
import os
import signal
import time
from pathlib import Path
from typing import Final, NamedTuple

from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.system import peers
from debug_relay.protocol.version import API_PREFIX, VERSION
from debug_relay.supervisor import log
from debug_relay.supervisor.access.audit import Audit
from debug_relay.supervisor.access.guard import Guard
from debug_relay.supervisor.access.listening_address import ListeningAddress, check_open_address
from debug_relay.supervisor.access.refusal_log import RefusalLog
from debug_relay.supervisor.access.tokens import Tokens, tokens_file
from debug_relay.supervisor.config.layers import Loaded
from debug_relay.supervisor.config.runtime import RuntimeConfig
from debug_relay.supervisor.config.settings import Settings
from debug_relay.supervisor.http.front import Front
from debug_relay.supervisor.http.listener import Listener
from debug_relay.supervisor.http.router import Router
from debug_relay.supervisor.log import Log, LogOutput
from debug_relay.supervisor.mcp.over_http import Mcp
from debug_relay.supervisor.operations.admission import Admission
from debug_relay.supervisor.operations.call_records import CallRecords
from debug_relay.supervisor.operations.dispatch import Dispatch
from debug_relay.supervisor.operations.handlers import Handlers
from debug_relay.supervisor.operations.idempotency import Idempotency
from debug_relay.supervisor.operations.idempotency_store import KeptReplies
from debug_relay.supervisor.operations.metrics import Metrics
from debug_relay.supervisor.operations.output_handlers import OutputHandlers
from debug_relay.supervisor.operations.relay_handlers import RelayFacts, RelayHandlers
from debug_relay.supervisor.operations.session_handlers import SessionHandlers
from debug_relay.supervisor.operations.worker_calls import WorkerCalls
from debug_relay.supervisor.processes.listening_ports import port_holder
from debug_relay.supervisor.processes.listing import Processes
from debug_relay.supervisor.sessions.registry import Registry
from debug_relay.supervisor.setup_error import SetupError
from debug_relay.supervisor.storage.directories import Directories
from debug_relay.supervisor.storage.disk_health import DiskWatch
from debug_relay.supervisor.streams.service import Streams
from debug_relay.supervisor.workers import orphan_cleanup
from debug_relay.supervisor.workers.child_process import watched

_log: Final = Log(__name__)
# The pause between attempts to write own files that had no room at the start.
_CATCH_UP_SECONDS: Final = 2.0
_REQUESTS_SECONDS: Final = 2.0  # Requests under way may take this long when the relay stops.
_LARGE_PIECE: Final = 1 << 20


def serve(
    loaded: Loaded,
    keep_sessions: bool = False,
    insecure_no_auth: bool = False,
    private: bool = False,
) -> int:
    """Runs the relay until it is asked to stop; returns the exit code.

    A private relay has its Unix socket alone, no TCP port, and stops when its standard input ends.
    """
    settings = loaded.settings
    server = settings.server
    address = ListeningAddress(server.host)
    warnings = check_open_address(
        address, tokens_file(settings), server.allow_hosts, insecure_no_auth
    )
    run_dir = server.run_dir
    directories = Directories.open(Path(server.data_dir), Path(run_dir) if run_dir else None)
    directories.acquire()
    output = log.start(settings.log.level, settings.log.format, directories.log_file)
    audit: Audit | None = None
    try:
        audit = Audit.open(settings.log.audit_file, directories.audit_file)
        for warning in loaded.warnings:
            _log.warning("config.passed_over", reason=warning)
        for warning in directories.warnings:
            _log.warning("store.unsafe", reason=warning)
        if directories.unnamed_lock is not None:
            _log.warning("store.lock_unnamed", reason=directories.unnamed_lock)
        if os.geteuid() == 0:
            _log.warning("relay.root", reason="this relay runs as root, and so do its programs")
        if insecure_no_auth:
            _log.warning("auth.off", reason="--insecure-no-auth: whoever gets in runs code as us")
        for warning in warnings:
            _log.warning("listen.open", reason=warning)
        relay = _Relay(loaded, directories, output, audit, keep_sessions, insecure_no_auth, private)
        # Imported modules live as long as the relay. Each full garbage collection would visit
        # them, and the event loop would wait for 26 ms.
        gc.freeze()
        return asyncio.run(relay.run())
    finally:
        if audit is not None:
            audit.close()
        output.close()
        directories.release()


class _Parts(NamedTuple):
    """The parts of a relay that are started and stopped; each knows the others that it needs."""

    registry: Registry
    dispatch: Dispatch
    streams: Streams
    mcp: Mcp
    listener: Listener
    facts: RelayFacts


class _Relay:
    def __init__(
        self,
        loaded: Loaded,
        directories: Directories,
        output: LogOutput,
        audit: Audit,
        keep_sessions: bool,
        insecure_no_auth: bool,
        private: bool,
    ) -> None:
        self._loaded = loaded
        self._settings = loaded.settings
        self._output = output
        self._audit = audit
        self._directories = directories
        self._stopping = asyncio.Event()
        self._keep_sessions = keep_sessions
        self._insecure_no_auth = insecure_no_auth
        self._private = private
        orphan_cleanup.become_subreaper()

    def _put_together(self) -> _Parts:
        server = self._settings.server
        guard = Guard(
            address=ListeningAddress(server.host),
            port=server.port,
            allowed_hosts=server.allow_hosts,
            allowed_uids=server.allow_uids,
            allow_other_users=server.allow_other_users,
            own_uid=os.getuid(),
            check_peers=peers.available(),
            tokens=Tokens(tokens_file(self._settings)),
            insecure_no_auth=self._insecure_no_auth,
        )
        debugpy_dir, debugpy_version = _debugpy()
        registry = Registry(self._settings, self._directories, debugpy_dir)
        processes = Processes(lambda: registry.sessions, registry.zygote, debugpy_dir)

        def apply(settings: Settings) -> None:
            registry.settings = settings
            self._output.set_level(settings.log.level)

        config = RuntimeConfig(self._loaded, self._directories, apply)
        kept = Idempotency(KeptReplies(self._directories.kept_replies), registry.background)
        audit = self._audit
        disk = DiskWatch(
            self._directories,
            (config.warning, kept.warning, audit.warning),
            registry.disk_warnings,
        )
        facts = RelayFacts("", time.monotonic(), debugpy_version, self.stop, disk)
        refused = RefusalLog(audit)
        worker_calls = WorkerCalls(registry, processes)
        metrics = Metrics(refused.totals)
        dispatch = Dispatch(
            registry,
            Admission(guard, registry),
            Handlers(
                RelayHandlers(registry, facts, config, metrics, guard.tickets),
                SessionHandlers(registry, processes, worker_calls),
                OutputHandlers(registry),
            ),
            worker_calls,
            kept,
            CallRecords(audit, refused, metrics),
            str(self._directories.log_file),
        )
        router = Router(OPERATIONS, API_PREFIX)
        streams, mcp = Streams(dispatch), Mcp(dispatch)
        front = Front(guard, router, dispatch, streams, mcp, lambda: registry.settings)
        listener = Listener(front, guard, refused=refused)
        return _Parts(registry, dispatch, streams, mcp, listener, facts)

    async def run(self) -> int:
        _keep_freed_memory()
        parts = self._put_together()
        registry, facts = parts.registry, parts.facts
        # We adopt before we listen: a caller finds its sessions right after a restart.
        await registry.adopt()
        try:
            facts.url = await self._listen(parts.listener)
            self._directories.announce(facts.url)
            registry.background.begin(self._catch_up())
            self._listen_to_signals()
            if self._private:
                self._stop_with_standard_input()
            print(f"debug-relay listening on {facts.url} (pid {os.getpid()})", flush=True)
            _log.info("relay.started", url=facts.url, pid=os.getpid(), version=VERSION)
            registry.zygote.start()  # it is ready before most callers' first session
            await self._stopping.wait()
            _log.info("relay.stopping", keep_sessions=self._keep_sessions)
            registry.draining = True
            parts.streams.close()
        finally:
            # Most calls end with their sessions, so sessions end first, then the other calls.
            await registry.close(self._keep_sessions or not self._stopping.is_set())
            await parts.mcp.close()
            await parts.dispatch.close()
            await parts.listener.stop(_REQUESTS_SECONDS)
            self._directories.relay_file.remove()
        _log.info("relay.stopped")
        return 0

    async def _catch_up(self) -> None:
        """Writes the own files for which the disk had no room at the start, once it has some."""
        while not self._stopping.is_set() and self._directories.lacks_files:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CATCH_UP_SECONDS):
                    await self._stopping.wait()
            try:
                await asyncio.to_thread(self._directories.write_own_files)
            except SetupError as error:
                _log.warning("store.not_written", error=error.message)

    async def _listen(self, listener: Listener) -> str:
        """Opens the sockets; returns the address for callers."""
        server = self._settings.server
        address = ListeningAddress(server.host)
        url = f"unix:{server.socket}"
        try:
            if not self._private:
                port = await listener.start_tcp(server.host, server.port)
                url = f"http://{address.reachable_host}:{port}{API_PREFIX}"
            if server.socket is not None:
                await listener.start_unix(server.socket)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and server.port:
                holder = port_holder(server.host, server.port) or "another process"
                raise SetupError(
                    f"Port {server.port} on {server.host} is in use by {holder}.",
                    "Stop that one, or choose another with --port (0 picks a free one).",
                ) from error
            raise SetupError(
                f"Cannot listen on {server.host}:{server.port}: {error.strerror or error}.",
                "Choose another --host or --port.",
            ) from error
        return url

    def stop(self, keep_sessions: bool | None) -> bool:
        """Begins the stop. Returns whether sessions are kept: as this call says, or as `serve` was
        called.
        """
        if keep_sessions is not None:
            self._keep_sessions = keep_sessions
        # We stop a moment later, so that the reply to this call is written first.
        asyncio.get_running_loop().call_later(0.05, self._stopping.set)
        return self._keep_sessions

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        # A worker's orphans become our children when it ends, and may end at any later time.
        loop.add_signal_handler(signal.SIGCHLD, lambda: orphan_cleanup.reap_orphans(watched()))
        # The relay continues when its terminal is closed.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _stop_with_standard_input(self) -> None:
        """The process that started a private relay holds the other end of its standard input, which
        the kernel closes however that process ends.
        """
        loop = asyncio.get_running_loop()

        def look() -> None:
            if not os.read(0, 4096):
                loop.remove_reader(0)
                self._stopping.set()

        loop.add_reader(0, look)

    def _signalled(self, number: signal.Signals) -> None:
        if self._stopping.is_set():
            _log.warning("relay.stopped_at_once", signal=number.name)
            self._directories.relay_file.remove()
            os._exit(1)  # the second signal: workers notice and end by themselves
        self._stopping.set()


def _debugpy() -> tuple[str, str | None]:
    found = importlib.util.find_spec("debugpy")
    if found is None or not found.submodule_search_locations:
        return "", None
    try:
        version = importlib.metadata.version("debugpy")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    return str(found.submodule_search_locations[0]), version


def _keep_freed_memory() -> None:
    """Makes the C library keep freed memory. asyncio allocates 256 KiB for each receive; malloc
    gets and returns such a piece by a system call, until it has once freed a larger piece.
    """
    bytearray(_LARGE_PIECE)
