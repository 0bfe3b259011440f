"""Distinguishes files with the same text: their code objects are equal, and pydevd remembers facts
by code alone.

Where `sys.monitoring` calls pydevd, its tables are kept by code and file. Where pydevd traces (up
to 3.11), its tables must be plain ones: there a copy of a file with breakpoints gets an entry at
the same lines that never counts, so that pydevd never remembers the copy as a file without
breakpoints.
"""

import sys

from debug_relay.worker.probe.engine.library_files import is_library

_MOST_BYTES = 4 << 20  # One source file that is compared with another.
_get, _put = dict.get, dict.__setitem__


class CodesByFile(dict):
    """A table that pydevd reads by code, kept by code and file."""

    def get(self, code, default=None):
        info = _get(self, (code.co_filename, code), default)
        if info is None or info.code_obj is code or code.co_name != "<module>":
            return info
        return default  # the file may be loaded once more, as another module

    def __setitem__(self, code, info):
        _put(self, (code.co_filename, code), info)

    def __iter__(self):
        return iter([code for _, code in list(self.keys())])


def keep_apart(hooks):
    """Keep the tables apart if pydevd uses monitoring; returns whether it does."""
    done = False
    for name in ("_pydevd_sys_monitoring", "_pydevd_sys_monitoring_cython"):
        module = sys.modules.get("_pydevd_sys_monitoring." + name)
        if module is None or not hasattr(sys, "monitoring"):
            continue
        known = module._code_to_func_code_info_cache
        apart = CodesByFile()
        for code, info in list(known.items()):
            apart[code] = info
        hooks.swap(module, "_code_to_func_code_info_cache", apart)
        known.clear()
        done = True
    return done


class IdenticalSources(object):
    """Files that read the same as one with breakpoints, at the lines of the breakpoints."""

    def __init__(self, watched_lines):
        self.watched_lines = watched_lines
        self.apart = False  # whether pydevd's tables are kept by file
        self.kinds = {}  # file name of code that was examined → pydevd's kind for it
        self.lines = {}  # line → the texts of that line in files with breakpoints
        self.names = set()  # the names of those files

    def renew(self, files):
        """`files`: the lines of all breakpoints there are, by file."""
        lines, names = {}, set()
        for file, numbers in files.items():
            if self.apart:
                break
            names.add(file.rpartition("/")[2])
            text = _lines_of(file)
            for number in numbers:
                if number <= len(text):
                    lines.setdefault(number, set()).add(text[number - 1])
        self.lines, self.names, self.kinds = lines, names, {}

    def look(self, file):
        """Compare a file whose code begins to run."""
        library = is_library(file) and file.rpartition("/")[2] not in self.names
        if library or not self.lines:
            return
        text, lines = _lines_of(file), self.lines
        same = [n for n in lines if n <= len(text) and text[n - 1] in lines[n]]
        if same:
            self.watched_lines.watch_copy(file, same)


def _lines_of(file):
    """A file's lines without what does not affect the code, such as comments."""
    try:
        with open(file, "rb") as source:
            text = source.read(_MOST_BYTES)
    except (OSError, ValueError):
        return []
    return [line.partition(b"#")[0].strip() for line in text.splitlines()]
