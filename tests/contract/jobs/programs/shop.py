"""A shop whose total is wrong: one price has the wrong sign."""

from __future__ import annotations

PRICES = {"tea": 5, "cup": 7, "pot": -12}


def price_of(item: str, discount: float = 0.0) -> float:
    return PRICES[item] * (1 - discount)


def total(items: list[str]) -> float:
    amount = 0.0
    for item in items:
        amount += price_of(item)
    return amount
