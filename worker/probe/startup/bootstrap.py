"""Starts the user's program under the debug server. Python 3.8 to 3.15, standard library only.

Run as `python /proc/self/fd/N FD`: N is a file in memory with this text. One JSON document on
descriptor FD has the probe's sources, the port at which the worker listens, and the program to run.
Does the same as `python script.py` or `python -m module`, and leaves no trace of this file in
stacks, tracebacks, sys.path or sys.argv.

Also: the debug socket gets TCP_NODELAY (without it every answer waits 40 ms for an
acknowledgement), the debugger's fixed sleeps at the start and at the end are skipped, and a blocked
main thread can be woken by SIGURG so that `pause` reaches it.

Run as `python bootstrap.py FILE WORDS…` by a program whose children are debugged too: FILE has the
same document for all of them, WORDS are the child's own command line. Both files are in the
session's directory. If anything goes wrong, the child runs as it would without us.
"""

import os
import sys

# Modules that were loaded before us, and the one that the interpreter calls at its end.
_NOT_OURS = frozenset(sys.modules) | {"threading"}
_OWN = {}  # modules that the debugger does not share with the program
_NAMESAKES = {}
_FIRST_PYTHON, _LAST_PYTHON = (3, 8), (3, 15)  # the bounds of `protocol/version.py`
_HAS_CACHED = sys.version_info < (3, 15)  # `__main__` has `__cached__`
_TEXTS = {}  # name → source of each file beside this one; the worker puts them in
_FILE = __file__  # 3.14 removes the name before it reports an uncaught exception


def main():
    if not sys.argv[1].isdigit():
        return _as_child(sys.argv[1], sys.argv[2:])
    _hide_own_directory()
    with _eager(), _namesakes()["StandardFirst"]():
        setup = _setup()
        text = _source(setup)
        code = _compiled(setup, text)
        with _Uncollected():
            launched = _launched(setup, text)
            probe = launched.connect()
            own = [word.encode("utf-8", "surrogateescape") for word in _own_words(setup)]
            launched.show(lambda words: _without_us(words[:-2], os.fsencode) + own)
        _wake_by_signal()
    if setup["kind"] == "code":
        probe.texts.keep(code, setup["target"])
    _restore_original_arguments(setup)
    module = _main_module(setup, code)
    _report(setup, b"started")
    probe.started = True
    if setup["stop_on_entry"]:
        probe.engine.stop_on_entry()
    _run(probe, *module)


def _setup():
    import json

    _OWN["json"] = json
    fd = int(sys.argv[1].lstrip("0"))  # it may have leading zeros: see `process_title`
    with os.fdopen(fd, "rb") as pipe:
        setup = json.loads(pipe.read().decode("utf-8", "surrogateescape"))
    os.set_inheritable(setup["status"], False)
    place, _, number = __file__.rpartition("/")
    if place == "/proc/self/fd":
        os.close(int(number))
    return setup


def _hide_own_directory():
    """Take our directory out of sys.path: it must not shadow the user's modules."""
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
        return  # Python has not put it there
    here = os.path.dirname(os.path.realpath(__file__))
    if sys.path and os.path.realpath(sys.path[0] or ".") == here:
        del sys.path[0]


def _as_child(path, words):
    """Run the program that `words` name, in the debug session that our parent belongs to."""
    if not _can_be_debugged():
        _run_plainly(words)
    code = probe = None
    try:
        _hide_own_directory()
        with _eager():
            import json

            with open(path, "rb") as file:
                setup = json.loads(file.read().decode("utf-8", "surrogateescape"))
            parts = _executed("python_command_line")["parted"](words)
            setup.update(kind=parts.kind, target=parts.target, args=parts.rest, status=None)
            text = _source(setup)
            code = _compiled(setup, text)
            with _namesakes()["StandardFirst"](), _Uncollected():
                launched = _launched(setup, text)
                # It runs none of the program's code; the processes that it forks connect.
                if parts.is_fork_server:
                    launched.bytecode.leave()
                else:
                    probe = launched.connect(waits=True)
                own = len(words)
                launched.show(lambda words: words[:1] + words[len(words) - own :])
            if probe is not None:
                _wake_by_signal()
                if setup["kind"] == "code":
                    probe.texts.keep(code, setup["target"])
    except Exception:
        # The session may be over, we may not read the file, or the script may not exist or not be
        # valid Python: Python itself reports that best.
        if code is None or setup["kind"] != "stdin":  # stdin cannot be read a second time
            _run_plainly(words)
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[1:] = words
    module = _main_module(setup, code)
    if probe is not None:
        probe.started = True
    _run(probe, *module)


def _can_be_debugged():
    """Whether this Python can be debugged, by the same rule as `worker.interpreter.resolve`."""
    if sys.implementation.name != "cpython" or "t" in sys.abiflags:
        return False  # `t` is a build without the interpreter's lock
    return _FIRST_PYTHON <= sys.version_info[:2] <= _LAST_PYTHON


def _run_plainly(words):
    os.execv(sys.executable, [sys.executable] + words)


def _report(setup, status):
    """Report to the worker how the start went, before the program can do anything."""
    if setup["status"] is not None:
        os.write(setup["status"], status)
        os.close(setup["status"])


def _source(setup):
    """The source that runs first, if it is known without importing anything."""
    if setup["kind"] == "code":
        return setup["target"].encode("utf-8", "surrogatepass")
    if setup["kind"] == "stdin":
        if sys.stdin is None or sys.stdin.isatty():
            raise ValueError("a person types it line by line")
        return sys.stdin.buffer.read()
    if setup["kind"] == "module" or _is_archive(setup["target"]):
        return None
    with open(setup["target"], "rb") as source:
        return source.read()


def _is_archive(path):
    """Whether Python would look for a __main__ in it: a directory or a zip file, by its end."""
    from zipimport import ZipImportError, zipimporter

    try:
        zipimporter(path)
    except ZipImportError:
        return os.path.isdir(path)
    return True


def _compiled(setup, text):
    """Compile before the debugger is loaded, so that it does not see how Python loads a file."""
    if text is None:
        return None
    if setup["kind"] == "code":
        return compile(setup["target"], "<string>", "exec", dont_inherit=True)
    if setup["kind"] == "stdin":
        return compile(text, "<stdin>", "exec", dont_inherit=True)
    if setup["target"].endswith(".pyc"):
        return _file_loader(setup["target"]).get_code("__main__")
    return compile(text, setup["target"], "exec", dont_inherit=True)


def _file_loader(path):
    from importlib.machinery import SourceFileLoader, SourcelessFileLoader

    return (SourcelessFileLoader if path.endswith(".pyc") else SourceFileLoader)("__main__", path)


def _namesakes():
    if not _NAMESAKES:
        _NAMESAKES.update(_executed("stdlib_imports"))
    return _NAMESAKES


def _eager():
    return _executed("eager_imports")["Eager"]()


def _give_back_names():
    """Give the program its own modules of names that the debugger has loaded from the standard
    library: modules in the program's directory or on PYTHONPATH.
    """
    _namesakes()["give_back"](_NOT_OURS, _OWN)


class _Uncollected(object):
    """Turns the garbage collector off while the debugger is loaded: it would find nothing, in 10
    ms.
    """

    def __enter__(self):
        import gc

        self.gc = gc
        self.collects = gc.isenabled()
        gc.disable()

    def __exit__(self, *_):
        if self.gc.get_freeze_count() == 0:
            # Move all objects into the oldest generation, or the program's first collection would
            # visit them.
            self.gc.freeze()
            self.gc.unfreeze()
        if self.collects:
            self.gc.enable()


def _launched(setup, text):
    bytecode, load = _loader(setup, _OWN)
    debugger, greenlets = load("engine.loading.load"), load("engine.gevent_support")
    arguments = [setup["target"]] + setup["args"]
    gevent = greenlets.are_expected(text or b"", arguments) and greenlets.SETTING
    debugger.import_debugger(setup["debugger_parent"], bytecode, gevent)
    _OWN.update(greenlets.copies())
    hidden = (os.path.abspath(__file__),)
    return load("lifecycle.launched").Launched(setup, bytecode, hidden)


def _loader(setup, own):
    probe = setup.pop("probe")
    bytecode = _executed("bytecode_cache")["Bytecode"](setup["bytecode"], probe)
    return bytecode, _executed("loader")["loader"](probe["folders"], bytecode, own)


def _executed(name):
    names = {"__name__": name}
    shown = "<frozen relay probe>/startup/%s.py" % name
    exec(compile(_TEXTS[name], shown, "exec", dont_inherit=True), names)
    return names


def _wake_by_signal():
    """Install a signal handler written in Python: a signal makes a sleeping main thread run a line,
    where it can be stopped.
    """
    import signal

    if signal.getsignal(signal.SIGURG) is signal.SIG_DFL:
        names = {}
        # With a separate file name: the debugger must see this frame, and the relay hides it.
        exec(compile("def wake(number, frame):\n    pass\n", "<relay wake>", "exec"), names)
        signal.signal(signal.SIGURG, names["wake"])


def _main_module(setup, code):
    """The module and code to run; ends the program if there is no such module."""
    first = "-c" if setup["kind"] in ("code", "module") else setup["target"]
    sys.argv[:] = [first] + setup["args"]
    if setup["kind"] == "module":
        return _prepared_module(setup)
    if setup["kind"] in ("code", "stdin"):
        path = "<stdin>" if setup["kind"] == "stdin" else None
        module = _new_main(path, sys.modules["_frozen_importlib"].BuiltinImporter)
        _add_path("")
        return module, code
    path = setup["target"]
    if code is None:
        return _prepared_archive(setup)
    module = _new_main(path, _file_loader(path))
    # For a link, Python takes the directory of the linked file.
    _add_path(os.path.dirname(os.path.realpath(path)))
    return module, code


def _restore_original_arguments(setup):
    """Take bootstrap out of `sys.orig_argv`: reloaders start the program again by it."""
    if not hasattr(sys, "orig_argv"):
        return  # before Python 3.10
    sys.orig_argv[:] = _without_us(sys.orig_argv[:-2], str) + _own_words(setup)


def _without_us(words, text):
    """The words for the interpreter and the user's options, without our options."""
    ours = [text("-X"), text("frozen_modules=off")]
    return words[:1] + words[3 if words[1:3] == ours else 1 :]


def _own_words(setup):
    flag = {"script": [], "module": ["-m"], "code": ["-c"]}[setup["kind"]]
    return flag + [setup["target"]] + setup["args"]


def _prepared_module(setup):
    import importlib.util
    import runpy

    name = setup["target"]
    _add_path(os.getcwd())
    sys.argv[0] = "-m"
    try:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            raise runpy._Error("No module named %s" % name)
        _, spec, code = runpy._get_module_details(name, runpy._Error)
    except BaseException as error:
        _not_prepared(setup, error)
        raise
    sys.argv[0] = spec.origin
    module = _new_main(spec.origin, spec.loader)
    module.__spec__ = spec
    module.__package__ = spec.parent
    if _HAS_CACHED:
        module.__cached__ = spec.cached
    return module, code


def _not_prepared(setup, error):
    """Called while `error` is handled. A module that does not exist, or has a syntax error, is
    refused. But a package that raises while it is imported is part of the program, and ends as it
    would without us.
    """
    import runpy

    if isinstance(error, runpy._Error):
        _report(setup, b"no module:" + str(error).encode("utf-8", "backslashreplace")[:1000])
        sys.exit("%s: %s" % (sys.executable, error))
    if isinstance(error, SyntaxError):
        _report_syntax_error(setup, error)
    else:
        _report(setup, b"started")
        _hide_our_frames()


def _report_syntax_error(setup, error):
    """Report a syntax error in source that only the import system finds: a package, an archive."""
    problem = {
        "file": error.filename or setup["target"],
        "line": error.lineno or 1,
        "offset": error.offset or 1,
        "message": error.msg,
        "text": (error.text or "")[:500],
    }
    _report(setup, b"syntax error:" + _OWN["json"].dumps(problem).encode())


def _prepared_archive(setup):
    """The module and code of a directory or zip file with a __main__.py."""
    import runpy

    sys.path.insert(0, setup["target"])
    _give_back_names()
    try:
        _, spec, code = runpy._get_main_module_details(runpy._Error)
    except BaseException as error:
        _not_prepared(setup, error)
        raise
    module = _new_main(spec.origin, spec.loader)
    module.__spec__ = spec
    module.__package__ = ""
    if _HAS_CACHED:
        module.__cached__ = spec.cached
    return module, code


def _add_path(directory):
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path.insert(0, directory)
    _give_back_names()


def _new_main(path, loader):
    module = type(sys)("__main__")
    module.__builtins__ = __builtins__
    module.__loader__ = loader
    if path is not None:
        module.__file__ = path
        if _HAS_CACHED:
            module.__cached__ = None
    if sys.version_info < (3, 14):
        module.__annotations__ = {}
    sys.modules["__main__"] = module
    return module


# On 3.12+ pydevd treats an exception as uncaught when it leaves the frame below a function `run…`
# of a file of this name, and files whose names start with `<frozen ` as its own. So the program
# runs from here.
_RUNNER = ("def run(code, names):\n    exec(code, names)\n", "<frozen relay>/pydevd_runpy.py")


def _run(probe, module, code):
    names = {}
    exec(compile(_RUNNER[0], _RUNNER[1], "exec"), names)
    try:
        names["run"](code, module.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        if probe is not None:
            probe.exceptions.uncaught(error)
        _hide_our_frames()
        raise


def _hide_our_frames():
    """Let the interpreter's report of the uncaught exception show only the program's frames. A hook
    that the program has set is called at the last moment, with the arguments that it would have got
    without us.
    """
    missing = not hasattr(sys, "excepthook")
    hook = sys.__excepthook__ if missing else sys.excepthook

    def report(kind, error, trace):
        sys.excepthook = hook
        if missing:
            del sys.excepthook
            _complain("sys.excepthook is missing\n")
        while trace is not None and trace.tb_frame.f_code.co_filename in (_FILE, _RUNNER[1]):
            trace = trace.tb_next
        try:
            hook(kind, error.with_traceback(trace), trace)
        except SystemExit:
            raise
        except BaseException as failed:
            _complain("Error in sys.excepthook:\n")
            own = failed.__traceback__.tb_next
            sys.__excepthook__(type(failed), failed.with_traceback(own), own)
            _complain("\nOriginal exception was:\n")
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = report


def _complain(text):
    if sys.stderr is not None:
        sys.stderr.write(text)


if __name__ == "__main__":
    main()
