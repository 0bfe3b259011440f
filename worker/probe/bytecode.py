"""Code that was compiled once is read the next time: a debugger without byte code costs 0.2 s.

Runs in the program: Python 3.8 to 3.14, standard library only. Executed by `bootstrap`, or by
what the injection has started; imports nothing of ours. The files lie below the relay's data
directory, one for each source and interpreter; the program's own byte code, and whether it writes
any, is none of our business.
"""

import binascii
import marshal
import os
import struct
import sys
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import MAGIC_NUMBER

_HEADER = struct.Struct("<4sQQI")  # magic, source's time and size, checksum of what follows


class Bytecode(object):
    """Also a finder for `sys.meta_path`, while the debugger's modules are imported."""

    def __init__(self, folder):
        self.folder = folder
        self.below = None

    def compiled(self, path, shown):
        """The code of the source at `path`, called `shown` in stacks."""
        facts = os.stat(path)
        kept = self.folder and os.path.join(self.folder, _name(path, shown))
        stamp = (MAGIC_NUMBER, facts.st_mtime_ns, facts.st_size)
        code = kept and _read(kept, stamp)
        if not code:
            with open(path, "rb") as source:
                code = compile(source.read(), shown, "exec", dont_inherit=True)
            if kept:
                _write(kept, stamp, code)
        return code

    def watch(self, below):
        """From now on imports from below this directory go through here."""
        self.below = os.path.join(below, "")
        if self.folder:
            sys.meta_path.insert(0, self)

    def leave(self):
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name, path=None, target=None):
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader:
            return None
        if not spec.loader.path.startswith(self.below):
            return None
        spec.loader = _Loader(name, spec.loader.path, self)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, name, path, bytecode):
        SourceFileLoader.__init__(self, name, path)
        self._bytecode = bytecode

    def get_code(self, fullname):
        path = self.get_filename(fullname)
        return self._bytecode.compiled(path, path)


def _name(path, shown):
    number = binascii.crc32(("%s\0%s" % (path, shown)).encode("utf-8", "surrogateescape"))
    tag = sys.implementation.cache_tag
    return "%s.%08x.%s.opt-%d" % (os.path.basename(path), number, tag, sys.flags.optimize)


def _read(kept, stamp):
    try:
        with open(kept, "rb") as file:
            raw = file.read()
        magic, when, size, checksum = _HEADER.unpack_from(raw)
        body = raw[_HEADER.size :]
        # Without the checksum a damaged file could crash the interpreter.
        if (magic, when, size) == stamp and binascii.crc32(body) == checksum:
            return marshal.loads(body)
    except (OSError, struct.error, ValueError, EOFError, TypeError):
        pass  # the first time, or damaged: it is compiled
    return None


def _write(kept, stamp, code):
    body = marshal.dumps(code)
    fresh = "%s.%d" % (kept, os.getpid())
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(_HEADER.pack(*(stamp + (binascii.crc32(body),))) + body)
        os.replace(fresh, kept)
    except OSError:
        pass  # a full disk, or not ours to write: slower, and no worse
