"""Prepares a restart: the fields of the new launch, and the end of the old run."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.program import Launch, Restart
from debug_relay.protocol.refusals import how_to_attach_again, wrong_state
from debug_relay.protocol.state import STARTED, State
from debug_relay.protocol.version import API_PREFIX
from debug_relay.worker.debugger.run_control import RunControl
from debug_relay.worker.debugger.target import Debuggee
from debug_relay.worker.state.core import Core

_GRACE_SECONDS: Final = 2.0  # A program that is restarted has this long to end by itself.
# A restart may change these fields, and must give one anew in which a secret was not kept.
_EXAMPLES: Final = {"args": ["…"], "code": "…", "python_args": ["…"], "stdin_inputs": ["…"]}
_GIVEN_ANEW: Final = tuple(_EXAMPLES)


class RestartPlanner:
    def __init__(self, core: Core, debuggee: Debuggee, run: RunControl) -> None:
        self._settings = core.settings
        self._lifecycle = core.lifecycle
        self._log = core.log
        self._debuggee = debuggee
        self._run = run

    def launch_of(self, params: Restart) -> Launch:
        """The last launch with the changes of this call."""
        if self._debuggee.attached:
            raise self._was_attached_to()
        if self._debuggee.arguments is None:
            raise wrong_state(
                "restart",
                self._lifecycle.state,
                frozenset(State) - {State.CREATED, State.FAILED},
                self._settings.id,
            )
        given = {
            name: value for name in _GIVEN_ANEW if (value := getattr(params, name)) is not None
        }
        self._require_nothing_hidden(params, given)
        env = {**(self._debuggee.arguments.get("env") or {}), **params.env}
        fields = {**self._debuggee.arguments, **given, "session_id": self._settings.id, "env": env}
        return msgspec.convert(fields, Launch)

    def _require_nothing_hidden(self, params: Restart, given: dict[str, Any]) -> None:
        """Refuse a restart without the secrets: they are not on disk, so the caller sends them."""
        fields = [name for name in self._debuggee.missing_fields if name not in given]
        env = [name for name in self._debuggee.missing_env if name not in params.env]
        if not fields and not env:
            return
        body: dict[str, Any] = {name: _EXAMPLES[name] for name in fields}
        if env:
            body["env"] = dict.fromkeys(env, "…")
        what = [f"variables whose values were not kept: {', '.join(env)}"] if env else []
        what += [f"secrets, which were not kept, in {', '.join(fields)}"] if fields else []
        details: dict[str, Any] = {"missing_env": env} if env else {}
        if fields:
            details["missing_fields"] = fields
            details["launched_with"] = {
                name: (self._debuggee.arguments or {}).get(name) for name in fields
            }
        raise RelayError(
            Code.LAUNCH_FIELDS_MISSING if fields else Code.LAUNCH_ENV_MISSING,
            f"The launch had {', and '.join(what)}",
            f"Send {json.dumps(body, ensure_ascii=False)} with all of them"
            + (" in full" if fields else "")
            + ("; null leaves a variable out." if env else "."),
            **details,
        )

    def _was_attached_to(self) -> RelayError:
        program = self._debuggee.program
        if self._lifecycle.state is State.TERMINATED and program is not None:
            way_out = (
                f"The program has ended: {how_to_attach_again(program)}; or launch it in a session."
            )
        else:
            way_out = (
                f"POST {API_PREFIX}/sessions/{self._settings.id}/detach and start it again "
                "yourself, or launch it in a separate session."
            )
        return RelayError(
            Code.ATTACH_UNSUPPORTED,
            "The session attached to this program, so the relay cannot start it again",
            way_out,
        )

    async def make_room(self) -> None:
        """End the old run and its children, and clear it from the session's state."""
        target = self._debuggee.target
        with self._lifecycle.restart():
            if self._lifecycle.state in STARTED:
                self._lifecycle.end_for("terminated")
                await self._run.end_program(_GRACE_SECONDS)
        if target is not None:
            await target.release()
            # A server's children may hold the port that the new run needs.
            await target.end_children()
        self._debuggee.target = None
        self._lifecycle.forget_end()
        self._log.forget_tail()
