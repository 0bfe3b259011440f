"""A shell whose commands find the shared relay, in a folder with a program to debug."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.client import Client
from tests.kit.command import Shell

SHOP = """\
def total(prices):
    amount = 0
    for price in prices:
        amount += price
    return amount

print("total:", total([5, -3, 4]))
"""


@pytest.fixture
def shell(relay: Client, tmp_path: Path) -> Shell:
    (tmp_path / "shop.py").write_text(SHOP)
    return Shell(tmp_path, relay.url)
