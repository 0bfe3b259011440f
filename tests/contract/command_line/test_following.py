"""`wait`, `events` and `logs`: lines as things happen, and a last line that says why."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

from tests.kit.client import Client
from tests.kit.command import Shell
from tests.kit.relay import Relay

COUNTING = """\
import sys, time
for i in range(int(sys.argv[1])):
    print("line", i, flush=True)
    print("oops", i, file=sys.stderr, flush=True)
    time.sleep(0.02)
input("more? ")
"""


def counting(shell: Shell, times: int, *options: str) -> None:
    (shell.folder / "counting.py").write_text(COUNTING)
    shell.ok("launch", *options, "counting.py", str(times))


def test_wait(shell: Shell, relay: Client):
    alone = shell.run("wait")
    assert (alone.returncode, alone.stderr) == (2, "")
    assert "there is no session" in alone.stdout  # errors too
    assert alone.stdout.endswith("\nend: nothing is waited for\n")
    alone = shell.run("wait", "--tiemout", "1")
    assert (alone.returncode, alone.stderr) == (2, "")
    assert "did you mean --timeout?" in alone.stdout
    counting(shell, 100_000, "--wait", "0")
    timed_out = shell.run("wait", "counting", "--timeout", "0.2")
    assert (timed_out.returncode, timed_out.stdout) == (5, "end: timed out after 0.2 s\n")
    waiting = shell.start("wait")
    shell.ok("break", "counting.py:4")
    printed = waiting.communicate(timeout=30)[0]
    assert waiting.returncode == 0
    assert "→ 4      print(" in printed
    assert printed.splitlines()[-1] == "end: counting is paused"
    # It answers at once where the program stands already.
    assert shell.ok("wait", "counting", "--timeout", "0") == printed
    reply = json.loads(shell.ok("wait", "counting", "--json"))["data"]
    assert (reply["status"], reply["stop_reason"]) == ("paused", "breakpoint")
    lost = shell.run("wait", "nobody").stdout.splitlines()
    assert lost[0].startswith("error SESSION_NOT_FOUND")
    assert lost[-1] == "end: the relay refused: SESSION_NOT_FOUND"
    lost = shell.run("wait", "--json", OPENCODE_DEBUG_URL="http://127.0.0.1:9").stdout.splitlines()
    assert json.loads(lost[0])["error"]["code"] == "NO_RELAY"
    assert json.loads(lost[-1]) == {"type": "end", "reason": "no relay answers", "exit_code": 1}


def test_wait_for_input_and_end(shell: Shell, relay: Client):
    counting(shell, 0, "--name", "asks")
    printed = shell.ok("wait", "asks", "--for", "input")
    assert printed.splitlines()[-1] == "end: asks waits for input"
    (item,) = relay.get("/sessions").ok()["items"]
    waiting = shell.start("wait", "asks")
    relay.post(f"/sessions/{item['session_id']}/input", {"input": "no\n"}).ok()
    printed = waiting.communicate(timeout=30)[0]
    assert "exit code 0" in printed
    assert printed.splitlines()[-1] == "end: asks is terminated"


def test_events_and_logs_of_a_run(shell: Shell, relay: Client):
    (shell.folder / "short.py").write_text(COUNTING.replace('input("more? ")', ""))
    shell.ok("launch", "--wait", "0", "short.py", "20")
    # `logs -f` is what the program prints, stream for stream, and ends with it.
    followed = shell.run("logs", "short", "-f")
    assert followed.returncode == 0
    assert followed.stdout == "".join(f"line {n}\n" for n in range(20))
    assert followed.stderr == "".join(f"oops {n}\n" for n in range(20))
    tail = shell.run("logs", "short", "-n", "2", "--category", "stdout", "-t").stdout.splitlines()
    assert [line.partition("Z ")[2] for line in tail] == ["line 18", "line 19"]
    assert json.loads(shell.ok("logs", "--json").splitlines()[0])["output"].startswith("line 0")
    # `events -f` ends with the session, and says so with where it has come to.
    *events, last = shell.ok("events", "short", "-f", "--types", "session,terminated").splitlines()
    ended = r"^[\d:.]+ short \d+ terminated exit code 0, target exited$"
    assert re.search(ended, "\n".join(events), re.MULTILINE)
    end = re.fullmatch(r"end: the session has ended \(sess_\w+ terminated\); cursor (\S+)", last)
    assert end
    again = shell.ok("events", "short", "--cursor", end[1], "--types", "session,terminated")
    assert again.startswith("end: these are all so far")
    new = shell.ok("events", "--new", "--json")
    assert json.loads(new)["type"] == "end"
    timed_out = shell.run("events", "-f", "--new", "--timeout", "0.1")
    assert timed_out.returncode == 5
    assert timed_out.stdout.startswith("end: timed out")


def test_the_relay_goes_and_comes_back(own_relay: Callable[..., Relay], tmp_path: Path):
    """Nothing is missed and nothing comes twice; the new relay listens on another port."""
    relay = own_relay()
    shell = Shell(tmp_path, OPENCODE_DEBUG_DATA_DIR=str(relay.data_dir))
    counting(shell, 100_000, "--wait", "0", "-b", "counting.py:4")
    following = shell.start("events", "counting", "-f", "--types", "stopped,terminated")
    assert following.stdout is not None
    first = following.stdout.readline()
    assert " stopped breakpoint " in first
    # A wait that is bounded ends in time, with a relay or without.
    bounded = shell.start("events", "-f", "--types", "stopped", "--timeout", "1.5")
    assert bounded.stdout is not None
    assert bounded.stdout.readline() == first
    relay.kill()
    assert "no relay answers" in following.stdout.readline()
    assert bounded.communicate(timeout=20)[0].splitlines()[-1].startswith("end: timed out after")
    assert bounded.returncode == 5
    relay.start()
    assert "the relay is back" in following.stdout.readline()
    shell.ok("continue")
    second = following.stdout.readline()
    assert int(second.split()[2]) > int(first.split()[2])
    assert "stop 2" in second
    shell.ok("rm", "--force")
    rest = following.communicate(timeout=30)[0].splitlines()
    assert rest[-1].startswith("end: the session ")
    assert sum(" stopped " in line for line in rest) == 0
    assert following.returncode == 0
    # Ctrl-C ends it with a last line too.
    following = shell.start("events", "-f")
    assert following.stdout is not None
    shell.ok("launch", "--wait", "0", "counting.py", "0")
    assert following.stdout.readline()
    following.send_signal(signal.SIGINT)
    rest = following.communicate(timeout=30)[0].splitlines()
    assert rest[-1].startswith("end: interrupted; the programs go on")
    assert following.returncode == 130
