"""`GET` and `PATCH /config`: shows all settings, and changes those that can change at run time.

Changes are kept in `config.json`, a layer between the configuration file and the environment, so
they survive a restart.
"""

from __future__ import annotations

import asyncio
import difflib
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.relay import Configuration, PatchConfig
from debug_relay.protocol.refusals import MOST_PROBLEMS, Problem
from debug_relay.protocol.secrets import hide_secrets
from debug_relay.protocol.system import json_file
from debug_relay.supervisor.config.layers import Loaded, accepted
from debug_relay.supervisor.config.settings import KEYS, RUNTIME_CHANGEABLE, Settings
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.storage.directories import Directories
from debug_relay.supervisor.storage.json_files import read_json

_log = Log(__name__)
_ORIGIN = "config.json (PATCH /config)"
# An unknown setting's name is compared up to this length: comparing is slow.
_COMPARED_CHARACTERS = 100
_STRONGER = ("environment", "flag", "command line", "--")


class RuntimeConfig:
    def __init__(
        self, loaded: Loaded, directories: Directories, apply: Callable[[Settings], None]
    ) -> None:
        self._settings = loaded.settings
        self._origins = dict(loaded.origins)
        self._directories = directories
        self._apply = apply
        self._unwritten: dict[str, Any] = {}
        self._turn = asyncio.Lock()  # the file is read, changed and written by one call at a time

    def warning(self) -> str | None:
        """The changes that a restart would lose, for `/health`."""
        if not self._unwritten:
            return None
        return (
            f"{self._directories.config_json} could not be written: a restart loses "
            + ", ".join(f"{name} = {value!r}" for name, value in self._unwritten.items())
        )

    def shown(self) -> Configuration:
        tree: dict[str, dict[str, Any]] = {}
        for name in KEYS:
            section, _, key = name.partition(".")
            value = getattr(getattr(self._settings, section), key)
            tree.setdefault(section, {})[key] = (
                hide_secrets(value) if isinstance(value, str) else value
            )
        return Configuration(
            config=tree,
            origins=dict(self._origins),
            changeable=sorted(RUNTIME_CHANGEABLE),
            persisted=not self._unwritten,
        )

    async def patch(self, params: PatchConfig) -> Configuration:
        """Makes all of the changes or none."""
        wanted = {
            f"{section}.{key}": value
            for section in params.__struct_fields__
            for key, value in getattr(params, section).items()
        }
        found = (self._problem(name, value) for name, value in wanted.items())
        problems = list(itertools.islice((one for one in found if one), MOST_PROBLEMS))
        if problems:
            what = "; ".join(f"{one.field}: {one.message}" for one in problems[:3])
            raise RelayError(
                Code.INVALID_REQUEST,
                f"Nothing was changed: {what}",
                "GET /api/v1/config lists in changeable what may be changed.",
                errors=problems,
            )
        async with self._turn:
            await self._keep(wanted)
        self._settings = _with(self._settings, wanted)
        self._origins.update(dict.fromkeys(wanted, _ORIGIN))
        self._apply(self._settings)
        return self.shown()

    def _problem(self, name: str, value: Any) -> Problem | None:
        message = self._refusal(name, value)
        return Problem(name, message, value) if message else None

    def _refusal(self, name: str, value: Any) -> str | None:
        if name not in KEYS:
            near = difflib.get_close_matches(name[:_COMPARED_CHARACTERS], RUNTIME_CHANGEABLE, 1)
            return f"no such setting; did you mean {near[0]}?" if near else "no such setting"
        if name not in RUNTIME_CHANGEABLE:
            return "cannot change while the relay runs; set it at its start"
        origin = self._origins.get(name, "")
        if origin.startswith(_STRONGER):
            return f"is set by {origin}, which is stronger; change it there"
        try:
            msgspec.convert(value, KEYS[name].kind, strict=True)
        except msgspec.ValidationError as error:
            return f"{error}; accepted is {accepted(KEYS[name].info)}"
        return None

    async def _keep(self, wanted: Mapping[str, Any]) -> None:
        # Changes that an earlier call could not write are tried again.
        self._unwritten.update(wanted)
        try:
            await asyncio.to_thread(self._write, dict(self._unwritten))
        except OSError as error:
            # With a full disk the change is in force, but not kept.
            _log.warning(
                "config.not_written", path=self._directories.config_json, reason=str(error)
            )
        else:
            self._unwritten.clear()

    def _write(self, changes: Mapping[str, Any]) -> None:
        """Writes config.json. Blocks for as long as the disk does."""
        kept = read_json(self._directories.config_json)
        tree: dict[str, Any] = kept if isinstance(kept, dict) else {}
        for name, value in changes.items():
            section, _, key = name.partition(".")
            tree.setdefault(section, {})[key] = value
        json_file.write(self._directories.config_json, tree)


def _with(settings: Settings, wanted: Mapping[str, Any]) -> Settings:
    tree = msgspec.to_builtins(settings)
    for name, value in wanted.items():
        section, _, key = name.partition(".")
        tree[section][key] = value
    return msgspec.convert(tree, Settings)
