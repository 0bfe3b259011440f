"""Loads the probe's modules: they import each other and are not in `sys.modules`.

Executed by `bootstrap`, or by the injected code; imports no other module of the relay.
"""

import builtins
import types

_PACKAGE = "debug_relay.worker.probe"
_PREFIX = _PACKAGE + "."


def loader(folders, bytecode, own):
    """A function that returns a module of the probe by its name, always the same object.

    `folders` are the names that are packages. Other modules that the probe imports are the
    program's, except those in `own`.
    """
    loaded = {}

    def load(name, globals=None, locals=None, fromlist=(), level=0):
        if name in own:
            return own[name]
        if name != _PACKAGE and not name.startswith(_PREFIX):
            return builtins.__import__(name, globals, locals, fromlist, level)
        inner = name[len(_PREFIX) :].replace(".", "/")
        if inner in folders or name == _PACKAGE:
            # the modules that are imported from it
            return types.SimpleNamespace(**{part: load(name + "." + part) for part in fromlist})
        if name not in loaded:
            module = loaded[name] = types.ModuleType(name)
            # A copy of the builtins, because the program may replace any of them.
            module.__builtins__ = dict(vars(builtins), __import__=load)
            exec(bytecode.of_probe(inner), module.__dict__)
        return loaded[name]

    return lambda name: load(_PREFIX + name)
