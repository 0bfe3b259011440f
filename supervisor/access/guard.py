"""Decides who may call: by the connection's uid, the request's Host and Origin, and the token.

Every front calls it before anything else, for every verb, route and upgrade. It works on plain
values and knows neither the HTTP library nor any operation.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.refusals import Problem
from debug_relay.protocol.scopes import SCOPES
from debug_relay.protocol.system.peers import AnySocket, comes_from_elsewhere, peer_uid
from debug_relay.protocol.wire.frames import PERSON, Caller
from debug_relay.supervisor.access.listening_address import ListeningAddress
from debug_relay.supervisor.access.tickets import Tickets
from debug_relay.supervisor.access.tokens import Tokens

UNKNOWN_UID: Final = -1
MAX_AGENT_CHARACTERS: Final = 100  # The header X-Agent.
MAX_FRONT_CHARACTERS: Final = 40  # The header X-Human-Front.
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_SHOWN_CHARACTERS: Final = 200  # A refused header or address is shown and logged up to this length.


class PeerCheck(NamedTuple):
    """The user at the other end of a connection, and why the connection is refused, if it is."""

    uid: int  # UNKNOWN_UID if the kernel names none
    refusal: str | None = None


class Guard:
    def __init__(
        self,
        *,
        address: ListeningAddress | None = None,
        port: int = 0,
        allowed_hosts: Iterable[str] = (),
        allowed_uids: Iterable[int] = (),
        allow_other_users: bool = False,
        own_uid: int,
        check_peers: bool = True,
        tokens: Tokens | None = None,
        insecure_no_auth: bool = False,
    ) -> None:
        self._listening = address or ListeningAddress(_LOOPBACK[0])
        configured = {_bracketed(name.strip().lower()) for name in allowed_hosts}
        if not self._listening.is_every_address:
            configured.add(self._listening.reachable_host)
        self._exact = frozenset(name for name in configured if _port_of(name))
        # A name without a port is accepted with any port: an SSH tunnel or a proxy has a port of
        # its own, and a port is no protection against foreign *names* that resolve to us.
        self._names = frozenset({*_LOOPBACK, *(configured - self._exact)})
        self._uids = frozenset((own_uid, 0, *allowed_uids))
        self._own_uid = own_uid
        self._anyone = allow_other_users or not check_peers
        self._tokens = tokens
        self.tickets = Tickets(tokens)
        self._insecure = insecure_no_auth
        self.serve_on(port)

    def serve_on(self, port: int) -> None:
        """Sets the TCP port, which is known only once it is bound; 0 means that there is none."""
        self._port = port

    @property
    def address(self) -> str:
        """The address that suggestions name."""
        host = self._listening.reachable_host
        return f"http://{host}:{self._port}" if self._port else f"http://{_LOOPBACK[1]}"

    def admit(self, sock: AnySocket) -> PeerCheck:
        if not self._listening.is_loopback and comes_from_elsewhere(sock):
            # The kernel knows no user there. Each request needs a token (`identify`).
            return PeerCheck(UNKNOWN_UID)
        uid = peer_uid(sock)
        if self._anyone:
            return PeerCheck(UNKNOWN_UID if uid is None else uid)
        if uid is None:
            return PeerCheck(UNKNOWN_UID, "no process holds the other end")
        if uid not in self._uids:
            return PeerCheck(uid, f"not uid {self._own_uid}, root or in [server] allow_uids")
        return PeerCheck(uid)

    def check_request(
        self,
        host_headers: list[str],
        origin_headers: list[str],
        sec_fetch_site: str | None,
        *,
        over_unix: bool = False,
        authority: str | None = None,
    ) -> None:
        """Refuses a foreign Host or Origin. Over a Unix socket any single Host is accepted, because
        no host name resolves to a file.

        `authority` is the host in the request line, if it has one.
        """
        self._check_host(host_headers, over_unix)
        if authority is not None:
            self._check_host([authority], over_unix)
        self._check_origin(host_headers[0], origin_headers, sec_fetch_site)

    def identify(
        self,
        uid: int,
        x_agent: str | None,
        authorization: Sequence[str] = (),
        scope: str = "",
        front: str | None = None,
        ticketed: str | None = None,
        key: str = "",
    ) -> Caller:
        """The caller of an operation that needs this scope; without a scope no token is needed.

        The token names the caller. If no tokens are configured, X-Agent does, and only our own user
        and root may call; the kernel says who that is. `front` is that of a person (X-Human-Front).
        It grants nothing that other callers do not have: they may take a free lease too.
        `ticketed` is the hash of the token that a ticket stands for (`tickets.py`). `key` is that
        of X-Lease-Key: a lease that was taken with it belongs only to callers that send it.
        """
        token = None
        if self._tokens is not None and scope:
            token = self._tokens.holder(authorization, scope, ticketed)
            if token is None and uid not in (self._own_uid, 0) and not self._insecure:
                raise self._tokens.needed_by(uid, scope)
        name = f"uid:{uid}" if uid != UNKNOWN_UID else "unknown"
        if x_agent:
            example = "reviewer-1, or leave the header out"
            _check_name("X-Agent", x_agent, MAX_AGENT_CHARACTERS, example)
            if x_agent.rstrip().endswith(PERSON.strip()):
                raise _bad_name(
                    "X-Agent", x_agent, f"ends with{PERSON}, as only persons do", example
                )
            name = x_agent
        if front:
            example = "editor; only what a person uses sends this header"
            _check_name("X-Human-Front", front, MAX_FRONT_CHARACTERS, example)
        if token is not None:
            return Caller(token.name, uid, token.allows, front or "", key)
        return Caller(name, uid, SCOPES, front or "", key)

    def shows(self, authorization: Sequence[str], secret: str | None) -> bool:
        """Whether the request's bearer token is this secret."""
        if len(authorization) != 1 or not secret:
            return False
        scheme, _, given = authorization[0].partition(" ")
        sent = given.strip().encode("utf-8", "surrogateescape")
        return scheme.lower() == "bearer" and hmac.compare_digest(sent, secret.encode())

    def require(self, caller: Caller, operation: str, scope: str) -> None:
        if scope and scope not in caller.scopes and self._tokens is not None:
            raise self._tokens.lacking(operation, scope, caller.scopes)

    def _check_host(self, headers: list[str], over_unix: bool) -> None:
        if len(headers) != 1 or not headers[0]:
            found = "no Host header" if not any(headers) else f"{len(headers)} Host headers"
            raise RelayError(
                Code.FORBIDDEN_HOST,
                f"The request has {found}; exactly one is needed.",
                f"Call the relay at {self.address} and let the client set Host.",
                host=[_shown(header) for header in headers[:5]],
            )
        if over_unix or self._is_ours(headers[0].lower()):
            return
        host = _shown(headers[0])
        raise RelayError(
            Code.FORBIDDEN_HOST,
            f"The Host header names {host}, which is not an address of this relay.",
            f"Call the relay at {self.address}, or list the name in [server] allow_hosts.",
            host=host,
            allowed=sorted(self._exact | self._names),
        )

    def _is_ours(self, host: str) -> bool:
        # We compare texts and resolve nothing, so an odd spelling of a loopback address is refused.
        if host in self._exact or host in self._names:
            return True
        port = _port_of(host)
        return bool(port) and host[: -len(port) - 1] in self._names

    def _check_origin(self, host: str, headers: list[str], sec_fetch_site: str | None) -> None:
        """Accepts only a page that was loaded from the Host that it calls. A page from another port
        of this machine is another program's.
        """
        own = self._origins(host.lower()) if headers else set()
        if headers and (len(headers) > 1 or headers[0].lower() not in own):
            origin = ", ".join(_shown(header) for header in headers[:5])
            self._refuse_page(f"The request comes from a web page of {origin}.", origin=origin)
        site = (sec_fetch_site or "none").strip().lower()
        if site not in ("none", "same-origin"):
            site = _shown(site)
            self._refuse_page(f"The request comes from a {site} web page.", sec_fetch_site=site)

    def _origins(self, host: str) -> set[str]:
        """The origins of pages that were loaded from this Host."""
        if not self._is_ours(host):
            return set()
        if host.removesuffix(f":{_port_of(host)}") in _LOOPBACK:
            return {f"http://{host}"}
        return {f"http://{host}", f"https://{host}"}  # A proxy in front of the relay speaks TLS.

    def _refuse_page(self, message: str, **details: str) -> None:
        raise RelayError(
            Code.FORBIDDEN_ORIGIN,
            f"{message} Web pages may not drive the relay.",
            f"Call {self.address} from a program, without Origin and Sec-Fetch-Site headers.",
            **details,
        )


def _check_name(header: str, name: str, most: int, example: str) -> None:
    if len(name) <= most and name.isprintable():
        return
    problem = f"must be at most {most} printable characters"
    raise _bad_name(header, name, f"{problem}; it has {len(name)}", example)


def _bad_name(header: str, name: str, problem: str, example: str) -> RelayError:
    return RelayError(
        Code.INVALID_PARAMETER,
        f"The header {header} {problem}.",
        f"Send a short name, for example {header}: {example}.",
        errors=[Problem(header, problem, name)],
    )


def lease_key(header: str | None) -> str:
    """The hash of the header X-Lease-Key; nothing else keeps the key itself."""
    return hashlib.sha256(header.encode("utf-8", "surrogateescape")).hexdigest() if header else ""


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _port_of(host: str) -> str:
    """The digits behind the last colon outside brackets: `[::1]` has no port."""
    name, colon, port = host.rpartition(":")
    is_port = colon and name and 0 < len(port) <= 5 and port.isascii() and port.isdigit()
    return port if is_port else ""


def _bracketed(name: str) -> str:
    """An IPv6 address in brackets, as it is in a Host header; people configure it without."""
    return f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name
