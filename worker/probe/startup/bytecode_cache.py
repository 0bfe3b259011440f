"""Keeps the debugger's compiled code in one file, which is read as a whole the next time.

Executed by `bootstrap`, or by the injected code; imports no other module of the relay.

A debugger without byte code costs 0.2 s. And every look for a file, and every open and read, gives
up the interpreter: beside a thread that never waits, each costs as long as that thread keeps it. So
all the debugger's code is in one file below the relay's data directory, one for each kind of
interpreter; the relay names it after the sources. The program's own byte code, and whether it
writes any, stays as it is.
"""

import binascii
import marshal
import os
import struct
import sys

# The module itself: `importlib`, whose names it has, would be read from files.
_importing = sys.modules["_frozen_importlib_external"]
_HEADER = struct.Struct("<II")  # length and checksum of what follows


class Bytecode(object):
    """Also a finder for `sys.meta_path`, while the debugger's modules are imported."""

    def __init__(self, prefix, probe):
        """`prefix` is a path, to which the kind of interpreter is added, or None. `probe` has the
        probe's sources, or names the file that has them, for modules that the cache does not have.
        """
        kind = (sys.implementation.cache_tag, _importing.MAGIC_NUMBER[:2].hex(), sys.flags.optimize)
        self.kept = prefix and "%s.%s.%s.opt-%d" % ((prefix,) + kind)
        self.probe = probe
        self.sources = None
        self.below = self.beginnings = None
        self.begin()

    def begin(self):
        self.content, self.fresh = _read(self.kept), ({}, {})

    def of_probe(self, name):
        """The code of a module of the probe."""
        return self.compiled("<frozen relay probe>/%s.py" % name, lambda: self.unpacked()[name])

    def unpacked(self):
        if self.sources is None:
            import zlib

            packed = self.probe.get("packed")
            if packed is None:
                with open(self.probe["file"], "rb") as file:
                    packed = file.read()
            self.sources = marshal.loads(zlib.decompress(binascii.a2b_base64(packed)))
        return self.sources

    def compiled(self, shown, source):
        """The code of the source that `source()` returns; stacks show it as `shown`."""
        content = self.content or _read(self.kept)
        text = content[0].get(shown)
        if text is not None:
            return marshal.loads(text)
        code = compile(source(), shown, "exec", dont_inherit=True)
        self.add({shown: marshal.dumps(code)}, {})
        return code

    def watch(self, below, beginnings):
        """From now on load modules from below this directory here, if their names begin with one of
        `beginnings`.
        """
        self.beginnings = beginnings
        self.below = os.path.join(below, "")
        if self.content is None:
            self.begin()
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def leave(self):
        """Everything is loaded: stop being a finder, and keep nothing in memory."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        fresh, self.content, self.fresh = self.fresh, None, None
        self.probe = self.sources = None  # the whole probe is loaded
        if fresh is not None and any(fresh):
            self.add(*fresh)

    def add(self, codes, modules):
        """Keep these in the file: written when everything is loaded, or at once after that."""
        if self.fresh is not None:
            for known, new in zip(self.fresh, (codes, modules)):
                known.update(new)
        elif self.kept:
            # Other programs may have added code meanwhile. Code that is lost here is only compiled
            # once more.
            content = _read(self.kept)
            for known, new in zip(content, (codes, modules)):
                known.update(new)
            _write(self.kept, content)

    def find_spec(self, name, path=None, target=None):
        if not name.startswith(self.beginnings):
            return None
        found = self.content[1].get(name)
        if found is None or not _lies_in(found, sys.path if path is None else path):
            found = self.looked_for(name, path)
        if found is None:
            return None
        file, is_package = found
        places = [os.path.dirname(file)] if is_package else None
        return _importing.spec_from_file_location(
            name, file, loader=_Loader(name, file, self), submodule_search_locations=places
        )

    def looked_for(self, name, path):
        spec = _importing.PathFinder.find_spec(name, path)
        if spec is None or type(spec.loader) is not _importing.SourceFileLoader:
            return None
        if not spec.loader.path.startswith(self.below):
            return None
        found = spec.loader.path, spec.submodule_search_locations is not None
        self.add({}, {name: found})
        return found


class _Loader(_importing.SourceFileLoader):
    def __init__(self, name, path, bytecode):
        _importing.SourceFileLoader.__init__(self, name, path)
        self._bytecode = bytecode

    def get_code(self, fullname):
        path = self.get_filename(fullname)
        return self._bytecode.compiled(path, lambda: self.get_data(path))


def _lies_in(found, path):
    file, is_package = found
    place = os.path.dirname(file)
    return (os.path.dirname(place) if is_package else place) in path


def _read(kept):
    """The codes by the names that stacks show, and (file, whether a package) by module name."""
    try:
        fd = os.open(kept, os.O_RDONLY | os.O_CLOEXEC) if kept else None
        if fd is not None:
            try:
                raw = os.read(fd, os.fstat(fd).st_size)
            finally:
                os.close(fd)
            length, checksum = _HEADER.unpack_from(raw)
            body = memoryview(raw)[_HEADER.size :]
            # Without the checksum a damaged file could crash the interpreter.
            if len(body) == length and binascii.crc32(body) == checksum:
                return marshal.loads(body)
    except (OSError, struct.error, ValueError, EOFError, TypeError):
        pass  # the first time, or damaged: it is compiled
    return {}, {}


def _write(kept, content):
    body = marshal.dumps(content)
    fresh = "%s.%d" % (kept, os.getpid())
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(_HEADER.pack(len(body), binascii.crc32(body)) + body)
        os.replace(fresh, kept)
    except OSError:
        pass  # a full disk, or no permission to write: the next start is only slower
