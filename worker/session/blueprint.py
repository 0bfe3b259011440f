"""What a session is, apart from its state: drawn from one, and taken over by another.

A session that is imported, cloned or that comes back takes over a blueprint before anybody can
ask for it; breakpoints are judged anew, and none is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from debug_relay.protocol.models.blueprint import given_fields
from debug_relay.protocol.models.sessions import Blueprint, Program
from debug_relay.protocol.secrets import shown_arguments, shown_environment
from debug_relay.worker.session import retirement as retiring

if TYPE_CHECKING:
    from debug_relay.worker.session.session import Session


def draw(session: Session) -> Blueprint:
    """All of it, with the values of the environment as they are."""
    return Blueprint(
        name=session.name,
        config=session.params.config,
        program=session.arguments,
        missing_env=session.missing_env,
        missing_fields=session.missing_fields,
        breakpoints=[_given(kept) for kept in session.breakpoints.specs()],
        next_breakpoint=session.breakpoints.next_number,
        exception_breakpoints=session.exceptions.spec(),
        watches=[{"expression": watch.expression} for watch in session.watches.listed()],
    )


async def take_over(session: Session) -> None:
    """What the session was born with: a blueprint, or the breakpoints saved for its project."""
    params, blueprint = session.params, session.params.blueprint
    if blueprint is not None:
        session.arguments = blueprint.program
        session.missing_env = blueprint.missing_env
        session.missing_fields = blueprint.missing_fields
        session.program = _program(blueprint.program)
        session.exceptions.take_over(blueprint.exception_breakpoints or {})
        for watch in blueprint.watches:
            session.watches.add(watch["expression"])
        await session.breakpoints.inherit(blueprint.breakpoints, blueprint.next_breakpoint)
    if params.ended is not None:
        retiring.take_over(session, params.ended)
        session.saved.note()
    elif params.restored:
        session.saved.note()
        body = {"status": session.state, "previous_status": session.previous_status}
        session.journal("session", {**body, "restored": True})
    elif blueprint is not None:
        await session.saved.save()
    if params.restore_breakpoints:
        await restore_breakpoints(session)


async def restore_breakpoints(session: Session) -> None:
    """Those saved for the project root, whoever has set them."""
    saved = await session.saved.load()
    await session.breakpoints.inherit([given_fields(spec) for spec in saved])
    session.saved.note()


def _given(kept: dict[str, Any]) -> dict[str, Any]:
    """Without what is at its default: absent, or enabled."""
    return {name: value for name, value in kept.items() if value is not None and value is not True}


def _program(arguments: dict[str, Any] | None) -> Program | None:
    """What would be launched again, as it is shown."""
    if arguments is None:
        return None
    return Program(
        script=arguments.get("script"),
        module=arguments.get("module"),
        args=shown_arguments(
            arguments.get("args", []), arguments.get("script") or arguments.get("module") or ""
        ),
        cwd=arguments.get("cwd"),
        env=shown_environment(arguments.get("env", {})),
        python_path=arguments.get("python_path"),
    )
