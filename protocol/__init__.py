"""The contract between supervisor and worker: operations, their data, errors, states and wire
formats.

Both processes import it, and it imports neither. It needs the standard library and msgspec only.
Apart from `system/`, it does no I/O.
"""
