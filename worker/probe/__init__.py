"""The code that the relay runs inside debugged programs: Python 3.8 to 3.15, standard library only.

`probe.py` describes it. `protocol/version.py` has the bounds of the versions.
"""
