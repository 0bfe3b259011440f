"""`python -m debug_relay.supervisor` is `debug-relay`."""

from __future__ import annotations

from debug_relay.supervisor.cli.main import main

if __name__ == "__main__":
    main()
