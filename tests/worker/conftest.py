"""Interpreters other than the one that runs the tests."""

from __future__ import annotations

import pytest

from debug_relay.worker.interpreter.cache import InterpreterCache
from debug_relay.worker.interpreter.resolve import Interpreter
from tests.kit.statements import FOREIGN, python_path

VERSIONS = ["3.8", "3.11", "3.13", "3.15"]


@pytest.fixture(params=VERSIONS)
async def interpreter(request) -> Interpreter:
    return await InterpreterCache().describe(python_path(request.param))


@pytest.fixture
async def foreign() -> Interpreter:
    return await InterpreterCache().describe(python_path(FOREIGN))
