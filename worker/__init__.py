"""One session: its debugger, its program, its state. The supervisor starts it, and it outlives the
supervisor.

This package knows `debug_relay.protocol`, and must not know the supervisor, HTTP or other sessions.
"""
