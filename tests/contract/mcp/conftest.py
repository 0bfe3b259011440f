"""The tests here need the extra `mcp`."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def mcp() -> None:
    """Imported here and not when tests are collected: each process of a run collects all."""
    pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
