"""Decides which files are the program's own and which are libraries'."""

import os
import sys

_ROOTS = tuple({sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.__file__)})


def is_library(path):
    """Whether a file is of the standard library, of an installed package, or of the interpreter."""
    if "/site-packages/" in path or "/dist-packages/" in path or path.startswith("<frozen"):
        return True
    return path.startswith(_ROOTS) and "/lib/python" in path


def library_of(path, function):
    """The package or module of a library's file, such as `pytest` or `threading`; None for a file
    of the program's own."""
    folder, _, name = path.rpartition("/")
    if function == "<module>" and folder.endswith("/bin") and "." not in name:
        return name  # an installed command, which calls its package
    if not is_library(path):
        return None
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in path:
            return _first(path.rpartition(mark)[2])
    if path.startswith("<frozen"):
        return _first(path[1:-1].rpartition(" ")[2].replace(".", "/"))
    # Below lib/python3.12/, or the folder of another build.
    return _first(path.partition("/lib/python")[2].partition("/")[2])


def _first(path):
    name = path.partition("/")[0]
    name = name[:-3] if name.endswith(".py") else name
    return name.strip("_") or name


def by_place(ask):
    """Make pydevd pass over files by their folders. By itself it does so by their names alone.

    Its list has, besides its own files, some of the standard library, such as `queue.py`,
    `socket.py` and `io.py`. A program may have modules of these names.
    """
    debugger, standard = _folder(sys.modules["pydevd"]), _folder(os)

    def kind_of(place):
        kind = ask(place)
        if kind is None or place[1].startswith(("<",) + debugger):
            return kind
        installed = "/site-packages/" in place[1] or "/dist-packages/" in place[1]
        return kind if place[1].startswith(standard) and not installed else None

    return kind_of


def _folder(module):
    """The beginnings of the paths of all files in a module's folder."""
    folder = os.path.dirname(os.path.abspath(module.__file__))
    return (folder + "/", os.path.realpath(folder) + "/")
