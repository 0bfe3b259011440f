"""A relay beyond loopback: nobody comes in without a token, and a proxy brings TLS."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit.client import Client
from tests.kit.listening import free_port
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source
from tests.kit.tokens import token_command
from tests.kit.wire import Wire
from tests.meta.documents import block

NOBODY = 65534
NAME = "debug.example"
_PLACES = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"
NGINX, CADDY = (shutil.which(name, path=_PLACES) for name in ("nginx", "caddy"))
PROXY_USER = "www-data"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a second user")


def own_address() -> str:
    """An address of this machine that is not loopback."""
    for rows in psutil.net_if_addrs().values():
        for row in rows:
            if row.family == socket.AF_INET and not row.address.startswith("127."):
                return row.address
    pytest.skip("this machine has loopback addresses only")


class OpenRelay:
    """A relay on every address of this machine, and its tokens."""

    def __init__(self, folder: Path) -> None:
        self.tokens_file = folder / "tokens.json"
        self.bearer = f"Bearer {self.token('--scope', 'admin', '--name', 'boss')}"
        # The guide's settings for a proxy; where no test runs one, its user may not exist.
        proxy = [pwd.getpwnam(PROXY_USER).pw_uid] if os.geteuid() == 0 and (NGINX or CADDY) else []
        written = block("behind-a-proxy")
        config = folder / "relay.toml"
        config.write_text(
            written.replace(f'"{NAME}"', f'"{own_address()}", "{NAME}"').replace("[33]", str(proxy))
        )
        assert config.read_text().count(own_address()) == written.count("[33]") == 1
        self.relay = Relay(
            folder / "data",
            *("--host", "0.0.0.0", "--config", str(config)),
            env={"OPENCODE_DEBUG_AUTH__TOKENS_FILE": str(self.tokens_file)},
        ).start()
        self.port = self.relay.client.port
        # As callers on other machines have it.
        self.client = Client(f"http://{own_address()}:{self.port}/api/v1")

    def token(self, *words: str) -> str:
        return token_command("create", *words, "--tokens-file", str(self.tokens_file)).strip()

    def allowed(self, **headers: str) -> Client:
        return self.client.called(Authorization=self.bearer, **headers)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenRelay]:
    one = OpenRelay(tmp_path_factory.mktemp("open"))
    yield one
    assert one.relay.stop() == 0


def as_nobody(url: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["curl", "-sS", "-m", "10", *flags, url],
        user=NOBODY, cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_it_warns_and_names_an_address_that_works(opened: OpenRelay) -> None:
    assert opened.relay.url.startswith("http://127.0.0.1:")
    named = json.loads((opened.relay.data_dir / "relay.json").read_text())
    assert named["url"] == opened.relay.url
    said = opened.relay.stderr()
    assert "listens on every address of this machine, beyond loopback" in said
    assert "has one of 1 tokens" in said
    assert "unencrypted" in said
    assert "allow_hosts is empty" not in said


def test_each_request_from_elsewhere_needs_its_token(
    opened: OpenRelay, source: Callable[..., Source]
) -> None:
    client = opened.client
    assert client.get("/health").ok()["status"] == "healthy"
    weak = opened.token("--scope", "artifacts:read")
    wire = Wire(client)
    good = f"Authorization: {opened.bearer}"
    tried = 0
    for host, headers, status in [
        *((None, sent, 401) for sent in (
            [], ["Authorization: Bearer nonsense"], ["Authorization: Basic Ym9zcw=="], [good, good]
        )),
        (None, [f"Authorization: Bearer {weak}"], 403),
        *((host, [good], 403) for host in (
            "evil.example", f"evil.{NAME}", "0.0.0.0", f"{NAME}.evil.example", "127.0.0.2", "0",
        )),
        *((NAME, [good, f"Origin: {origin}"], 403) for origin in (
            "http://evil.example", f"https://evil.{NAME}", "null", f"https://{NAME}:444",
            f"ftp://{NAME}", f"http://{own_address()}",
        )),
        ("localhost", [good, "Origin: https://localhost"], 403),
        (NAME, [good, "Sec-Fetch-Site: cross-site"], 403),
    ]:  # fmt: skip
        answer = wire.ask("GET /api/v1/sessions", *headers, host=host)
        assert answer.status == status, (host, headers, answer)
        tried += 1
    print(f"{tried} attacks from elsewhere, accepted 0")
    for origin in (f"http://{NAME}", f"https://{NAME}"):
        assert wire.ask("GET /api/v1/sessions", good, f"Origin: {origin}", host=NAME).status == 200
    with opened.allowed().session() as session:
        assert session.launch(source("print('far')"))["exit_code"] == 0
    audit = opened.relay.data_dir / "logs" / "audit.log"
    eventually(lambda: '"operation":"launch"' in audit.read_text())
    [line] = [json.loads(one) for one in audit.read_text().splitlines() if '"launch"' in one]
    assert (line["caller"], line["uid"], line["address"]) == ("boss", -1, own_address())
    refused = [
        json.loads(one) for one in audit.read_text().splitlines() if "request.refused" in one
    ]
    assert {one["address"] for one in refused} == {own_address()}


@needs_root
def test_users_are_told_apart_over_loopback_alone(opened: OpenRelay) -> None:
    bearer = ("-H", f"Authorization: {opened.bearer}")
    over_loopback = as_nobody(f"http://127.0.0.1:{opened.port}/api/v1/sessions", *bearer)
    assert (over_loopback.stdout, over_loopback.returncode != 0) == ("", True)
    url = f"http://{own_address()}:{opened.port}/api/v1/sessions"
    assert json.loads(as_nobody(url, *bearer).stdout)["success"] is True
    assert json.loads(as_nobody(url).stdout)["error"]["code"] == "UNAUTHENTICATED"


def test_without_its_last_token_it_lets_nobody_in(
    own_relay: Callable[..., Relay], tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens.json"
    place = ("--tokens-file", str(tokens))
    token = token_command("create", "--scope", "admin", "--name", "last", *place).strip()
    relay = own_relay(
        *("--host", own_address()), env={"OPENCODE_DEBUG_AUTH__TOKENS_FILE": str(tokens)}
    )
    assert relay.client.host == own_address()  # accepted as a Host without being configured
    relay.client.called(Authorization=f"Bearer {token}").get("/sessions").ok()
    token_command("revoke", "last", *place)
    relay.client.called(Authorization=f"Bearer {token}").get("/sessions").refused(
        "UNAUTHENTICATED", 401
    )
    relay.client.get("/sessions").refused("UNAUTHENTICATED", 401)
    relay.stop()
    # It does not start again like this, nor with an expired one.
    token_command("create", "--scope", "admin", "--expires", "1s", *place)
    eventually(lambda: "expired" in token_command("list", *place))
    for flags, code in (((), 1), (("--insecure-no-auth",), 0)):
        command = [
            *(sys.executable, "-m", "debug_relay.supervisor", "serve", "--host", own_address()),
            *("--port", "0", "--data-dir", str(tmp_path / "another"), *flags),
        ]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "OPENCODE_DEBUG_AUTH__TOKENS_FILE": str(tokens)},
        )  # fmt: skip
        assert process.stdout is not None
        listens = process.stdout.readline()
        if flags:
            assert own_address() in listens
            process.send_signal(signal.SIGTERM)
        else:
            assert listens == ""
        _, said = process.communicate(timeout=20)
        assert process.returncode == code, said
        assert "whoever reaches it runs code as this user" in said
        assert ("token create" in said) is (not flags)


def test_another_loopback_address_is_as_good(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay("--host", "127.0.0.2")
    assert relay.url.startswith("http://127.0.0.2:")
    relay.client.get("/sessions").ok()  # needs no token: the kernel knows the user
    assert "beyond loopback" not in relay.stderr()
    assert Wire(relay.client).ask("GET /api/v1/health", host="127.0.0.3").status == 403
    if os.geteuid() == 0:
        assert as_nobody(f"{relay.url}/health").returncode != 0


# -- behind a proxy


@pytest.fixture
def nginx(opened: OpenRelay, tmp_path: Path) -> Iterator[int]:
    """nginx with the configuration of the operators' guide; its port."""
    if NGINX is None:
        pytest.skip("nginx is not installed")
    port = free_port()
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        capture_output=True,
        check=True,
    )
    site = block("nginx")
    for written, used in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/ssl/certs/debug.example.pem", str(certificate)),
        ("/etc/ssl/private/debug.example.key", str(key)),
        ("http://127.0.0.1:5679", f"http://127.0.0.1:{opened.port}"),
    ):
        assert written in site
        site = site.replace(written, used)
    user = f"user {PROXY_USER};" if os.geteuid() == 0 else ""
    places = "".join(
        f"{name}_temp_path {tmp_path}/{name};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = tmp_path / "nginx.conf"
    configuration.write_text(
        f"{user} daemon off; worker_processes 1; pid {tmp_path}/nginx.pid;\n"
        f"error_log {tmp_path}/error.log; events {{}}\n"
        f"http {{ access_log off;\n{places}{site} }}\n"
    )
    os.chmod(tmp_path, 0o755)
    process = subprocess.Popen([NGINX, "-c", str(configuration), "-p", str(tmp_path)])
    try:
        eventually(lambda: (tmp_path / "nginx.pid").exists() or process.poll() is not None)
        assert process.poll() is None
        yield port
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
def caddy(opened: OpenRelay) -> Iterator[int]:
    """Caddy with the configuration of the operators' guide, and a certificate of its own
    making; its port.
    """
    if CADDY is None:
        pytest.skip("caddy is not installed")
    port = free_port()
    site = block("caddy")
    assert "127.0.0.1:5679" in site
    site = site.replace("127.0.0.1:5679", f"127.0.0.1:{opened.port}")
    settings = (
        f"admin off\nlocal_certs\nskip_install_trust\ndefault_bind 127.0.0.1\n"
        f"auto_https disable_redirects\nhttps_port {port}\nhttp_port {free_port()}\n"
    )
    # It runs as a user of its own, who may not enter pytest's folders.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "Caddyfile"
        file.write_text(f"{{\n{settings}}}\n{site}")
        user = PROXY_USER if os.geteuid() == 0 else None
        if user is not None:
            shutil.chown(folder, user)
        process = subprocess.Popen(
            [CADDY, "run", "--config", str(file), "--adapter", "caddyfile"],
            cwd=folder,
            env={**os.environ, "HOME": folder, "XDG_DATA_HOME": folder, "XDG_CONFIG_HOME": folder},
            stderr=subprocess.DEVNULL,
            user=user,
        )
        try:
            eventually(lambda: answers_tls(port) or process.poll() is not None)
            assert process.poll() is None
            yield port
        finally:
            process.terminate()
            process.wait(20)


def answers_tls(port: int) -> bool:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as plain:
            trusting.wrap_socket(plain, server_hostname=NAME).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("proxy", ["nginx", "caddy"])
def test_the_documented_proxy_brings_tls(
    proxy: str, request: pytest.FixtureRequest, opened: OpenRelay, source: Callable[..., Source]
) -> None:
    port = request.getfixturevalue(proxy)
    resolve = ("--resolve", f"{NAME}:{port}:127.0.0.1")
    base = f"https://{NAME}:{port}/api/v1"
    bearer = ("-H", f"Authorization: {opened.bearer}")

    def curl(path: str, *flags: str) -> Any:
        done = subprocess.run(
            ["curl", "-sSkN", "-m", "20", *resolve, *flags, base + path],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return json.loads(done.stdout)

    assert curl("/sessions", *bearer)["success"] is True
    assert curl("/sessions")["error"]["code"] == "UNAUTHENTICATED"
    own_page = ("-H", f"Origin: https://{NAME}", "-H", f"Host: {NAME}")
    assert curl("/sessions", *bearer, *own_page)["success"] is True
    foreign = ("-H", "Origin: https://evil.example")
    assert curl("/sessions", *bearer, *foreign)["error"]["code"] == "FORBIDDEN_ORIGIN"
    upgrade = ("-H", "Connection: Upgrade", "-H", "Upgrade: websocket", "--http1.1",
               "-H", "Sec-WebSocket-Version: 13",
               "-H", f"Sec-WebSocket-Key: {'A' * 22}==")  # fmt: skip
    with opened.allowed().session() as session:
        session.launch(source("print('through')"), wait=20)
        for path, flags in (("logs", upgrade), ("output/stream", ())):
            address = f"{base}/sessions/{session.id}/{path}"
            with subprocess.Popen(
                ["curl", "-sSkN", "-m", "20", *resolve, *bearer, *flags, address],
                stdout=subprocess.PIPE,
            ) as stream:
                assert stream.stdout is not None
                arrived = b""
                while b"through" not in arrived and (more := stream.stdout.read1(65536)):
                    arrived += more
                stream.terminate()
            assert b"through" in arrived, arrived
