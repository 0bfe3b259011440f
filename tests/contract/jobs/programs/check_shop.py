"""The test that fails."""

from __future__ import annotations

from shop import total


def test_a_basket() -> None:
    basket = ["tea", "cup", "pot"]
    paid = total(basket)
    assert paid == 24
