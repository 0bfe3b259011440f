"""Bearer tokens: the file with their hashes, and the check of a request's token.

The file holds only SHA-256 sums: a token is 256 random bits, so no slower hash is needed. If the
file exists and is unusable in any way, every request is refused; only a missing file, or one
without tokens, means that no token is needed. This module knows one header of HTTP and nothing else
of it.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import secrets
import shlex
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import msgspec
from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.scopes import SCOPES
from debug_relay.protocol.system import json_file
from debug_relay.protocol.system.files import FileRefused, open_regular, require_regular
from debug_relay.protocol.wire.envelope import timestamp, timestamp_of
from debug_relay.supervisor.config.settings import Settings
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.setup_error import SetupError

_FILE_NAME: Final = "tokens.json"
_PREFIX: Final = "odr_"  # lets scanners for leaked secrets recognise a token
_ADMIN: Final = "admin"
_LARGEST_BYTES: Final = 16 * 1024 * 1024  # The tokens file.
_log: Final = Log(__name__)


class Token(Struct, frozen=True, kw_only=True):
    """One token in the file; the token itself is kept nowhere."""

    name: str
    sha256: str
    scopes: list[str]
    created_at: str
    expires: float | None = None  # seconds since the epoch

    @property
    def expires_at(self) -> str | None:
        return None if self.expires is None else timestamp_of(self.expires)

    @property
    def is_expired(self) -> bool:
        return self.expires is not None and time.time() >= self.expires

    @property
    def allows(self) -> tuple[str, ...]:
        """The token's scopes and those that they imply."""
        return SCOPES if _ADMIN in self.scopes else tuple(self.scopes)


class _Contents(Struct, frozen=True):
    tokens: list[Token] = []


class _Seen(NamedTuple):
    """A version of the file: every change replaces the file by a new one."""

    inode: int
    size: int
    written: int
    changed: int


_UNSEEN: Final = _Seen(0, 0, 0, 0)


def _seen(about: os.stat_result) -> _Seen:
    return _Seen(about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)


class TokensFile:
    """The file: the command line reads and changes it, the relay reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Token]:
        """Raises SetupError if the file cannot be trusted or understood."""
        try:
            return self._decoded(self._content())
        except FileNotFoundError:
            return []
        except FileRefused as error:
            self._unusable(f"it {error.words}", "Move it away")
        except OSError as error:
            self._unusable(error.strerror or str(error), "Make it readable for the relay's user")
        except msgspec.MsgspecError:
            # The exception's text would show a line of the file.
            self._unusable("it is not as the relay writes it", "Restore or remove it")

    def _content(self) -> bytes:
        with open(self.path, "rb", opener=open_regular) as file:
            about = os.fstat(file.fileno())
            require_regular(self.path, about, _LARGEST_BYTES)
            if about.st_uid not in (0, os.geteuid()):
                self._unusable(f"it belongs to uid {about.st_uid}", "Restore or remove it")
            if about.st_mode & 0o022:
                mode = stat.S_IMODE(about.st_mode)
                mend = shlex.join(["chmod", "600", str(self.path)])
                self._unusable(
                    f"others may write to it (mode {mode:04o})",
                    f"Check its contents, then restrict access:  {mend}",
                )
            return file.read(_LARGEST_BYTES)

    def _decoded(self, content: bytes) -> list[Token]:
        tokens = msgspec.json.decode(content, type=_Contents).tokens
        for token in tokens:
            if unknown := set(token.scopes) - set(SCOPES):
                self._unusable(f"it has unknown scopes {sorted(unknown)}", "Restore or remove it")
        return tokens

    def _unusable(self, reason: str, suggestion: str) -> NoReturn:
        raise SetupError(f"The tokens file {self.path} cannot be used: {reason}.", f"{suggestion}.")

    def create(self, scopes: list[str], name: str | None, expires: float | None) -> str:
        """Creates a token and returns it: it cannot be read again later."""
        text = _PREFIX + secrets.token_urlsafe(32)
        with self._changing() as tokens:
            names = {token.name for token in tokens}
            if name in names:
                raise SetupError(
                    f"There is a token {name} already.",
                    f"Choose another name, or revoke that one: {self.command('revoke', name)}",
                )
            while name is None or name in names:
                name = f"token-{secrets.token_hex(3)}"
            tokens.append(
                Token(
                    name=name,
                    sha256=_hash(text),
                    scopes=[scope for scope in SCOPES if scope in scopes],
                    created_at=timestamp(),
                    expires=expires,
                )
            )
        return text

    def revoke(self, name: str) -> int:
        """Removes a token; returns how many are left."""
        with self._changing() as tokens:
            names = [token.name for token in tokens]
            if name not in names:
                there = ", ".join(names) or "none"
                raise SetupError(f"There is no token {name}.", f"Name one of these: {there}.")
            tokens[:] = [token for token in tokens if token.name != name]
        return len(tokens)

    def command(self, *words: str) -> str:
        """The shell command that changes this file."""
        words = ("debug-relay", "token", *words, "--tokens-file", str(self.path))
        return shlex.join(words)

    @contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        """The list of tokens, which the block changes; then the file is replaced. A lock makes
        concurrent changes wait for each other.
        """
        target = Path(os.path.realpath(self.path))  # a symbolic link stays; its target is replaced
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # The lock has a file of its own: the directory may be the data directory, which a
            # relay has locked.
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(target.with_name(f".{target.name}.lock"), flags, 0o600)
        except OSError as error:
            self._unusable(error.strerror or str(error), "Choose another with --tokens-file")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = self.read()
            yield tokens
            json_file.write(target, _Contents(tokens))
        except OSError as error:
            self._unusable(error.strerror or str(error), "Make room, or choose another place")
        finally:
            os.close(lock)


class Tokens:
    """Checks requests against the file as it is now: a change counts at once."""

    def __init__(self, file: TokensFile) -> None:
        self._file = file
        self._seen: _Seen | None = None
        self._tokens: list[Token] = []
        self._trouble: SetupError | None = None

    def hash_of(self, name: str) -> str | None:
        """The hash of the token with this name, which a ticket stands for."""
        self._look()
        return next((token.sha256 for token in self._tokens if token.name == name), None)

    def holder(
        self, authorization: Sequence[str], scope: str, ticketed: str | None = None
    ) -> Token | None:
        """The request's token; None if no tokens are configured. `scope` is for the message.

        `ticketed` is the hash of the token that the request's ticket stands for.
        """
        self._look()
        if self._trouble is not None:
            raise RelayError(Code.UNAUTHENTICATED, self._trouble.message, self._trouble.suggestion)
        if not self._tokens:
            return None
        if ticketed is not None and not authorization:
            return self._usable(self._with_hash(ticketed), scope)
        if len(authorization) != 1:
            count = f"{len(authorization)} Authorization headers" if authorization else "No token"
            self._refuse(f"{count} came with the request; this relay needs one token.", scope)
        scheme, _, given = authorization[0].partition(" ")
        # The message does not repeat the header: it may be a token without `Bearer`.
        if scheme.lower() != "bearer" or not given.strip():
            self._refuse("The header Authorization is not of the form Bearer TOKEN.", scope)
        return self._usable(self._with_hash(_hash(given.strip())), scope)

    def _usable(self, token: Token | None, scope: str) -> Token:
        if token is None:
            self._refuse("The token is unknown, or it has been revoked.", scope)
        if token.is_expired:
            self._refuse(f"The token {token.name} expired at {token.expires_at}.", scope)
        return token

    def _with_hash(self, given: str) -> Token | None:
        found = None
        for token in self._tokens:  # we compare with all of them, so the time reveals nothing
            if hmac.compare_digest(token.sha256.encode(), given.encode()):
                found = token
        return found

    def _look(self) -> None:
        try:
            seen = _seen(os.stat(self._file.path))
        except FileNotFoundError:
            seen = None
        except OSError:
            seen = _UNSEEN  # `read` says why
        # We read again after a failure: descriptors may have been short.
        if seen == self._seen and self._trouble is None:
            return
        self._seen, before = seen, self._trouble
        try:
            self._tokens, self._trouble = self._file.read(), None
        except SetupError as error:
            self._tokens, self._trouble = [], error
            if before is None or before.message != error.message:
                _log.error("tokens.unusable", reason=error.message)
        else:
            _log.info("tokens.read", path=self._file.path, count=len(self._tokens))

    def needed_by(self, uid: int, scope: str) -> RelayError:
        """The refusal of another user's request while there are no tokens."""
        who = "a user whom the kernel does not name" if uid < 0 else f"uid {uid}"
        return self._refusal(f"This relay needs a token from {who}, and has none yet.", scope)

    def _refuse(self, message: str, scope: str) -> NoReturn:
        raise self._refusal(message, scope)

    def _refusal(self, message: str, scope: str) -> RelayError:
        create = self._file.command("create", "--scope", scope)
        return RelayError(
            Code.UNAUTHENTICATED,
            message,
            f"Send the header Authorization: Bearer TOKEN; this prints a TOKEN: {create}",
            scope=scope,
        )

    def lacking(self, operation: str, scope: str, scopes: tuple[str, ...]) -> RelayError:
        """The refusal of a request whose token lacks this scope."""
        wanted = [word for name in (*scopes, scope) for word in ("--scope", name)]
        return RelayError(
            Code.INSUFFICIENT_SCOPE,
            f"{operation} needs the scope {scope}; this token has {', '.join(scopes) or 'none'}.",
            f"Use a token that has it; this prints one: {self._file.command('create', *wanted)}",
            scope=scope,
            scopes=list(scopes),
        )


def tokens_file(settings: Settings) -> TokensFile:
    configured = settings.auth.tokens_file
    return TokensFile(Path(configured or Path(settings.server.data_dir, _FILE_NAME)))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
