"""Leaves out modules that pydevd imports only for its console, which no session has.

These are XML over HTTP, and with it ssl, email and pydoc: a quarter of the time for loading the
debugger. And gevent warns a program in which ssl was imported first. If the program has loaded one
of them already, pydevd gets that.
"""

import builtins
import sys
import types

_WHERE = "_pydev_bundle._pydev_saved_modules"
# pydevd tries to import this, and would find a module of the program's of that name.
_NOWHERE = "_pydevd_bundle_ext"
# Module → the names that pydevd looks up in it when it is imported, and uses only in its console.
NAMES = {
    "http.server": ("BaseHTTPRequestHandler",),
    "xmlrpc.client": ("Marshaller", "Server", "ServerProxy"),
    "xmlrpc.server": ("SimpleXMLRPCServer",),
}


class ModuleImports(object):
    """Replaces `__import__` for some of pydevd's modules, while they are imported.

    `imports`: module → the function with which it imports.
    """

    def __init__(self, imports):
        self.imports = imports

    def __enter__(self):
        sys.meta_path.insert(0, self)

    def __exit__(self, *_):
        sys.meta_path.remove(self)

    def find_spec(self, name, path=None, target=None):
        if name == _NOWHERE:
            raise ModuleNotFoundError("No module named %r" % name, name=name)
        importer = self.imports.get(name)
        if importer is None:
            return None
        for finder in [finder for finder in sys.meta_path if finder is not self]:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                spec.loader = _Loader(spec.loader, importer)
                return spec
        return None


class _Loader(object):
    def __init__(self, loader, importer):
        self.loader = loader
        self.importer = importer

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self.loader
        module.__builtins__ = dict(vars(builtins), __import__=self.importer)
        try:
            self.loader.exec_module(module)
        finally:
            module.__builtins__ = vars(builtins)


def _import(name, globals=None, locals=None, fromlist=(), level=0):
    if name not in NAMES or name in sys.modules:
        return builtins.__import__(name, globals, locals, fromlist, level)
    package, _, part = name.partition(".")
    return types.SimpleNamespace(**{part: types.SimpleNamespace(**dict.fromkeys(NAMES[name]))})


IMPORTS = {_WHERE: _import}
