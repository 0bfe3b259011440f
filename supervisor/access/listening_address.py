"""Examines the address that the relay listens on: whether it is loopback, and what else it needs.

On loopback the kernel names the user behind each connection. Beyond loopback it names nobody, so
the relay does not start there without a token, unless the operator says so expressly.
"""

from __future__ import annotations

import ipaddress

from debug_relay.supervisor.access.tokens import TokensFile
from debug_relay.supervisor.setup_error import SetupError


class ListeningAddress:
    def __init__(self, host: str) -> None:
        self.host = host.strip("[]").lower()
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            # A name other than `localhost` may mean any address.
            self.is_loopback = self.host == "localhost"
            self.is_every_address = False
        else:
            self.is_loopback = address.is_loopback
            self.is_every_address = address.is_unspecified

    @property
    def reachable_host(self) -> str:
        """The host part of a URL by which callers on this machine reach the relay."""
        if self.is_every_address:
            return "[::1]" if ":" in self.host else "127.0.0.1"
        return f"[{self.host}]" if ":" in self.host else self.host


def check_open_address(
    address: ListeningAddress, tokens: TokensFile, allow_hosts: list[str], insecure_no_auth: bool
) -> list[str]:
    """The warnings with which a relay listens here. Raises SetupError if it needs a token first."""
    if address.is_loopback:
        return []
    usable = sum(not token.is_expired for token in tokens.read())
    if not usable and not insecure_no_auth:
        create = tokens.command("create", "--scope", "sessions:read,sessions:write,artifacts:read")
        raise SetupError(
            f"The relay does not listen on {address.host} without a token: whoever reaches it runs "
            "code as this user.",
            f"Create a token first:  {create}  Or listen on 127.0.0.1 and connect through an SSH "
            "tunnel. --insecure-no-auth lets in everybody who reaches the address.",
        )
    where = "every address of this machine" if address.is_every_address else address.host
    warnings = [
        f"the relay listens on {where}, beyond loopback: whoever reaches it "
        + (
            f"and has one of {usable} tokens runs code as this user"
            if usable
            else "runs code as this user, because --insecure-no-auth asks for no token"
        ),
        "requests and tokens travel unencrypted: put a proxy with TLS in front of the relay",
    ]
    if address.is_every_address and not allow_hosts:
        warnings.append(
            "allow_hosts is empty, so requests from other machines are refused by their Host: "
            "list the names and addresses by which they call the relay"
        )
    return warnings
