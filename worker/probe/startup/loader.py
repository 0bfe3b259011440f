"""Brings the probe's modules to life: they import each other and are in nobody's `sys.modules`.

Executed by `bootstrap`, or by what the injection has started; imports nothing of ours.
"""

import builtins
import types

_PACKAGE = "debug_relay.worker.probe"
_PREFIX = _PACKAGE + "."


def loader(folders, bytecode, own):
    """A function that gives a module of the probe by its name, always the same one.

    `folders` are the names that are packages. What the probe imports is the program's, but for what
    is in `own`.
    """
    loaded = {}

    def bring(name, globals=None, locals=None, fromlist=(), level=0):
        if name in own:
            return own[name]
        if name != _PACKAGE and not name.startswith(_PREFIX):
            return builtins.__import__(name, globals, locals, fromlist, level)
        inner = name[len(_PREFIX) :].replace(".", "/")
        if inner in folders or name == _PACKAGE:
            # the modules that are asked of it
            return types.SimpleNamespace(**{part: bring(name + "." + part) for part in fromlist})
        if name not in loaded:
            module = loaded[name] = types.ModuleType(name)
            # Its own copy of the builtins: the program may replace what it likes.
            module.__builtins__ = dict(vars(builtins), __import__=bring)
            exec(bytecode.of_probe(inner), module.__dict__)
        return loaded[name]

    return lambda name: bring(_PREFIX + name)
