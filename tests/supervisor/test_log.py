"""Log lines: their form, what they hide, and that nothing on the way out can harm the relay."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from debug_relay.protocol.secrets import hide_secrets, looks_secret
from debug_relay.supervisor.log import (
    Log,
    LogOutput,
    RotatingFile,
    entry,
    json_line,
    redact,
    text_line,
)

log = Log("debug_relay.supervisor.sample")


class Pipe:
    """A stderr whose other end the test holds."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self._open = {self.reader, self.writer}

    def close(self, *ends: int) -> None:
        for end in ends or tuple(self._open):
            if end in self._open:
                self._open.remove(end)
                os.close(end)

    def lines(self) -> list[dict[str, Any]]:
        self.close(self.writer)
        with open(self.reader, "rb", closefd=False) as file:
            return [json.loads(line) for line in file]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def record(event: str = "it.happened", error: BaseException | None = None, **fields: Any) -> Any:
    made = logging.LogRecord(
        "debug_relay.worker", logging.INFO, "", 0, "%s", (event,),
        (type(error), error, error.__traceback__) if error else None,
    )  # fmt: skip
    made.fields = fields
    return made


@pytest.mark.parametrize(
    "name",
    [
        "token", "TOKEN", "GITHUB_TOKEN", "accessToken", "authtoken", "X-Api-Key", "api_key",
        "APIKEY", "apiKey", "password", "PGPASSWORD", "DB_PASS", "MYSQL_PWD", "passphrase",
        "client_secret", "AWS_SECRET_ACCESS_KEY", "authorization", "Proxy-Authorization",
        "Cookie", "Set-Cookie", "STRIPE_KEY", "SSH_PRIVATE_KEY", "AWS_CREDENTIALS", "BASIC_AUTH",
        "JWT", "SENTRY_DSN", "session_tokens",
    ],
)  # fmt: skip
def test_names_that_look_secret(name: str):
    assert looks_secret(name)
    assert redact(name, "value") == "***"


@pytest.mark.parametrize(
    "name",
    [
        "", "PATH", "PWD", "OLDPWD", "key", "keyboard", "monkey", "MAX_TOKENS", "TOKEN_COUNT",
        "TOKENIZERS_PARALLELISM", "COOKIE_MAX_AGE", "tokens_file", "SSL_CERT_FILE", "author",
        "AUTH_ENABLED", "idempotency_key", "compass", "passed", "bypass", "session_id", "LANG",
    ],
)  # fmt: skip
def test_names_that_do_not(name: str):
    assert not looks_secret(name)
    assert redact(name, "value") == "value"


def test_passwords_in_addresses_are_hidden():
    text = "see postgres://me:hunter2@db/x and http://127.0.0.1:80/a@b"
    assert hide_secrets(text) == "see postgres://me:***@db/x and http://127.0.0.1:80/a@b"
    assert redact("url", text) == hide_secrets(text)


def test_redact_looks_inside():
    given = {"env": {"API_KEY": "x", "HOME": "/h"}, "list": [{"password": 5}], "no_token": None}
    assert redact("request", given) == {
        "env": {"API_KEY": "***", "HOME": "/h"},
        "list": [{"password": "***"}],
        "no_token": None,
    }
    assert redact("tokens", ["a"]) == "***"


def test_redact_ends_in_what_contains_itself():
    loop: list[Any] = []
    loop.append(loop)
    assert "…" in json.dumps(redact("loop", loop), ensure_ascii=False)


def test_json_line():
    line = json.loads(json_line(record(session_id="sess_1", pid=5, took=0.5, ok=True, token="t")))
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "info", "event": "it.happened", "logger": "worker",
        "session_id": "sess_1", "pid": 5, "took": 0.5, "ok": True, "token": "***",
    }  # fmt: skip


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "value",
    [
        Path("/x"), Broken(), "\udcff", 2**80, b"\xff", {1: {2, 3}}, float("inf"), object(),
        "x" * 10**6,
    ],
)  # fmt: skip
def test_any_value_makes_a_line(value: Any):
    line = json_line(record(value=value))
    assert json.loads(line)["event"] == "it.happened"
    assert line.count(b"\n") == 1
    assert len(line) < 64 * 1024
    assert text_line(record(value=value)).count(b"\n") == 1


def test_fields_do_not_replace_the_lines_own():
    line = entry(record(level=3, ts=4, event_="x"))
    assert line["level"] == "info"
    assert line["level_"] == 3


def test_exception_has_its_traceback():
    try:
        raise ValueError("in http://me:hunter2@host")
    except ValueError as error:
        caught = error
    line = entry(record(error=caught))
    assert "Traceback" in line["exception"]
    assert "test_exception_has_its_traceback" in line["exception"]
    assert "hunter2" not in line["exception"]
    assert text_line(record(error=caught)).decode().splitlines()[-1].startswith("ValueError: in")


def test_text_line():
    text = text_line(record(pid=5, name="two words", bad="a\nb", token="t")).decode()
    assert text.endswith(r'it.happened pid=5 name="two words" bad="a\nb" token=*** [worker]' + "\n")


def test_event_of_a_record_that_does_not_format():
    made = logging.LogRecord("asyncio", logging.ERROR, "", 0, "%d of %d", ("x",), None)
    assert entry(made)["event"] == "%d of %d"


def test_lines_arrive_in_order_on_stderr_and_in_the_file(pipe: Pipe, tmp_path: Path):
    output = LogOutput("info", "json", tmp_path / "relay.log", pipe.writer)
    log.debug("not.worth_it")
    log.info("first", n=1)
    output.set_level("debug")
    log.debug("second")
    logging.getLogger("asyncio").error("Task was destroyed %s", "x")
    logging.getLogger("asyncio").info("not heard")
    try:
        raise KeyError("k")
    except KeyError as error:
        log.exception("third", error, code=1)
    output.close()
    lines = pipe.lines()
    assert [line["event"] for line in lines] == [
        "first", "second", "Task was destroyed x", "third",
    ]  # fmt: skip
    assert "KeyError" in lines[3]["exception"]
    assert lines[0]["logger"] == "supervisor.sample"
    assert output.file == tmp_path / "relay.log"
    assert [json.loads(line) for line in output.file.read_text().splitlines()] == lines
    assert output.file.stat().st_mode & 0o777 == 0o600


def test_text_style_leaves_the_file_json(pipe: Pipe, tmp_path: Path):
    output = LogOutput("info", "text", tmp_path / "relay.log", pipe.writer)
    log.warning("something", n=1)
    output.close()
    assert b"warning something n=1" in os.read(pipe.reader, 1000)
    assert json.loads((tmp_path / "relay.log").read_text())["n"] == 1


def test_closed_stderr_is_survived_and_the_file_goes_on(pipe: Pipe, tmp_path: Path):
    pipe.close(pipe.reader)
    output = LogOutput("info", "json", tmp_path / "relay.log", pipe.writer)
    for number in range(10):
        log.info("line", number=number)
    output.close()
    assert len((tmp_path / "relay.log").read_text().splitlines()) == 10


def test_reader_that_stands_still_holds_nobody(pipe: Pipe, tmp_path: Path):
    output = LogOutput("info", "json", tmp_path / "relay.log", pipe.writer)
    began = time.monotonic()
    for number in range(3000):
        log.info("line", number=number, text="x" * 1000)
    assert time.monotonic() - began < 20
    stderr = output._handlers[0].writer
    assert stderr._refused > 0
    # Read until the writer has caught up: the gap is told where it was.
    seen = b""
    while b"log.dropped" not in seen:
        log.info("again")
        seen += os.read(pipe.reader, 1 << 20)
    told = next(json.loads(line) for line in seen.splitlines() if b"log.dropped" in line)
    assert told["lines"] > 0
    pipe.close(pipe.reader)
    output.close()


def test_stuck_stderr_bounds_the_close(pipe: Pipe):
    output = LogOutput("info", "json", None, pipe.writer)
    for _ in range(200):
        log.info("line", text="x" * 1000)
    stderr = output._handlers[0].writer
    began = time.monotonic()
    output.close()
    assert time.monotonic() - began < 3
    # The reader leaves: the writer ends without touching the descriptor again.
    waiting = stderr._waiting.qsize()
    pipe.close(pipe.reader)
    stderr._thread.join(5)
    assert not stderr._thread.is_alive()
    assert stderr._waiting.qsize() == waiting - 1


def test_file_that_cannot_be_opened_is_told(pipe: Pipe, tmp_path: Path):
    output = LogOutput("info", "json", tmp_path / "none" / "relay.log", pipe.writer)
    output.close()
    assert output.file is None
    (line,) = pipe.lines()
    assert line["event"] == "log.file_failed"
    assert line["reason"] == "No such file or directory"


def test_full_disk_drops_lines_and_tells_how_many(pipe: Pipe):
    full = os.open("/dev/full", os.O_WRONLY)
    output = LogOutput("info", "json", None, full)
    log.info("lost")
    deadline = time.monotonic() + 5
    while not output._handlers[0].writer._failed and time.monotonic() < deadline:
        time.sleep(0.001)
    os.dup2(pipe.writer, full)
    log.info("kept")
    output.close()
    os.close(full)
    assert [line["event"] for line in pipe.lines()] == ["log.dropped", "kept"]


def test_file_rotates(tmp_path: Path):
    path = tmp_path / "relay.log"
    file = RotatingFile(path, limit=100, files=3)
    for number in range(20):
        file.write(b"%039d\n" % number)
    file.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["relay.log", "relay.log.1", "relay.log.2"]
    kept = [int(n) for p in ("relay.log.2", "relay.log.1", "relay.log") for n in
            (tmp_path / p).read_text().split()]  # fmt: skip
    assert kept == [14, 15, 16, 17, 18, 19]
    again = RotatingFile(path, limit=100, files=3)
    again.write(b"x" * 30 + b"\n")
    again.close()
    assert path.stat().st_size == 31


def test_file_is_no_symbolic_link(tmp_path: Path):
    path = tmp_path / "relay.log"
    path.symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic"):
        RotatingFile(path, is_own=False)
    # In the place of a file of the relay's own it is moved aside.
    file = RotatingFile(path)
    file.close()
    assert file.moved_aside is not None
    assert Path(file.moved_aside).is_symlink()
    assert path.is_file()
    assert not (tmp_path / "other").exists()


def test_root_logger_is_left_as_it_was(pipe: Pipe):
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    LogOutput("debug", "json", None, pipe.writer).close()
    assert (root.level, list(root.handlers)) == before
