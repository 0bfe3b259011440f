"""One session: its debugger, its program, its state. Started by the supervisor, outlives it.

Knows `debug_relay.protocol`; must not know the supervisor, HTTP or other sessions.
"""
