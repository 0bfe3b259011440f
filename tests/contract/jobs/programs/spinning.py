"""A server that is at 100 % CPU: a retry that never gives up beside threads that wait."""

from __future__ import annotations

import threading


def parse_port(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def next_port(texts: list[str]) -> int:
    attempts = 0
    position = 0
    while True:
        port = parse_port(texts[position])
        if port is not None:
            return port
        attempts += 1
        if attempts == 1000:
            print("no port yet", flush=True)
        position = (position + 1) % len(texts)


def main() -> None:
    for n in range(3):
        threading.Thread(target=threading.Event().wait, name=f"idle-{n}", daemon=True).start()
    next_port(["80 ", "eighty", "x443"])


main()
