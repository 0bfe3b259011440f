"""Standard modules for the debugger, whatever the program has by the same names.

Executed by `bootstrap`, and by what the injection has started; imports nothing of ours.

A program may have a queue.py or a json.py beside its script. What the debugger imports by such a
name is the library's; what the program imports by it, before and after, is its own.
"""

import _imp
import _thread
import os
import sys

# The module itself: `importlib`, whose names it has, would be read from files.
_importing = sys.modules["_frozen_importlib_external"]
_AT_ONCE = 1 << 20  # Bytes of one read of a directory's list or file.
_SUFFIXES = tuple(_imp.extension_suffixes())

# The interpreter asks the first about threads at its end; the debugger has no use for the second.
_LEFT_ALONE = ("threading", "test")
# Modules that the library and the debugger import on other systems.
_ELSEWHERE = ("nt", "_winapi", "msvcrt", "java", "org", "thread")
_LIBRARY = os.path.dirname(os.__file__)
# The standard library's places, as they stand in sys.path.
STANDARD = (
    os.path.join(os.path.dirname(_LIBRARY), "python%d%d.zip" % sys.version_info[:2]),
    _LIBRARY,
    os.path.join(_LIBRARY, "lib-dynload"),
)


class StandardFirst(object):
    """`with` it, what this thread imports by the name of a standard module is that one."""

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
    """Its directories, looked at once: the import system looks at them for each module, and gives
    the interpreter away each time."""

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
    """Reads a file in as few calls as it takes; nothing of it is left to see."""

    def get_data(self, path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(fd, _AT_ONCE)
            while len(data) % _AT_ONCE == 0:
                more = os.read(fd, _AT_ONCE)
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
    """The same in a program that runs, and may have loaded such modules of its own already."""

    def __init__(self, own):
        """`own` is told what the debugger keeps for itself."""
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
    for name in _standing_in(before, new):
        theirs = find(name, before)
        file = getattr(sys.modules.get(name), "__file__", None)
        if theirs and find(name, STANDARD) and theirs.origin != file:
            own[name] = sys.modules[name]
            _taken(name)


def find(name, places):
    """A module in these directories alone, nothing of it run; a bare directory is none."""
    spec = _importing.PathFinder.find_spec(name, list(places))
    return spec if spec is not None and spec.has_location else None


def _standing_in(places, names):
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
    """A module and its parts, out of the way."""
    names = [one for one in list(sys.modules) if one.partition(".")[0] == name]
    return {one: sys.modules.pop(one) for one in names}
