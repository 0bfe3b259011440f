"""What the relay runs inside the debugged program: Python 3.8 to 3.15, standard library only.

`probe.py` says how it lives there. The bounds are those of `protocol/version.py`.
"""
