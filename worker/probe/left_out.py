"""What pydevd imports for a console of its own, which no program of the relay's has: left out.

XML over HTTP, and with it ssl, email and pydoc: a quarter of the time in which a debugger comes in,
and gevent warns a program in which ssl was there first. Where the program has one of them already,
pydevd gets that.

Runs in the program: Python 3.8 to 3.14, standard library only.
"""

import sys
import types

# Module → what pydevd looks up in it when it is imported, and calls in its console only.
NAMES = {
    "http.server": ("BaseHTTPRequestHandler",),
    "xmlrpc.client": ("Marshaller", "Server", "ServerProxy"),
    "xmlrpc.server": ("SimpleXMLRPCServer",),
}


class LeftOut(object):
    """For the time of an import; only where no other thread of the program imports meanwhile."""

    def __enter__(self):
        self._absent = {}
        for name, needed in NAMES.items():
            if name not in sys.modules:
                module = self._absent[name] = types.ModuleType(name)
                vars(module).update(dict.fromkeys(needed))
        sys.modules.update(self._absent)

    def __exit__(self, *_):
        for name, module in self._absent.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
