"""A pool whose workers lose an exception: the report says 3 of 4."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

RECORDS = ["10,4", "7,2", "9;3", "8,1"]


def parse(record: str) -> tuple[int, int]:
    quantity, price = record.split(",")
    return int(quantity), int(price)


def load(number: int, found: dict[int, tuple[int, int]]) -> None:
    record = RECORDS[number]
    found[number] = parse(record)


found: dict[int, tuple[int, int]] = {}
with ThreadPoolExecutor(2, thread_name_prefix="loader") as pool:
    for number in range(len(RECORDS)):
        pool.submit(load, number, found)
print(f"{len(found)} of {len(RECORDS)} loaded")
