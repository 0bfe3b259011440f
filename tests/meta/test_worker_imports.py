"""What a process imports it pays for: workers stay small, the command line quick."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.kit.client import Client
from tests.kit.relay import Relay

HEAVY = {"aiohttp", "orjson", "psutil"}


def loaded_by(module: str) -> set[str]:
    """The top-level names in memory after `import module` in a fresh interpreter."""
    program = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-P", "-E", "-c", program], capture_output=True, timeout=30, check=True
    )
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


def test_a_worker_imports_nothing_heavy():
    assert loaded_by("debug_relay.worker.__main__") & (HEAVY | {"debugpy", "pydevd"}) == set()


def test_a_worker_that_has_worked_has_not_either(relay: Client, shared_relay: Relay):
    """Their compiled parts would be mapped into the process."""
    with relay.session() as session:
        session.post("/launch", {"code": "print('done')", "wait": 20}).ok()
        worker = shared_relay.worker(session.id)
        mapped = " ".join(mapping.path for mapping in worker.memory_maps())
        assert "msgspec" in mapped
        assert [name for name in HEAVY if f"/{name}/" in mapped] == []


def test_the_command_line_waits_for_no_server():
    assert loaded_by("debug_relay.supervisor.cli.main") & (HEAVY | {"asyncio"}) == set()
