"""Makes the debugger's imports eager, also in a program that imports lazily (3.15).

Executed by `bootstrap`, and by the injected code; imports no other module of the relay.

With `PYTHON_LAZY_IMPORTS=all` an import at the top of a module happens when its name is first used.
The debugger finds its parts by a path that is in `sys.path` only during the import: later they
would not be found.
"""

import sys

_NORMAL = "normal"  # only imports that the code marks as lazy are lazy


class Eager(object):
    """Imports are eager within `with Eager():`; afterwards the program's choice holds again."""

    def __enter__(self):
        self.mode = sys.get_lazy_imports() if hasattr(sys, "get_lazy_imports") else _NORMAL
        if self.mode != _NORMAL:
            sys.set_lazy_imports(_NORMAL)

    def __exit__(self, *error):
        if self.mode != _NORMAL:
            sys.set_lazy_imports(self.mode)
