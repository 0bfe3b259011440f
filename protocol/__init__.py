"""What supervisor and worker both speak: operations, their data, errors, states and bytes.

Standard library and msgspec only: no asyncio, no I/O, nothing of either side.
"""
