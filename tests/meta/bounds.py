"""The page `docs/bounds.md`: every deadline, size and count that bounds something, from the code.

A bound is a number with a name of its own at the top of a module. The comment beside the number,
or right above it, says what it bounds; the end of the name says the unit. `make docs` runs this.
"""

from __future__ import annotations

import ast
import functools
import io
import tokenize
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.meta.documents import ROOT

PAGE = ROOT / "docs" / "bounds.md"
PACKAGES = ("protocol", "supervisor", "worker")
# Numbers that are no choice of ours to bound something: constants of the kernel, of CPython and of
# pydevd, formats, exit codes, numbers of versions.
NO_BOUNDS = {
    "protocol/secrets.py": "_SHORTEST_PASSWORD",
    "protocol/system/peers.py": (
        "_NETLINK_SOCK_DIAG _SOCK_DIAG_BY_FAMILY _NLM_F_REQUEST _NO_COOKIE _ALL_STATES _FIXED"
    ),
    "protocol/system/procfs.py": "_PF_EXITING",
    "protocol/validation/json_body.py": "_EXACT",
    "protocol/version.py": "WIRE",
    "protocol/wire/frames.py": "_MORE",
    "protocol/wire/ring_format.py": (
        "HEADER AT_CAPACITY AT_EPOCH AT_TAIL AT_TAIL_ENTRY AT_MARK AT_HEAD AT_NEXT_ENTRY PAD"
    ),
    "supervisor/access/guard.py": "UNKNOWN_UID",
    "supervisor/app.py": "_LARGE_PIECE",
    "supervisor/cli/exit_codes.py": "OK FAILED MISUSED TIMED_OUT INTERRUPTED",
    "supervisor/cli/token_commands.py": "_LAST",
    "supervisor/processes/attach_preflight.py": "_STRICT",
    "supervisor/storage/breakpoint_profiles.py": "_VERSION",
    "supervisor/streams/forms.py": "_TEXT_FRAME _SHORT _LONG",
    "supervisor/streams/websocket.py": "_TRY_AGAIN_LATER",
    "supervisor/workers/child_process.py": "_GET_INFO _WITH_EXIT",
    "supervisor/workers/orphan_cleanup.py": "_PR_SET_CHILD_SUBREAPER",
    "worker/attach/payload.py": (
        "_NOWHERE _FAILED _CLASS _TABLE _STATUS_NAME TEXT _STATUS_DIGITS _CLOEXEC _GET_SEALS "
        "_FILE_INPUT"
    ),
    "worker/breakpoints/hit_counts.py": "CAPACITY",
    "worker/breakpoints/project_file.py": "VERSION",
    "worker/breakpoints/run_to_line.py": "_NUMBER",
    "worker/bundle.py": "_LEVEL _MARSHAL",
    "worker/debuggee/child_debugging.py": "_PIDFD_GET_INFO _PIDFD_INFO_EXIT _INFO_BYTES",
    "worker/debuggee/process.py": "_PR_SET_PDEATHSIG",
    "worker/debuggee/output_pipe.py": "_F_SETPIPE_SZ",
    "worker/debugger/hub.py": "FIRST_REFERENCE",
    "worker/probe/breakpoints/code_objects.py": "FUNCTION",
    "worker/probe/breakpoints/run_to_line.py": "NUMBER",
    "worker/probe/engine/frames.py": "GENERATOR",
    "worker/probe/engine/loading/earlier_debugger.py": "_RDHUP",
    "worker/probe/engine/settrace/fast_tracer.py": "RUNNING",
    "worker/probe/engine/settrace/retracing.py": "_OTHERS",
    "worker/probe/engine/threads/control.py": "_ON_REQUEST",
    "worker/probe/inspection/exception_details.py": "_PLAIN",
    "worker/probe/lifecycle/attached.py": "_RDHUP",
    "worker/probe/tracing/ring_writer.py": "HEADER RECORD PAD",
    "worker/probe/engine/watched_lines.py": "FIRST_OBSERVED",
    "worker/probe/engine/watched_code.py": "FIRST",
    "worker/probe/engine/fast_locals.py": "_OPTIMIZED _FRAME_3_11 _LOCALS_3_11",
    "worker/probe/engine/with_blocks.py": "_FRAME _LOCALS _SELF _TYPE _BLOCK _BLOCKS _COUNT _TAGS",
    "worker/probe/values/parts.py": "_OPTIMIZED",
    "worker/probe/values/class_facts.py": "_HEAP",
    "worker/probe/values/rendering.py": "LEAVES",
    "worker/native/entry_hold.py": "_PTRACE_TRACEME _PTRACE_ATTACH _PTRACE_DETACH",
    "worker/process_title.py": "_PR_SET_NAME",
    "worker/system/descendants.py": "_PR_SET_CHILD_SUBREAPER",
}


# What must hold between bounds that cannot be derived from each other, because the code of one side
# runs in another process: left, relation, right, why.
AGREE = (
    (
        "worker/debugger/admission.py CHILD_WAITS_SECONDS", "<=",
        "worker/probe/engine/connection/handshake.py _SILENCE_SECONDS",
        "a child waits at least as long for the worker as the worker for the child",
    ),
    (
        "worker/attach/injected_process.py _BEAT_SECONDS", "<",
        "worker/probe/lifecycle/attached.py _TALKS_SECONDS",
        "an attached program hears a heartbeat before it takes its worker for gone",
    ),
    (
        "worker/probe/lifecycle/attached.py _TALKS_SECONDS", "<",
        "worker/attach/injected_process.py _SILENCE_SECONDS",
        "a program refuses another worker for a shorter time than it stays attached in silence",
    ),
    (
        "worker/probe/engine/detaching/detach.py _OUT_SECONDS", "<",
        "worker/attach/injected_process.py _LEAVE_SECONDS",
        "a worker waits until the threads of the program are out of the debugger",
    ),
    (
        "worker/probe/inspection/variable_pages.py SECONDS", "<=",
        "worker/debugger/probe_client.py OWN_CODE_SECONDS",
        "the probe ends the program's own code before the worker interrupts it",
    ),
    (
        "worker/interpreter/resolve.py ASK_SECONDS", "<",
        "supervisor/workers/spawn.py _READY_SECONDS",
        "a worker asks an interpreter what it is before it is ready",
    ),
    (
        "worker/server.py _GRACE_SECONDS", "<",
        "supervisor/sessions/deletion.py _END_SECONDS",
        "a supervisor waits until the worker has ended its programs",
    ),
    (
        "protocol/wire/dap.py MAX_MESSAGE_BYTES", "<",
        "protocol/version.py MAX_FRAME_BYTES",
        "what a debug server answers fits into one frame",
    ),
)  # fmt: skip


class Bound(NamedTuple):
    module: str
    name: str
    value: float
    sentence: str

    @property
    def unit(self) -> str:
        """The unit that the end of the name says; a count has none."""
        words = self.name.lower().split("_")
        return next((unit for unit in ("seconds", "bytes", "characters") if unit in words), "")

    @property
    def shown(self) -> str:
        if self.unit == "seconds":
            return f"{self.value:g} s"
        if self.unit == "bytes":
            for name, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
                if self.value >= size and self.value % size == 0:
                    return f"{self.value // size:,} {name}"
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.value:,}{unit}"


@functools.cache
def bounds() -> list[Bound]:
    """Every bound of the product, in the order of the modules."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = path.relative_to(ROOT).as_posix()
            numbers = _numbers(path)
            comments = _comments(path.read_text(encoding="utf-8")) if numbers else {}
            for name, (line, value) in numbers.items():
                if name not in NO_BOUNDS.get(module, "").split():
                    found.append(Bound(module, name, value, comments.get(line, "")))
    return found


@functools.cache
def _numbers(path: Path) -> dict[str, tuple[int, float]]:
    """The numbers with a name at the top of a module, and their lines."""
    known: dict[str, float] = {}
    found: dict[str, tuple[int, float]] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.ImportFrom(module=str(module)) if module.startswith("debug_relay."):
                other = ROOT.joinpath(*module.split(".")[1:]).with_suffix(".py")
                if other.exists():
                    known.update({name: value for name, (_, value) in _numbers(other).items()})
                continue
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case _:
                continue
        if not name.isupper():
            continue
        with suppress(NameError, TypeError, AttributeError):  # it is made of other things
            expression = compile(ast.Expression(value), str(path), "eval")
            number = eval(expression, {"__builtins__": {}}, known)
            if type(number) in (int, float):
                known[name] = number
                found[name] = node.lineno, number
    return found


def _comments(text: str) -> dict[int, str]:
    """For each line of code the comment at its end, or else the one right above it."""
    alone: dict[int, str] = {}
    found: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line, words = token.start[0], token.string.removeprefix("#").strip()
            if token.start[1]:
                found[line] = words
            else:
                alone[line] = f"{alone[line - 1]} {words}" if line - 1 in alone else words
    return {line + 1: words for line, words in alone.items() if line + 1 not in alone} | found


def agreements() -> list[tuple[Bound, str, Bound, str]]:
    known = {f"{bound.module} {bound.name}": bound for bound in bounds()}
    return [(known[left], relation, known[right], why) for left, relation, right, why in AGREE]


def page() -> str:
    by_unit: dict[str, list[Bound]] = {}
    for bound in bounds():
        by_unit.setdefault(bound.unit, []).append(bound)
    lines = [
        "# Deadlines and sizes",
        "",
        "Every number in the code that bounds something: time, memory, entries, depth. `make docs`",
        "makes this page; the sentence of each number is the comment beside it in the code.",
        "What a user can set is in `config.toml` and in [the reference](reference.md) instead.",
        "",
        "The deadline of a request depends on its operation: its row in `protocol/operations.py`",
        "says what the deadline consists of, and `supervisor/sessions/call_deadlines.py` adds the",
        "margins of worker and supervisor.",
        "",
        "## Bounds that must agree",
        "",
        "| bound | | bound | because |",
        "| --- | --- | --- | --- |",
    ]
    for left, relation, right, why in agreements():
        lines.append(f"| {_place(left)} | {relation} | {_place(right)} | {why} |")
    titles = {"seconds": "Times", "bytes": "Sizes in bytes", "characters": "Lengths", "": "Counts"}
    for unit, title in titles.items():
        lines += ["", f"## {title}", "", "| module | name | value | what it bounds |"]
        lines.append("| --- | --- | ---: | --- |")
        for bound in by_unit[unit]:
            row = (f"`{bound.module}`", f"`{bound.name}`", bound.shown, bound.sentence)
            lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def _place(bound: Bound) -> str:
    return f"`{bound.name}` ({bound.shown}) of `{bound.module}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
