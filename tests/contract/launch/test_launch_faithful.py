"""A launched program sees what it would see without a debugger, and ends as it would."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from debug_relay.protocol.version import MARK
from tests.kit.client import Client
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]
# The variables that the relay adds to a program's environment.
OWN = (MARK, "DEBUG_SESSION_URI", "DEBUG_SESSION_TOKEN")

FACTS = '''
    """Words about the program."""
    import builtins, json, os, signal, sys, threading
    names = dict(globals())
    print(json.dumps({
        "argv": [sys.argv, getattr(sys, "orig_argv", None)],
        "path": sys.path,
        "main": {name: type(value).__name__ for name, value in names.items()},
        "values": [__name__, __file__, __package__, __doc__, __spec__ and __spec__.name,
                   getattr(__loader__, "name", None), getattr(__loader__, "path", None)],
        "cached": __cached__ if "__cached__" in names else "absent",
        "is main": sys.modules["__main__"].__dict__ is globals(),
        "builtins": sorted(vars(builtins)),
        "flags": {name: getattr(sys.flags, name) for name in dir(sys.flags)
                  if isinstance(getattr(sys.flags, name), int)},
        "warnings": [sys.warnoptions, sys.dont_write_bytecode],
        "hooks": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__,
                  sys.unraisablehook is sys.__unraisablehook__],
        "streams": [type(s).__name__ + s.encoding + s.errors + str(s.line_buffering)
                    for s in (sys.stdin, sys.stdout, sys.stderr)],
        "threads": [thread.name for thread in threading.enumerate()],
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval()],
        "sigint": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "environment": sorted(os.environ),
        "descriptors": sorted(int(n) for n in os.listdir("/proc/self/fd") if int(n) < 3),
        "umask": [os.umask(0o22), os.getcwd()],
    }, default=str))
'''


def plain(python: str, arguments: list[str], cwd: Path, relay: Relay) -> Any:
    """The same without a debugger."""
    env = {k: v for k, v in relay.env.items() if not k.startswith("OPENCODE_DEBUG_")}
    env["PYTHONUNBUFFERED"] = "1"  # the one thing that is different, for what is printed
    return subprocess.run(
        [python, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=30,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["script", "module", "package", "directory"])
def test_the_facts_about_main(
    relay: Client, shared_relay: Relay, source: Write, tmp_path: Path, python: str, kind: str
) -> None:
    name = "facts/__main__.py" if kind in ("package", "directory") else "facts.py"
    program = source(FACTS, name)
    if kind == "package":
        source("", "facts/__init__.py")
    directory = str(program.path.parent)
    target, arguments = {
        "script": ({"script": str(program)}, [str(program)]),
        "module": ({"module": "facts"}, ["-m", "facts"]),
        "package": ({"module": "facts"}, ["-m", "facts"]),
        "directory": ({"script": directory}, [directory]),
    }[kind]
    expected = json.loads(plain(python, [*arguments, "a", "b c"], tmp_path, shared_relay).stdout)
    with relay.session(python_path=python) as session:
        session.launch(cwd=str(tmp_path), args=["a", "b c"], **target)
        assert session.printed("stderr") == ""
        seen = json.loads(session.printed("stdout"))
    for own in OWN:
        seen["environment"].remove(own)
    assert seen == expected


def test_a_text_that_is_main_has_the_names_of_one(
    relay: Client, shared_relay: Relay, tmp_path: Path, python: str
) -> None:
    """As by `-c`, and in a child by `-`: what has such a name reads it."""
    names = "print(sorted((n, str(v)) for n, v in dict(globals()).items() if n[0] == '_'))"
    feeds = (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-'], input={names!r}.encode())"
    )
    code = f"{names}\n{feeds}"
    expected = plain(python, ["-c", code], tmp_path, shared_relay).stdout
    assert "<stdin>" in expected
    with relay.session(python_path=python) as session:
        session.launch(code=code, cwd=str(tmp_path), debug_subprocesses=True)
        assert session.printed("stdout") == expected


def test_beside_a_script_that_is_a_link_lies_what_lies_beside_its_file(
    relay: Client, source: Write, tmp_path: Path, python: str
) -> None:
    source("x = 42\n", "real/neighbour.py")
    script = source("import neighbour, sys\nprint(neighbour.x, sys.argv[0])\n", "real/tool.py").path
    link = tmp_path / "links" / "tool.py"
    link.parent.mkdir()
    link.symlink_to(Path("..") / "real" / script.name)
    with relay.session(python_path=python) as session:
        session.launch(script=str(link))
        assert session.printed() == f"42 {link}\n"


TRACEBACKS = {
    "chained": """
        def f():
            try:
                {}["key"]
            except KeyError as error:
                raise RuntimeError("because") from error
        try:
            f()
        except RuntimeError:
            list(map(lambda x: 1 / x, [1, 0]))
        """,
    "imported": "import broken_module\n",
    "syntax": "import broken_syntax\n",
    "exit": "import sys\nsys.exit('in words')\n",
    "hook": "import sys\nsys.excepthook = lambda *a: print(a[0], a[2].tb_lineno)\n1 / 0\n",
    "hook fails": "import sys\ndef hook(*a):\n    {}['x']\nsys.excepthook = hook\n1 / 0\n",
    "hook exits": "import sys\nsys.excepthook = lambda *a: sys.exit(12)\n1 / 0\n",
    "no hook": "import sys\ndel sys.excepthook\n1 / 0\n",
    "others": """
        import atexit, threading
        thread = threading.Thread(target=lambda: 1 / 0, name="dividing")
        thread.start()
        thread.join()
        atexit.register(print, "last words")
        raise KeyError("x")
        """,
}


@pytest.mark.parametrize("kind", TRACEBACKS)
def test_an_uncaught_error_reads_as_without_a_debugger(
    relay: Client, shared_relay: Relay, source: Write, tmp_path: Path, python: str, kind: str
) -> None:
    source("def g():\n    raise LookupError('in a module')\ng()\n", "broken_module.py")
    source("x = (\n", "broken_syntax.py")
    program = source(TRACEBACKS[kind])
    without = plain(python, [str(program)], tmp_path, shared_relay)
    with relay.session(python_path=python) as session:
        ended = session.launch(program, stop_on_exception=False)
        assert session.printed("stderr") == without.stderr
        assert session.printed("stdout") == without.stdout
        assert (ended["status"], ended["exit_code"]) == ("terminated", without.returncode)


def test_an_error_reads_the_same_after_a_stop_at_it(
    relay: Client, shared_relay: Relay, source: Write, tmp_path: Path, python: str
) -> None:
    program = source(TRACEBACKS["chained"])
    without = plain(python, [str(program)], tmp_path, shared_relay)
    with relay.session(python_path=python) as session:
        assert session.launch(program)["stop_reason"] == "exception"
        assert session.resume()["exit_code"] == 1
        assert session.printed("stderr") == without.stderr


@pytest.mark.parametrize(
    ("code", "exit_code", "signal"),
    [
        ("import os; print('out', end='', flush=True); os._exit(7)", 7, None),
        ("import sys; sys.exit(300)", 300 % 256, None),
        ("raise KeyboardInterrupt", -2, "SIGINT"),
        ("import os; os.abort()", -6, "SIGABRT"),
    ],
)
def test_how_it_ended(
    relay: Client, source: Write, code: str, exit_code: int, signal: str | None
) -> None:
    program = source(code)
    assert subprocess.run([sys.executable, str(program)], capture_output=True).returncode == (
        exit_code
    )
    with relay.session() as session:
        ended = session.launch(program, stop_on_exception=False)
        told = ended["status"], ended["exit_code"], ended["signal"], ended["end_reason"]
        assert told == ("terminated", exit_code, signal, "target_exited")
        status = session.status()
        assert (status["exit_code"], status["signal"]) == (exit_code, signal)
        (event,) = session.events("terminated")
        assert (event["body"]["exit_code"], event["body"].get("signal")) == (exit_code, signal)
        assert session.get().ok()["end_reason"] == "target_exited"


def test_a_crash_of_the_interpreter_on_every_python(
    relay: Client, source: Write, python: str
) -> None:
    program = source("import ctypes\nprint('before', flush=True)\nctypes.string_at(0)")
    with relay.session(python_path=python) as session:
        ended = session.launch(program)
        assert (ended["exit_code"], ended["signal"]) == (-11, "SIGSEGV")
        assert session.printed("stdout") == "before\n"


def test_exit_code_of_a_program_ended_from_outside(relay: Client, source: Write) -> None:
    with relay.session() as session:
        launched = session.launch(source("print('up', flush=True)\ninput()"), wait=0)
        cursor = session.get("/events", timeout=0).ok()["next_cursor"]
        os.kill(launched["pid"], 9)
        (event,) = session.events("terminated", cursor=cursor, timeout=10)
        assert (event["body"]["exit_code"], event["body"]["signal"]) == (-9, "SIGKILL")


@pytest.mark.parametrize("kind", ["script", "module", "code", "pythonpath", "child"])
def test_namesakes_of_standard_modules(
    relay: Client, source: Write, tmp_path: Path, python: str, kind: str
) -> None:
    """The debugger needs many standard modules: the program's own of such names are nothing to it,
    and the program gets its own."""
    for name in ("queue", "string", "json", "textwrap", "token"):
        source(f"mine = {name!r}\n", f"beside/{name}.py")
    (tmp_path / "beside" / "http").mkdir()  # no package: the standard one comes first
    program = source(
        """
        import http, queue, string, json, textwrap, token
        found = [part.mine for part in (queue, string, json, textwrap, token)]
        print(*found, hasattr(http, "HTTPStatus"))  # @here
        """,
        "elsewhere/program.py" if kind == "pythonpath" else "beside/program.py",
    )
    beside = str(tmp_path / "beside")
    target: dict[str, Any] = {
        "script": {"script": str(program)},
        "module": {"module": "program", "cwd": beside},
        "code": {"code": "import program", "cwd": beside},
        "pythonpath": {"script": str(program), "pythonpath": [beside]},
        "child": {
            "code": f"import subprocess, sys; subprocess.run([sys.executable, {str(program)!r}])",
            "debug_subprocesses": True,
        },
    }[kind]
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"])
        assert session.launch(**target)["stop_reason"] == "breakpoint"
        text = "    found.append(1)\n    found.pop()"  # to take in the indentation takes textwrap
        assert session.post("/evaluate", {"expression": text}).ok()["error"] is None
        assert session.resume()["exit_code"] == 0
        assert session.printed("stdout") == "queue string json textwrap token True\n"
        assert session.printed("stderr") == ""


COMMAND = """
    import os, subprocess, sys
    from pathlib import Path

    def shown(kind):
        return Path("/proc/self/" + kind).read_bytes()

    pairs = [pair.split(b"=", 1) for pair in shown("environ").rstrip(b"\\0").split(b"\\0")]
    assert {key: os.environb[key] for key, _ in pairs if key in os.environb}.items() <= {
        key: value for key, value in pairs
    }.items()
    print(repr(shown("cmdline")), flush=True)
    if sys.argv[1] == "parent":
        subprocess.run([sys.executable, sys.argv[0], "child", "a  b"])
    else:
        input()
"""


def test_its_command_line_is_its_own(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(COMMAND)
    with relay.session(python_path=python) as session:
        where = {"module": program.path.stem, "cwd": str(program.path.parent)}
        asked = {**where, "args": ["parent"], "debug_subprocesses": True, "wait": 0}
        started = session.post("/launch", asked).ok()
        eventually(lambda: session.printed("stdout").count("\n") == 2)
        told = relay.get(f"/processes/{started['pid']}").ok()["command"]
        assert told[1:] == ["-m", program.path.stem, "parent"]
        assert os.path.samefile(told[0], python)
        parent, child = map(ast.literal_eval, session.printed("stdout").splitlines())
        # Shorter than what started it: one text; see `process_title`.
        assert parent == " ".join(told).encode() + b"\0"
        assert child.endswith(b" %b child a  b\0" % bytes(program.path))
    with relay.session(python_path=python) as session:
        args = ["long", "a  b", "", "é" * 500]
        session.launch(program, args=args, python_args=["-X", "dev"], wait=0)
        eventually(lambda: session.printed("stdout").endswith("\n"))
        words = ast.literal_eval(session.printed("stdout")).decode().split("\0")
        assert words[1:] == ["-X", "dev", str(program), *args, ""]
