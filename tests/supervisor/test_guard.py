"""Who may come in: uids, Host and Origin by exact text, and the caller's name."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.scopes import SCOPES
from debug_relay.protocol.wire.envelope import error_body
from debug_relay.protocol.wire.frames import Caller
from debug_relay.supervisor.access.guard import UNKNOWN_UID, Guard
from debug_relay.supervisor.access.tokens import Tokens, TokensFile

PORT = 5679


def guard(**more: object) -> Guard:
    return Guard(**{"port": PORT, "own_uid": os.geteuid(), **more})  # type: ignore[arg-type]


def ask(
    one: Guard,
    host: list[str] | str = f"127.0.0.1:{PORT}",
    origin: list[str] | None = None,
    site: str | None = None,
    over_unix: bool = False,
) -> None:
    hosts = [host] if isinstance(host, str) else host
    one.check_request(hosts, origin or [], site, over_unix=over_unix)


def refusal(one: Guard, **more: object) -> RelayError:
    with pytest.raises(RelayError) as caught:
        ask(one, **more)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1:5679", "localhost:5679", "LocalHost:5679", "[::1]:5679"),
        # Through a tunnel: its port is its own affair.
        *("127.0.0.1", "localhost", "[::1]", "127.0.0.1:5678", "localhost:80"),
    ],
)
def test_own_hosts(host: str) -> None:
    ask(guard(), host)


ODD_HOSTS = [
    "127.0.0.1:", "127.0.0.1:123456", "localhost:", "127.0.0.1:5679 ",
    "127.1:5679", "0177.0.0.1:5679", "2130706433:5679",
    "0x7f000001:5679", "127.0.0.2:5679", "localhost6:5679", "localhost.:5679", "0.0.0.0:5679",
    "[::]:5679", "::1:5679", "[::ffff:127.0.0.1]:5679", "[0:0:0:0:0:0:0:1]:5679", "[::1%lo]:5679",
    "evil.example:5679", "localhost.evil.example:5679", "localhost:5679.evil.example",
    "user@localhost:5679", "localhost:5679,evil.example", "http://127.0.0.1:5679", "/", ":5679",
    "127.0.0.1:5679:5679", "loc\u212alhost:5679", "127.0.0.1:\u0665\u0666\u0667\u0669", "x" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("host", ODD_HOSTS, ids=[ascii(host)[:40] for host in ODD_HOSTS])
def test_odd_hosts(host: str) -> None:
    error = refusal(guard(), host=host)
    assert error.code is Code.FORBIDDEN_HOST
    assert "http://127.0.0.1:5679" in error.details["suggestion"]
    assert len(error.message) < 400


@pytest.mark.parametrize(
    "hosts",
    [[], [""], ["127.0.0.1:5679", "127.0.0.1:5679"], ["127.0.0.1:5679", "evil.example"]],
    ids=["missing", "empty", "twice", "two"],
)
@pytest.mark.parametrize("over_unix", [False, True])
def test_exactly_one_host(hosts: list[str], over_unix: bool) -> None:
    assert refusal(guard(), host=hosts, over_unix=over_unix).code is Code.FORBIDDEN_HOST


@pytest.mark.parametrize(
    ("configured", "host", "allowed"),
    [
        ("Relay.Example", "relay.example", True),
        ("relay.example", "RELAY.example:5679", True),
        ("relay.example", "relay.example:8443", True),
        ("relay.example", "relay.example:", False),
        ("relay.example", "relay.example:123456", False),
        ("relay.example", "sub.relay.example", False),
        ("relay.example:8443", "relay.example:8443", True),
        ("relay.example:8443", "relay.example:5679", False),
        ("relay.example:8443", "relay.example", False),
        ("fd00::1", "[fd00::1]:5679", True),
        ("fd00::1", "fd00::1", False),
    ],
)
def test_configured_hosts(configured: str, host: str, allowed: bool) -> None:
    one = guard(allowed_hosts=[configured])
    if allowed:
        ask(one, host)
    else:
        assert refusal(one, host=host).code is Code.FORBIDDEN_HOST


@pytest.mark.parametrize(
    "host", ["127.0.0.1:5679", "localhost:8000", "LOCALHOST:8000", "[::1]:5679", "localhost"]
)
def test_the_origin_is_the_host_that_is_called(host: str) -> None:
    ask(guard(), host, [f"http://{host.lower()}"])
    ask(guard(), host, [f"http://{host.lower()}"], site="same-origin")
    for other in ("http://localhost:3000", "http://127.0.0.1", "http://127.0.0.1:8000", "null"):
        assert refusal(guard(), host=host, origin=[other]).code is Code.FORBIDDEN_ORIGIN


@pytest.mark.parametrize(
    "origins",
    [
        ["null"], [""], ["http://localhost:3000"], ["http://localhost"], ["https://127.0.0.1:5679"],
        ["http://evil.example"], ["http://127.0.0.1:5679/"], ["http://127.0.0.1:5679.evil.example"],
        ["http://127.1:5679"], ["file://"], ["chrome-extension://abc"], ["127.0.0.1:5679"],
        ["http://127.0.0.1:5679", "http://127.0.0.1:5679"],
        ["http://127.0.0.1:5679", "http://evil.example"],
        ["http://127.0.0.1:5679 http://evil.example"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("over_unix", [False, True])
def test_foreign_origins(origins: list[str], over_unix: bool) -> None:
    assert refusal(guard(), origin=origins, over_unix=over_unix).code is Code.FORBIDDEN_ORIGIN


def test_the_origin_of_a_configured_name() -> None:
    one = guard(allowed_hosts=["relay.example", "proxy.example:8443"])
    ask(one, "relay.example", ["http://relay.example"])
    ask(one, "relay.example:5679", ["http://relay.example:5679"])
    ask(one, "proxy.example:8443", ["http://proxy.example:8443"])
    for origin in ("http://relay.example:3000", "http://relay.example", "http://proxy.example"):
        error = refusal(one, host="relay.example:5679", origin=[origin])
        assert error.code is Code.FORBIDDEN_ORIGIN


@pytest.mark.parametrize("site", [None, "", "none", "same-origin", "Same-Origin"])
def test_harmless_sec_fetch_site(site: str | None) -> None:
    ask(guard(), site=site)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "CROSS-SITE", "x", "none, cross-site"])
def test_foreign_sec_fetch_site(site: str) -> None:
    assert refusal(guard(), site=site).code is Code.FORBIDDEN_ORIGIN


def test_any_name_will_do_over_a_unix_socket() -> None:
    ask(guard(port=0), "relay", over_unix=True)
    # A page's name is no better for it: a proxy may pass on what a browser was led to.
    error = refusal(guard(), host="evil.example", origin=["http://evil.example"], over_unix=True)
    assert error.code is Code.FORBIDDEN_ORIGIN


def test_the_port_may_come_later() -> None:
    one = guard(port=0)
    one.serve_on(4000)
    ask(one, "127.0.0.1:4000")
    assert one.address == "http://127.0.0.1:4000"


def test_a_token_names_its_caller_and_bounds_what_it_may(tmp_path: Path) -> None:
    file = TokensFile(tmp_path / "tokens.json")
    one = guard(tokens=Tokens(file), own_uid=1000)
    assert one.identify(1000, "ann", [], "admin") == Caller("ann", 1000, SCOPES)
    for uid in (1001, UNKNOWN_UID):
        with pytest.raises(RelayError) as caught:
            one.identify(uid, "ann", [], "sessions:read")
        assert caught.value.code is Code.UNAUTHENTICATED
    reader = [f"Bearer {file.create(['sessions:read'], 'reader', None)}"]
    ruler = [f"bearer  {file.create(['admin'], 'ruler', None)}"]
    assert one.identify(1000, "ann", reader, "admin") == Caller("reader", 1000, ("sessions:read",))
    assert one.identify(1000, None, ruler, "admin") == Caller("ruler", 1000, SCOPES)
    with pytest.raises(RelayError) as caught:
        one.require(one.identify(1000, None, reader, "admin"), "shutdown", "admin")
    assert caught.value.code is Code.INSUFFICIENT_SCOPE
    for given in ([], reader * 2, ["Bearer x"], [reader[0][7:]], [f"Basic {reader[0][7:]}"]):
        with pytest.raises(RelayError) as caught:
            one.identify(1000, None, given, "sessions:read")
        assert caught.value.code is Code.UNAUTHENTICATED
        assert reader[0][7:] not in error_body(caught.value).decode()
    # What needs no scope needs no token.
    assert one.identify(1000, None, [], "").name == "uid:1000"


@pytest.fixture
def accepted() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        yield ours


def test_own_uid_comes_in(accepted: socket.socket) -> None:
    assert guard().admit(accepted) == (os.geteuid(), None)


@pytest.mark.skipif(os.geteuid() != 0, reason="the peer here is root only when the tests are")
def test_root_comes_in_whoever_runs_the_relay(accepted: socket.socket) -> None:
    assert guard(own_uid=12345).admit(accepted) == (0, None)


def test_nobody_at_the_other_end_is_refused() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as lonely:
        uid, reason = guard().admit(lonely)
        assert uid == UNKNOWN_UID
        assert reason is not None
        for open_guard in (guard(check_peers=False), guard(allow_other_users=True)):
            assert open_guard.admit(lonely) == (UNKNOWN_UID, None)


def test_callers() -> None:
    one = guard()
    assert one.identify(1000, None) == one.identify(1000, "")
    assert (one.identify(1000, None).name, one.identify(1000, None).scopes) == ("uid:1000", SCOPES)
    assert one.identify(UNKNOWN_UID, None).name == "unknown"
    assert one.identify(1000, "Agent Ä").name == "Agent Ä"
    assert one.identify(1000, "x" * 100).uid == 1000


@pytest.mark.parametrize("name", ["x" * 101, "a\tb", "a\x7f", "a\udc80", "\u202eevil"])
def test_odd_agents(name: str) -> None:
    with pytest.raises(RelayError) as caught:
        guard().identify(1000, name)
    assert caught.value.code is Code.INVALID_PARAMETER
    assert caught.value.details["errors"][0].field == "X-Agent"
