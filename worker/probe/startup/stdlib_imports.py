"""Gives the debugger the standard modules, whatever modules the program has of the same names.

Executed by `bootstrap`, and by the injected code; imports no other module of the relay.

A program may have a queue.py or a json.py beside its script. When the debugger imports such a name
it gets the library's module; when the program imports it, before or after, it gets its own.
"""

import _imp
import _thread
import os
import sys

# The module itself: `importlib`, whose names it has, would be read from files.
_importing = sys.modules["_frozen_importlib_external"]
_READ_BYTES = 1 << 20  # Bytes of one read of a directory's list or file.
_SUFFIXES = tuple(_imp.extension_suffixes())

# The interpreter calls the first at its end; the debugger does not use the second.
_LEFT_ALONE = ("threading", "test")
# Modules that the library and the debugger import on other systems.
_ELSEWHERE = ("nt", "_winapi", "msvcrt", "java", "org", "thread")
_LIBRARY = os.path.dirname(os.__file__)
# The standard library's places, as sys.path has them.
STANDARD = (
    os.path.join(os.path.dirname(_LIBRARY), "python%d%d.zip" % sys.version_info[:2]),
    _LIBRARY,
    os.path.join(_LIBRARY, "lib-dynload"),
)


class StandardFirst(object):
    """While in force, this thread gets the standard module for each name that is one's."""

    def __enter__(self):
        self.ident = _thread.get_ident()
        self.library = Library()
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_):
        sys.meta_path.remove(self)

    def find_spec(self, name, path=None, target=None):
        if path is None and _thread.get_ident() == self.ident:
            if name in _ELSEWHERE:
                raise ModuleNotFoundError("No module named %r" % name, name=name)
            return self.library.find(name)
        return None


class Library(object):
    """The standard library's directories, listed once. The import system would list them for each
    module, and give up the interpreter each time.
    """

    def __init__(self):
        self.archived = os.path.isfile(STANDARD[0])
        self.files = {}
        for place in reversed(STANDARD[1:]):
            try:
                entries = os.listdir(place)
            except OSError:
                continue  # all modules are built in
            for entry in entries:
                name, dot, suffix = entry.partition(".")
                if dot + suffix in _SUFFIXES or suffix == "py" or not dot:
                    self.files.setdefault(name, []).append(os.path.join(place, entry))

    def find(self, name):
        files = self.files.get(name)
        if self.archived or (files and len(files) > 1):
            return find(name, STANDARD)
        if not files:
            return None
        (file,) = files
        if file.endswith(".py"):
            return _importing.spec_from_file_location(name, file, loader=_Source(name, file))
        if file.endswith(_SUFFIXES):
            loader = _importing.ExtensionFileLoader(name, file)
            return _importing.spec_from_file_location(name, file, loader=loader)
        inner = os.path.join(file, "__init__.py")
        if not os.path.isfile(inner):
            return None
        return _importing.spec_from_file_location(
            name, inner, loader=_Source(name, inner), submodule_search_locations=[file]
        )


class _Source(_importing.SourceFileLoader):
    """Reads a file in as few calls as possible; the loaded module shows the usual loader."""

    def get_data(self, path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(fd, _READ_BYTES)
            while len(data) % _READ_BYTES == 0:
                more = os.read(fd, _READ_BYTES)
                if not more:
                    break
                data += more
            return data
        finally:
            os.close(fd)

    def exec_module(self, module):
        plain = _importing.SourceFileLoader(self.name, self.path)
        module.__loader__ = module.__spec__.loader = plain
        _importing.SourceFileLoader.exec_module(self, module)


class Apart(StandardFirst):
    """The same in a running program, which may have loaded such modules of its own already."""

    def __init__(self, own):
        """`own` gets the modules that only the debugger keeps."""
        self.own = own

    def __enter__(self):
        StandardFirst.__enter__(self)
        loaded = [name for name in list(sys.modules) if "." not in name]
        self.aside = [_taken(name) for name in loaded if self.is_namesake(name)]
        self.known = frozenset(sys.modules)
        return self

    def is_namesake(self, name):
        file = getattr(sys.modules.get(name), "__file__", None)
        if name in _LEFT_ALONE or not file or file.startswith(STANDARD):
            return False
        standard = self.library.find(name)
        return standard is not None and standard.origin != file

    def __exit__(self, *error):
        StandardFirst.__exit__(self, *error)
        give_back(self.known, self.own)
        for modules in self.aside:
            for name in modules:
                if "." not in name and name in sys.modules:
                    self.own[name] = sys.modules[name]
                    _taken(name)
            sys.modules.update(modules)


def give_back(known, own):
    """Give the program its own module of a name that the debugger has loaded from the library."""
    before = []
    for place in sys.path:
        if place in STANDARD:
            break
        before.append(place)
    new = [name for name in list(sys.modules) if "." not in name and name not in known]
    for name in _present_in(before, new):
        theirs = find(name, before)
        file = getattr(sys.modules.get(name), "__file__", None)
        if theirs and find(name, STANDARD) and theirs.origin != file:
            own[name] = sys.modules[name]
            _taken(name)


def find(name, places):
    """The spec of a module in these directories, without running it. A directory without files is
    no module.
    """
    spec = _importing.PathFinder.find_spec(name, list(places))
    return spec if spec is not None and spec.has_location else None


def _present_in(places, names):
    """The names that have a file or directory there; each place is listed once."""
    there = set()
    for place in places:
        try:
            there.update(entry.partition(".")[0] for entry in os.listdir(place or "."))
        except OSError:
            if os.path.isfile(place):
                return names  # an archive
    return [name for name in names if name in there]


def _taken(name):
    """Remove a module and its parts from `sys.modules`; returns them."""
    names = [one for one in list(sys.modules) if one.partition(".")[0] == name]
    return {one: sys.modules.pop(one) for one in names}
