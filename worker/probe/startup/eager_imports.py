"""The debugger's imports happen at once, also in a program that imports lazily (3.15).

Executed by `bootstrap`, and by what the injection has started; imports nothing of ours.

With `PYTHON_LAZY_IMPORTS=all` an import at the top of a module is done when its name is first used.
The debugger finds its parts by a path that is in `sys.path` for the time of an import only: later
they would not be found.
"""

import sys

_NORMAL = "normal"  # lazy is what is written so


class Eager(object):
    """`with` it; the program's own choice is in force again behind it."""

    def __enter__(self):
        self.mode = sys.get_lazy_imports() if hasattr(sys, "get_lazy_imports") else _NORMAL
        if self.mode != _NORMAL:
            sys.set_lazy_imports(_NORMAL)

    def __exit__(self, *error):
        if self.mode != _NORMAL:
            sys.set_lazy_imports(self.mode)
