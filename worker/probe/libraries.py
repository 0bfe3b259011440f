"""Which files are the program's own and which are libraries'.

Runs in the program: Python 3.8 to 3.14, standard library only. See `core`.
"""

import os
import sys

_ROOTS = tuple({sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.__file__)})


def is_library(path):
    """Of the standard library, of what is installed, or of the interpreter itself."""
    if "/site-packages/" in path or "/dist-packages/" in path or path.startswith("<frozen"):
        return True
    return path.startswith(_ROOTS) and "/lib/python" in path
