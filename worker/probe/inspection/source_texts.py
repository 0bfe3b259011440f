"""Finds the source text of code that is not in a file of its own.

Such code was launched as text, or the program has put its text into `linecache`, or it is in an
archive. Code that was launched as text is known by its code objects: any text that a program
compiles may be called `<string>`.
"""

import linecache
import types
import zipimport

from debug_relay.worker.probe.engine.frames import module_of
from debug_relay.worker.probe.values.rendering import clean

LINES, WIDTH = 20000, 2000
AROUND = 100  # Lines of source that a report shows on either side.


class SourceTexts(object):
    def __init__(self, probe):
        self.probe = probe
        self.launched, self.codes = [], {}
        probe.commands.update(text=self.ask, decompiled=self.is_decompiled)

    def keep(self, code, text):
        """Keep the text of a program that was launched as text."""
        self.launched = split(text)
        pending = [code]
        while pending:
            code = pending.pop()
            self.codes[id(code)] = code
            self.probe.engine.trust(code)
            pending.extend(one for one in code.co_consts if type(one) is types.CodeType)

    def ask(self, frame):
        """The lines for a frame of a stopped thread, by its number."""
        thread_id, number = self.probe.engine.owner_of(frame)
        found = None if thread_id is None else self.probe.engine.frame(thread_id, number)
        lines = None if found is None else self.lines_of(found)
        return None if lines is None else cut(lines)

    def is_decompiled(self, number):
        """Whether the debugger has rebuilt the text of this number from byte code."""
        return self.probe.engine.is_decompiled(number)

    def around(self, frame):
        """[number of the first line, number of all lines, lines around the place], or None."""
        lines = self.lines_of(frame)
        if lines is None:
            return None
        first = max(0, frame.f_lineno - 1 - AROUND)
        return [first + 1, len(lines), cut(lines[first : first + 2 * AROUND + 1])]

    def line(self, frame, number):
        lines = self.lines_of(frame) or ()
        return cut(lines[number - 1 : number])[0] if 0 < number <= len(lines) else ""

    def lines_of(self, frame):
        code = frame.f_code
        if id(code) in self.codes:
            return self.launched
        entry = linecache.cache.get(code.co_filename)
        in_no_file = code.co_filename.startswith("<")
        if entry is not None and len(entry) == 4 and (in_no_file or entry[1] is None):
            return entry[2]  # the program, or the loader of its module, has put it there
        if code.co_filename.startswith("<doctest "):
            return linecache.getlines(code.co_filename) or None  # doctest knows its examples
        if in_no_file:
            return None
        loader, name = dict.get(frame.f_globals, "__loader__"), module_of(frame)
        if type(loader) is zipimport.zipimporter and name is not None:
            return archived(loader, name)
        return None


def archived(loader, name):
    try:
        text = loader.get_source(name)
    except (ImportError, OSError, ValueError):
        return None
    return None if text is None else split(text)


def split(text):
    """The lines as Python counts them: a form feed does not end a line."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def cut(lines):
    return [clean(line.rstrip("\r\n")[:WIDTH]) for line in lines[:LINES]]
