"""Finds the relay that a command calls, the token to send, and the key of a person's leases.

The order is: `--url`, `OPENCODE_DEBUG_URL`, the `relay.json` of the data directory, and if a relay
holds that directory and its disk has no room for the file, where that process listens. The data
directory is `--data-dir`, or what the environment says, or `~/.opencode-debugger`.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from debug_relay.protocol.version import API_PREFIX

URL_VARIABLE = "OPENCODE_DEBUG_URL"
TOKEN_VARIABLE = "OPENCODE_DEBUG_TOKEN"
_DATA_DIR_VARIABLES = ("OPENCODE_DEBUG_SERVER__DATA_DIR", "OPENCODE_DEBUG_DATA_DIR")
_DATA_DIR = "~/.opencode-debugger"
_PORT = "5679"
_LARGEST_FILE_BYTES = 65536  # A `relay.json` or a file with a token.
_LONGEST_KEY = 200  # Characters of the file `lease.key`; ours has 64.
_FORMS = "http://127.0.0.1:5679, https://HOST, or unix:///path/to/relay.sock"


class Misused(Exception):
    """The command line or the environment cannot be understood: exit code 2."""


class NoRelay(Exception):
    """No relay answers: what was found, and how to start one."""


class Address(NamedTuple):
    """The place where a relay listens, and the setting that named it."""

    scheme: str  # http, https or unix
    host: str
    port: int
    path: str  # the prefix of the API; with `unix`, the same on the socket
    socket: str
    origin: str

    @property
    def shown(self) -> str:
        if self.scheme == "unix":
            return f"unix://{self.socket}"
        return f"{self.scheme}://{self.host}:{self.port}"


def data_directory(given: str | None) -> str:
    """The data directory, as `serve` chooses it without a configuration file."""
    named = given or next((v for n in _DATA_DIR_VARIABLES if (v := os.environ.get(n))), _DATA_DIR)
    return os.path.abspath(os.path.expanduser(named))


def is_named(url: str | None, data_dir: str | None) -> bool:
    """Whether an address names the relay: then it may be elsewhere, and is not ours to start."""
    return url is not None or bool(data_dir is None and os.environ.get(URL_VARIABLE))


def find(url: str | None, data_dir: str | None) -> Address:
    """The relay's address; raises NoRelay if nothing names one."""
    if url is not None:  # an empty one is a mistake, such as a variable that is not set
        return parse(url, "--url")
    if data_dir is None and (from_environment := os.environ.get(URL_VARIABLE)):
        return parse(from_environment, URL_VARIABLE)
    folder = data_directory(data_dir)
    path = os.path.join(folder, "relay.json")
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read(_LARGEST_FILE_BYTES))
        return parse(str(found["url"]), path)
    except (FileNotFoundError, NotADirectoryError):
        return _of_holder(folder, path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NoRelay(f"{path} cannot be read: {error}") from None


def _of_holder(folder: str, path: str) -> Address:
    """The address of the relay that holds the data directory and could not write `path`."""
    from debug_relay.supervisor.cli.client import lock_holder

    pid = lock_holder.holder(folder)
    if pid is None:
        raise NoRelay(f"no relay is running: there is no {path}")
    url = lock_holder.address_of(pid)
    if url is None:
        raise NoRelay(
            f"the relay with pid {pid} could not write {path}, and where it listens cannot be read "
            f"in /proc/{pid}: name it with --url"
        )
    return parse(url, f"pid {pid}, which could not write {path}")


def parse(url: str, origin: str) -> Address:
    """The parts of an address that a person may have written without scheme or path."""
    url = url.strip()
    if url.startswith("unix:"):
        socket = os.path.expanduser(url[5:].removeprefix("//"))
        if not socket.startswith("/"):
            raise Misused(f"{origin} = {url!r} is no address; accepted: {_FORMS}")
        return Address("unix", "localhost", 0, API_PREFIX, socket, origin)
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
        raise Misused(f"{origin} = {url!r} is no address; accepted: {_FORMS}")
    usual = 443 if parts.scheme == "https" else int(_PORT)
    path = parts.path.rstrip("/") or API_PREFIX
    return Address(parts.scheme, parts.hostname, port or usual, path, "", origin)


def token(file: str | None) -> str | None:
    """The token of `--token-file`, else of the environment."""
    if file is None:
        return os.environ.get(TOKEN_VARIABLE, "").strip() or None
    try:
        with open(os.path.expanduser(file), encoding="utf-8") as opened:
            text = opened.read(_LARGEST_FILE_BYTES).strip()
    except (OSError, ValueError) as error:
        raise Misused(f"--token-file {file} cannot be read: {error}") from None
    if not text.isprintable() or not text:
        raise Misused(f"--token-file {file} holds no token; it is one line")
    return text


def lease_key(data_dir: str | None) -> str | None:
    """The key to which the leases of this person's commands belong; None if none can be kept.

    The first command on a terminal makes it. It is in a file of the person's, and not in a command
    or a reply, so that no other caller has it unintentionally.
    """
    path = os.path.join(data_directory(data_dir), "lease.key")
    with suppress(OSError, ValueError):
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            _make_key(path)
        with open(path, encoding="ascii") as file:
            return file.read(_LONGEST_KEY) or None
    return None


def _make_key(path: str) -> None:
    """Make the file whole: another command may read it at any moment."""
    # A relay removes files of this name that a killed command has left.
    unfinished = os.path.join(os.path.dirname(path), f".lease.key.{os.getpid()}.unfinished")
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(os.urandom(32).hex())
    try:
        with suppress(FileExistsError):  # another command was quicker
            os.link(unfinished, path)
    finally:
        os.unlink(unfinished)
