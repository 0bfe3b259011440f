"""Settings: the layers, their order, and everything that is refused, said all at once."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from debug_relay.supervisor.config.layers import (
    BUILT_IN,
    ConfigError,
    Loaded,
    as_toml,
    describe,
    load,
)
from debug_relay.supervisor.config.settings import KEYS, RUNTIME_CHANGEABLE, Settings

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".opencode-debugger").mkdir(mode=0o700)
    return tmp_path


def read(home: Path, file: str | None = None, /, *args: str, **environ: str) -> Loaded:
    """Flags as key=text; environment without its prefix."""
    variables = {f"OPENCODE_DEBUG_{name}": text for name, text in environ.items()}
    flags = dict(arg.split("=", 1) for arg in args)
    return load(flags, {"HOME": str(home), **variables}, file)


def problems(home: Path, file: str | None = None, /, *args: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(home, file, *args, **environ)
    return [str(problem) for problem in caught.value.problems]


def put(home: Path, text: str, name: str = "config.toml") -> Path:
    path = home / ".opencode-debugger" / name
    path.write_text(text)
    return path


def value_of(loaded: Loaded, name: str) -> Any:
    section, _, key = name.partition(".")
    return getattr(getattr(loaded.settings, section), key)


def test_documented_default_is_the_built_in_one():
    tree = tomllib.loads((ROOT / "config.toml").read_text())
    documented = {f"{s}.{k}": "" if v == "" else v for s, t in tree.items() for k, v in t.items()}
    assert documented == {
        name: "" if key.default is None else key.default for name, key in KEYS.items()
    }
    assert list(tree) == list(Settings.__struct_fields__)


def test_documented_default_explains_every_key():
    lines = (ROOT / "config.toml").read_text().splitlines()
    for number, line in enumerate(lines):
        if re.match(r"\w+ =", line):
            assert lines[number - 1].startswith("# "), line


def test_documented_default_can_be_used_as_it_is(home: Path):
    loaded = read(home, str(ROOT / "config.toml"))
    assert loaded.settings == read(home).settings


def test_built_in(home: Path):
    loaded = read(home)
    assert loaded.settings.server.port == 5679
    assert loaded.settings.server.data_dir == str(home / ".opencode-debugger")
    assert loaded.settings.server.socket is None
    assert set(loaded.origins) == set(KEYS)
    assert set(loaded.origins.values()) == {BUILT_IN}
    assert loaded.config_file is None


def test_later_layers_win(home: Path):
    file = put(home, "[sessions]\nmax_sessions = 2\n[dap]\nlaunch_timeout = 2\nrequest_timeout = 2")
    kept = put(
        home, '{"sessions": {"max_sessions": 3}, "dap": {"launch_timeout": 3}}', "config.json"
    )
    loaded = read(home, None, "server.port=6", SESSIONS__MAX_SESSIONS="4", PORT="5")
    assert loaded.settings.dap.evaluate_timeout == 10
    assert loaded.settings.dap.request_timeout == 2
    assert loaded.settings.dap.launch_timeout == 3
    assert loaded.settings.sessions.max_sessions == 4
    assert loaded.settings.server.port == 6
    assert loaded.origins["dap.request_timeout"] == f"file {file} [dap]"
    assert loaded.origins["dap.launch_timeout"] == f"PATCH /config in {kept} [dap]"
    assert loaded.origins["sessions.max_sessions"] == (
        "environment OPENCODE_DEBUG_SESSIONS__MAX_SESSIONS"
    )
    assert loaded.origins["server.port"] == "flag --port"
    assert loaded.config_file == str(file)


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("HOST", "::1", "server.host", "::1"),
        ("PORT", "0", "server.port", 0),
        ("MAX_SESSIONS", "7", "sessions.max_sessions", 7),
        ("SESSION_TIMEOUT_SECONDS", "90", "sessions.idle_timeout", 90),
        ("SESSION_MAX_LIFETIME_SECONDS", "1.5", "sessions.max_lifetime", 1.5),
        ("OUTPUT_BUFFER_MAX_BYTES", "1048576", "output.max_bytes", 1048576),
        ("DAP_TIMEOUT_SECONDS", "3", "dap.request_timeout", 3),
        ("DAP_LAUNCH_TIMEOUT_SECONDS", "4", "dap.launch_timeout", 4),
        ("DEFAULT_PYTHON_PATH", "python3.12", "python.default_path", "python3.12"),
        ("DEBUG", "true", "log.level", "debug"),
        ("DEBUG", "0", "log.level", "info"),
        (
            "SERVER__ALLOW_HOSTS",
            "a.test, b.test:80,",
            "server.allow_hosts",
            ["a.test", "b.test:80"],
        ),
        ("SERVER__ALLOW_UIDS", "1000,1001", "server.allow_uids", [1000, 1001]),
        ("SERVER__ALLOW_UIDS", "", "server.allow_uids", []),
        ("SERVER__ALLOW_OTHER_USERS", "Yes", "server.allow_other_users", True),
        ("SERVER__SOCKET", "", "server.socket", None),
        ("LIMITS__MEMORY_BYTES", " 5 ", "limits.memory_bytes", 5),
        ("LOG__FORMAT", "text", "log.format", "text"),
    ],
)
def test_environment(home: Path, variable: str, text: str, name: str, value: Any):
    assert value_of(read(home, **{variable: text}), name) == value


def test_clients_variables_are_not_ours(home: Path):
    loaded = read(home, URL="http://other:1", TOKEN="s3cret")
    assert set(loaded.origins.values()) == {BUILT_IN}


@pytest.mark.parametrize(
    ("variable", "text", "parts"),
    [
        ("PORT", "http", ["server.port", '"http"', "OPENCODE_DEBUG_PORT", "0 to 65535"]),
        ("PORT", "65536", ["65536", "an integer from 0 to 65535"]),
        ("PORT", "", ['server.port = ""', "an integer"]),
        ("HOST", "a b", ["a host name or address"]),
        ("DAP__REQUEST_TIMEOUT", "0", ["a number above 0 to 3600"]),
        ("SESSIONS__IDLE_TIMEOUT", "nan", ["a number from 0 to 31536000"]),
        ("LIMITS__CPU_SECONDS", "inf", ["limits.cpu_seconds", "a number from 0 on"]),
        ("LOG__LEVEL", "loud", ["debug", "info", "warning", "error"]),
        ("SERVER__ALLOW_OTHER_USERS", "maybe", ["true or false"]),
        ("SERVER__ALLOW_UIDS", "1,x", ["a list, each an integer from 0"]),
        ("SERVER__ALLOW_HOSTS", "*", ["a list, each a host name"]),
        ("DATA_DIR", "/a\nb", ["a path of printable"]),
        ("DATA_DIR", "/\udcff", ["a path of printable"]),
        ("DATA_DIR", "~nobody-of-that-name/x", ["no such user"]),
        ("DEBUG", "perhaps", ["OPENCODE_DEBUG_DEBUG", "true or false"]),
        ("PROT", "1", ["unknown variable", "did you mean OPENCODE_DEBUG_PORT?"]),
        ("RUN_DIR", "/x", ["did you mean OPENCODE_DEBUG_SERVER__RUN_DIR?"]),
        ("SESSIONS__MAX", "1", ["did you mean OPENCODE_DEBUG_SESSIONS__MAX_SESSIONS?"]),
        ("ZZZZ", "1", ["unknown variable", "debug-relay config lists"]),
    ],
)
def test_environment_refused(home: Path, variable: str, text: str, parts: list[str]):
    (told,) = problems(home, **{variable: text})
    for part in parts:
        assert part in told


def test_unknown_name_that_looks_secret_hides_its_value(home: Path):
    (told,) = problems(home, API_TOKEN="hunter2")
    assert "hunter2" not in told
    assert "***" in told


def test_two_variables_for_one_key(home: Path):
    assert read(home, PORT="1", SERVER__PORT="1").settings.server.port == 1
    (told,) = problems(home, PORT="1", SERVER__PORT="2")
    assert "OPENCODE_DEBUG_PORT says 1; set one of them" in told


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[server]\nprot = 1", ["server.prot = 1", "[server]", "did you mean server.port?"]),
        ("[sesions]\nx = 1", ["[sesions]", "unknown section; did you mean [sessions]?"]),
        ("port = 1", ["[port]", "unknown section"]),
        ("server = 1", ["write its keys below [server]"]),
        ("[server]\nport = true", ["server.port = true", "an integer"]),
        ("[server]\nport = '1'", ['server.port = "1"', "an integer"]),
        ("[server]\nport = 1.5", ["1.5"]),
        ("[server]\nallow_hosts = 'a'", ["a list"]),
        ("[server.port]\nx = 1", ["server.port", "an integer"]),
        ("[server]\nhost = ''", ["server.host"]),
        ("[limits]\nwall_seconds = inf", ["limits.wall_seconds"]),
        ("[server]\ndata_dir = 1979-05-27", ["1979-05-27", "a path"]),
        ("[server\n", ["config.toml", "cannot be read", "line 1"]),
    ],
)
def test_file_refused(home: Path, text: str, parts: list[str]):
    path = put(home, text)
    (told,) = problems(home)
    assert str(path) in told
    for part in parts:
        assert part in told


def test_file_that_cannot_be_read(home: Path):
    assert "No such file" in problems(home, str(home / "none.toml"))[0]
    assert "is a directory" in problems(home, str(home))[0]
    os.mkfifo(home / "fifo")
    assert "is not a regular file" in problems(home, str(home / "fifo"))[0]
    with open(home / "large", "wb") as file:
        file.truncate(3 << 30)
    assert "is larger than" in problems(home, str(home / "large"))[0]
    put(home, "").write_bytes(b"# \xff")
    assert "cannot be read" in problems(home)[0]


def test_named_file_replaces_the_one_found(home: Path, tmp_path: Path):
    put(home, "[server]\nport = 1")
    other = tmp_path / "other.toml"
    other.write_text("[sessions]\nmax_sessions = 1")
    loaded = read(home, str(other))
    assert loaded.settings.server.port == 5679
    assert loaded.config_file == str(other)


def test_working_directory_has_no_say(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "config.toml").write_text("[server]\nport = 1")
    (tmp_path / ".env").write_text("OPENCODE_DEBUG_PORT=1")
    monkeypatch.chdir(tmp_path)
    assert read(home).settings.server.port == 5679


def test_data_directory_of_a_higher_layer_is_where_files_are_found(home: Path, tmp_path: Path):
    data = tmp_path / "elsewhere"
    data.mkdir()
    (data / "config.toml").write_text('[server]\nport = 1\ndata_dir = "~/.opencode-debugger"')
    (data / "config.json").write_text('{"log": {"level": "error"}}')
    for loaded in (
        read(home, None, f"server.data_dir={data}"),
        read(home, DATA_DIR=str(data)),
    ):
        assert loaded.settings.server.port == 1
        assert loaded.settings.log.level == "error"
        assert loaded.settings.server.data_dir == str(data)
    named = tmp_path / "named.toml"
    named.write_text('[server]\ndata_dir = "elsewhere"')
    loaded = read(home, str(named))
    assert loaded.settings.server.data_dir == str(data)
    assert loaded.settings.log.level == "error"


def test_file_found_in_a_data_directory_cannot_name_another(home: Path):
    put(home, '[server]\ndata_dir = "~/.opencode-debugger"')
    read(home)
    put(home, '[server]\ndata_dir = "/srv/relay"')
    (told,) = problems(home)
    assert "cannot name another" in told
    assert "--data-dir" in told


def test_places_are_absolute(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    put(home, '[server]\nsocket = "s"\n[auth]\ntokens_file = "~/t"\n[python]\ndefault_path = "v/p"')
    monkeypatch.chdir(tmp_path)
    loaded = read(home, None, "server.run_dir=r/../q")
    assert loaded.settings.server.socket == str(home / ".opencode-debugger" / "s")
    assert loaded.settings.auth.tokens_file == str(home / "t")
    assert loaded.settings.python.default_path == str(home / ".opencode-debugger" / "v" / "p")
    assert loaded.settings.server.run_dir == str(tmp_path / "q")


@pytest.mark.parametrize("text", ["", "{", "[1]", "\x00" * 50, "[" * 100_000])
def test_broken_kept_settings_hold_up_no_start(home: Path, text: str):
    path = put(home, text, "config.json")
    (warning,) = read(home).warnings
    assert str(path) in warning
    assert path.read_text() == text


def test_kept_settings_are_runtime_ones(home: Path):
    put(
        home,
        '{"server": {"port": 1}, "dap": {"request_timeout": -1}, "log": {"x": 1}}',
        "config.json",
    )
    told = problems(home)
    assert len(told) == 3
    assert any("cannot be changed while the relay runs" in text for text in told)
    assert "log.level" in RUNTIME_CHANGEABLE
    assert "log.format" not in RUNTIME_CHANGEABLE
    assert {name.partition(".")[0] for name in RUNTIME_CHANGEABLE} == {
        "sessions", "output", "dap", "limits", "log",
    }  # fmt: skip


def test_all_layers_are_refused_at_once(home: Path):
    put(home, "[server]\nprot = 1\nport = 'x'\n[what]\n")
    put(home, '{"dap": {"request_timeout": 0}}', "config.json")
    told = problems(home, None, "server.host=a b", "server.nope=1", PORT="x", NOPE="1")
    assert len(told) == 8
    with pytest.raises(ConfigError, match="8 settings cannot be used:\n  "):
        read(home, None, "server.host=a b", "server.nope=1", PORT="x", NOPE="1")


def test_flag_refused_by_its_name(home: Path):
    (told,) = problems(home, None, "server.max_body_bytes=10")
    assert told.startswith('server.max_body_bytes = "10" (flag --max-body-bytes): accepted: ')


def test_long_values_are_cut(home: Path):
    (told,) = problems(home, PORT="9" * 100_000)
    assert len(told) < 400


def test_described_values_are_toml(home: Path):
    rows = describe(read(home, None, "server.port=1", "server.allow_hosts=a,b"))
    assert [row.key for row in rows] == list(KEYS)
    shown = {row.key: row for row in rows}
    assert shown["server.port"].value == "1"
    assert shown["server.port"].origin == "flag --port"
    assert shown["server.allow_hosts"].value == '["a", "b"]'
    assert shown["sessions.idle_timeout"].value == "3600"
    assert shown["server.socket"].value == '""'


@pytest.mark.parametrize("value", ['a"b\\c', "é€😀", "a\x7fb", "tab\t", True, 3, 1.5, ["x", "y"]])
def test_as_toml_reads_back(value: Any):
    assert tomllib.loads(f"x = {as_toml(value)}")["x"] == value
