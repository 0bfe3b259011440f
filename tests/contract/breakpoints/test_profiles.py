"""Breakpoint profiles: kept under a name, applied by the rules of setting breakpoints."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest

from tests.kit.client import Client
from tests.kit.relay import Relay
from tests.kit.source import Source

PROGRAM = """
    def work(n):
        doubled = n * 2  # @inside
        return doubled  # @next

    for n in range(10):
        work(n)
"""
PROFILES = "/breakpoint-profiles"


@pytest.fixture
def client(relay: Client) -> Iterator[Client]:
    yield relay
    for item in relay.get(PROFILES).ok()["items"]:
        relay.delete(f"{PROFILES}/{item['name']}").ok()


def put(client: Client, name: str, breakpoints: object) -> object:
    return client.call("PUT", f"{PROFILES}/{name}", {"breakpoints": breakpoints}).ok()


def test_put_get_list_delete(client: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    given = [
        {"file": str(program), "line": 2, "condition": "n > 3", "enabled": False},
        {"function": "K.m", "log_message": "{self!r:>4} ü"},
    ]
    told = {"name": "checkout-flow", "breakpoints": given}
    assert put(client, "checkout-flow", given) == {**told, "persisted": True}
    assert client.get(f"{PROFILES}/checkout-flow").ok() == told
    put(client, "b", [{"source": {"path": str(program)}, "line": 3}])
    counts = [
        {"name": "b", "breakpoint_count": 1},
        {"name": "checkout-flow", "breakpoint_count": 2},
    ]
    page = {"total": 2, "offset": 0, "limit": 100, "has_more": False}
    assert client.get(PROFILES).ok() == {"items": counts, **page}
    page = {"total": 2, "offset": 0, "limit": 1, "has_more": True}
    assert client.get(PROFILES, limit=1).ok() == {"items": counts[:1], **page}
    assert client.get(PROFILES, limit=1, offset=1).ok()["items"] == counts[1:]
    assert client.get(f"{PROFILES}/b").ok()["breakpoints"] == [{"file": str(program), "line": 3}]
    # Another under that name replaces it.
    put(client, "b", [])
    assert client.get(f"{PROFILES}/b").ok()["breakpoints"] == []
    assert client.delete(f"{PROFILES}/b").ok() == {"id": "b", "deleted": True}
    error = client.get(f"{PROFILES}/checkout-flwo").refused("PROFILE_NOT_FOUND", 404)
    assert error["details"]["closest"] == "checkout-flow"
    assert "checkout-flow" in error["details"]["suggestion"]
    client.delete(f"{PROFILES}/b").refused("PROFILE_NOT_FOUND", 404)


def test_applying_adds(client: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    put(client, "p", [
        {"file": str(program), "line": program["inside"], "condition": "n == 4"},
        {"file": str(program), "line": program["next"], "enabled": False},
    ])  # fmt: skip
    with client.session() as session:
        mine = session.break_at(program, program["inside"])
        told = session.post(f"{PROFILES}/p/apply").ok()
        assert told["persisted"] is True
        first, second = told["breakpoints"]
        assert (first["id"], first["updated"], first["verified"]) == (mine["id"], True, True)
        assert (second["updated"], second["enabled"]) == (False, False)
        session.launch(program)
        assert session.value("n") == "4"
        assert len(session.get("/breakpoints").ok()["breakpoints"]) == 2
        put(client, "empty", [])
        assert session.post(f"{PROFILES}/empty/apply").ok()["breakpoints"] == []
        session.post(f"{PROFILES}/none/apply").refused("PROFILE_NOT_FOUND", 404)


def test_all_or_none(client: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    put(client, "p", [
        {"file": str(program), "line": 2},
        {"file": str(program), "line": 999},
        {"file": str(program), "line": 3, "condition": "n ="},
    ])  # fmt: skip
    with client.session() as session:
        error = session.post(f"{PROFILES}/p/apply").refused("INVALID_REQUEST", 400)
        assert len(error["details"]["errors"]) == 2
        assert session.get("/breakpoints").ok()["breakpoints"] == []


def test_a_relative_file_is_of_the_project_that_applies_it(
    client: Client, source: Callable[..., Source]
) -> None:
    for name in ("one", "two"):
        source(PROGRAM, f"{name}/a.py")
    put(client, "p", [{"file": "a.py", "line": 2}])
    root = source(PROGRAM, "two/b.py").path.parent
    with client.session(project_root=str(root)) as session:
        [told] = session.post(f"{PROFILES}/p/apply").ok()["breakpoints"]
        assert told["source"]["path"] == str(root / "a.py")
    with client.session() as session:
        session.post(f"{PROFILES}/p/apply").refused("INVALID_REQUEST", 400)


@pytest.mark.parametrize(
    "name", ["..", ".hidden", "a%2Fb", "..%2F..%2Fetc", "a%00b", "x" * 65, "%20"]
)
def test_names_are_no_paths(client: Client, shared_relay: Relay, name: str) -> None:
    path = f"{PROFILES}/{name}"
    assert client.call("PUT", path, {"breakpoints": []}).status == 400
    assert client.get(path).status == 400
    assert client.delete(path).status == 400
    assert list((shared_relay.data_dir / "profiles").iterdir()) == []


def test_what_names_no_place_is_refused(client: Client) -> None:
    sent = [{"file": "/a.py", "line": 1}, {"line": 3}, {"file": "/a.py"}, {"lin": 3}]
    body = {"breakpoints": sent[:3]}
    error = client.call("PUT", f"{PROFILES}/p", body).refused("INVALID_REQUEST", 400)
    assert {one["field"] for one in error["details"]["errors"]} >= {"breakpoints[1].source.path"}
    body = {"breakpoints": sent}
    error = client.call("PUT", f"{PROFILES}/p", body).refused("INVALID_REQUEST", 400)
    assert any(one["field"].startswith("breakpoints[3]") for one in error["details"]["errors"])
    client.get(f"{PROFILES}/p").refused("PROFILE_NOT_FOUND", 404)


def test_they_outlive_the_relay_and_damage_to_others(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    for name in ("good", "bad", "shape"):
        put(relay.client, name, [{"function": name}])
    relay.kill()
    folder = relay.data_dir / "profiles"
    (folder / "bad.json").write_bytes(b"\xff{")
    (folder / "shape.json").write_text('{"breakpoints": [{"lin": 3}]}')
    relay.start()
    [item] = relay.client.get(PROFILES).ok()["items"]
    assert item == {"name": "good", "breakpoint_count": 1}
    aside = sorted(path.name.split(".corrupt-")[0] for path in folder.glob("*.corrupt-*"))
    assert aside == ["bad.json", "shape.json"]
    relay.client.get(f"{PROFILES}/bad").refused("PROFILE_NOT_FOUND", 404)


def test_a_disk_that_refuses(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    folder = relay.data_dir / "profiles"
    aside = folder.rename(folder.with_name("profiles-aside"))
    body = {"breakpoints": [{"function": "f"}]}
    assert relay.client.call("PUT", f"{PROFILES}/p", body).ok()["persisted"] is False
    assert relay.client.get(f"{PROFILES}/p").ok()["breakpoints"] == body["breakpoints"]
    aside.rename(folder)
    assert relay.client.call("PUT", f"{PROFILES}/q", body).ok()["persisted"] is True
    relay.stop()
    relay.start()
    assert relay.client.get(PROFILES).ok()["total"] == 2


def test_they_are_bounded_in_number_and_bytes(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    client, folder = relay.client, relay.data_dir / "profiles"
    put(client, "a", [])
    for number in range(999):
        shutil.copy(folder / "a.json", folder / f"p{number}.json")
    body = {"breakpoints": [{"function": "f"}]}
    error = client.call("PUT", f"{PROFILES}/z", body).refused("INVALID_REQUEST", 400)
    assert "/breakpoint-profiles/a" in error["details"]["suggestion"]
    put(client, "a", [{"function": "f"}])  # in the place of one
    client.delete(f"{PROFILES}/a").ok()
    put(client, "z", [])
    large = {"breakpoints": [{"function": "f", "condition": "x" * 65_536}] * 140}
    error = client.call("PUT", f"{PROFILES}/z", large).refused("REQUEST_TOO_LARGE", 413)
    assert "fewer" in error["details"]["suggestion"]
    for number in range(8):
        with open(folder / f"p{number}.json", "ab") as file:
            file.truncate(8 * 1024 * 1024)
    client.call("PUT", f"{PROFILES}/z", body).refused("REQUEST_TOO_LARGE", 413)
