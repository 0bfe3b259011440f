"""A running balance that is wrong from one of its thousand bookings on."""

from __future__ import annotations


def bookings() -> list[float]:
    rows = [float(n % 7) for n in range(1000)]
    rows[873] = float("nan")
    return rows


def settle(rows: list[float]) -> float:
    balance = 0.0
    for n, amount in enumerate(rows):
        balance += amount
        if n % 100 == 0:
            balance = round(balance, 2)
    return balance


print("balance:", settle(bookings()))
