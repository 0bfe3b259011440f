"""Two accounts that are locked in opposite order, in a server that hangs."""

from __future__ import annotations

import threading


class Account:
    def __init__(self, name: str, cents: int) -> None:
        self.name, self.cents = name, cents
        self.lock = threading.Lock()


def transfer(source: Account, target: Account, cents: int, meet: threading.Barrier) -> None:
    with source.lock:
        meet.wait()
        with target.lock:
            source.cents -= cents
            target.cents += cents


def main() -> None:
    ann, bob = Account("ann", 500), Account("bob", 70)
    meet = threading.Barrier(2)
    threads = [
        threading.Thread(target=transfer, args=(ann, bob, 20, meet), name="ann-to-bob"),
        threading.Thread(target=transfer, args=(bob, ann, 30, meet), name="bob-to-ann"),
    ]
    for thread in threads:
        thread.start()
    print("serving", flush=True)
    for thread in threads:
        thread.join()


main()
