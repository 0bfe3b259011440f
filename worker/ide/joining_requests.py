"""DAP's requests with which an IDE joins the session and leaves it."""

from __future__ import annotations

import asyncio
from typing import Final

from debug_relay.protocol.state import LIVE
from debug_relay.worker.ide import arguments as a
from debug_relay.worker.ide import event_messages
from debug_relay.worker.ide.joined_ide import JoinedIde
from debug_relay.worker.ide.path_mappings import PathMappings
from debug_relay.worker.ide.shapes import Body

# An IDE that does not send `configurationDone` is shown the program when it has sent no request for
# this long.
_CONFIGURED_SECONDS: Final = 1.0


async def attach(ide: JoinedIde, arguments: a.Attach) -> Body:
    """Join the session; `launch` means the same, because the program is the session's."""
    ide.paths = PathMappings(arguments.path_mappings or ())
    if not ide.has_attached:
        ide.has_attached = True
        ide.session.joining.clients.append(ide.name)
        _journal(ide, f"{ide.name} has joined")
        _configure_when_quiet(ide)
    return None


def _configure_when_quiet(ide: JoinedIde) -> None:
    loop = asyncio.get_running_loop()
    if ide.is_configured or ide.left.is_set():
        return
    if loop.time() - ide.asked_at >= _CONFIGURED_SECONDS:
        _configured(ide)
    else:
        loop.call_at(ide.asked_at + _CONFIGURED_SECONDS, _configure_when_quiet, ide)


async def configuration_done(ide: JoinedIde, arguments: a.Arguments) -> Body:
    ide.answer()
    _configured(ide)
    return None


def _configured(ide: JoinedIde) -> None:
    """Show the present stop. Nothing is resumed, and nothing is stopped."""
    if not ide.is_configured and not ide.left.is_set():
        ide.is_configured = True
        event_messages.present(ide)


async def disconnect(ide: JoinedIde, arguments: a.Disconnect) -> Body:
    """Leave; the program stays as it is, unless it is to end."""
    try:
        if arguments.terminate_debuggee:
            await _end(ide)
        ide.answer()
    finally:
        ide.left.set()
    return None


async def terminate(ide: JoinedIde, arguments: a.Arguments) -> Body:
    await _end(ide)
    return None


async def _end(ide: JoinedIde) -> None:
    """End a launched program; detach from an attached one, which belongs to another owner."""
    session = ide.session
    if session.lifecycle.state in LIVE:
        await ide.ask("detach" if session.debuggee.attached else "terminate")


def _journal(ide: JoinedIde, message: str) -> None:
    session = ide.session
    body = {"status": session.lifecycle.state, "message": message, "caller": ide.name}
    session.log.journal("session", body)
    session.publication.changed()


def left(ide: JoinedIde) -> None:
    if ide.has_attached:
        ide.session.joining.clients.remove(ide.name)
        _journal(ide, f"{ide.name} has left")
