"""Finds the value in force for each setting, and everything that is wrong in any layer.

Layers, later wins: built-in, config file, config.json (kept by PATCH /config), environment, flags.
The config file is the one of --config, else <data_dir>/config.toml. It is never ./config.toml: the
relay is started in the projects that it debugs, and strangers may have written that file. This
module reads these files, writes none, and does not know what a setting does.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from debug_relay.protocol.secrets import HIDDEN, looks_secret
from debug_relay.protocol.system.files import read_bounded
from debug_relay.supervisor.config.settings import KEYS, RUNTIME_CHANGEABLE, SECTIONS, Key, Settings

_PREFIX: Final = "OPENCODE_DEBUG_"
_CLIENTS_OWN: Final = frozenset({"URL", "TOKEN"})
_FLAT: Final[Mapping[str, str]] = {
    "HOST": "server.host",
    "PORT": "server.port",
    "DATA_DIR": "server.data_dir",
    "DEBUG": "log.level",
    "MAX_SESSIONS": "sessions.max_sessions",
    "SESSION_TIMEOUT_SECONDS": "sessions.idle_timeout",
    "SESSION_MAX_LIFETIME_SECONDS": "sessions.max_lifetime",
    "OUTPUT_BUFFER_MAX_BYTES": "output.max_bytes",
    "DAP_TIMEOUT_SECONDS": "dap.request_timeout",
    "DAP_LAUNCH_TIMEOUT_SECONDS": "dap.launch_timeout",
    "DEFAULT_PYTHON_PATH": "python.default_path",
}
_VARIABLES: Final[Mapping[str, str]] = {
    **{name.upper().replace(".", "__"): name for name in KEYS},
    **_FLAT,
}
_PATHS: Final = frozenset(
    {
        "server.socket", "server.data_dir", "server.run_dir",
        "python.default_path", "auth.tokens_file", "log.audit_file",
    }
)  # fmt: skip
_LARGEST_FILE_BYTES: Final = 1024 * 1024  # A configuration file.
_BOOLEANS: Final = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}
BUILT_IN: Final = "built-in default"


class Problem(Struct, frozen=True):
    """One setting that cannot be used."""

    key: str
    value: str
    origin: str
    message: str

    def __str__(self) -> str:
        shown = f"{self.key} = {self.value}" if self.value else self.key
        return f"{shown} ({self.origin}): {self.message}"


class ConfigError(Exception):
    """Everything that is wrong in all layers."""

    def __init__(self, problems: list[Problem]) -> None:
        count = "1 setting" if len(problems) == 1 else f"{len(problems)} settings"
        lines = [f"{count} cannot be used:", *(f"  {problem}" for problem in problems)]
        super().__init__("\n".join(lines))
        self.problems = problems


class Setting(Struct, frozen=True):
    value: Any
    origin: str


class Loaded(Struct, frozen=True, kw_only=True):
    """The settings in force, the origin of each, and warnings about what was ignored."""

    settings: Settings
    origins: dict[str, str]
    config_file: str | None = None
    warnings: list[str] = []


class Row(Struct, frozen=True):
    key: str
    value: str
    origin: str


def load(
    argv_overrides: Mapping[str, str], environ: Mapping[str, str], config_path: str | None = None
) -> Loaded:
    """Merges all layers; `argv_overrides` maps keys such as "server.port" to texts."""
    reading = _Reading(environ.get("HOME"))
    built_in = {name: Setting(key.default, BUILT_IN) for name, key in KEYS.items()}
    data_dir = reading.expanded("server.data_dir", KEYS["server.data_dir"].default, None, BUILT_IN)
    built_in["server.data_dir"] = Setting(data_dir, BUILT_IN)
    flags = reading.flags(argv_overrides)
    variables = reading.variables(environ)
    if config_path is not None:
        config_path = os.path.abspath(os.path.expanduser(config_path))
    file = reading.file(Path(config_path)) if config_path is not None else {}
    where = {**built_in, **file, **variables, **flags}["server.data_dir"]
    if config_path is None and os.path.exists(found := f"{where.value}/config.toml"):
        config_path = found
        file = reading.file(Path(found))
        if where.origin == BUILT_IN:
            reading.refuse_to_move(file, where.value)
    kept = reading.kept(Path(where.value, "config.json"))
    if reading.problems:
        raise ConfigError(reading.problems)
    layers = {**built_in, **file, **kept, **variables, **flags}
    tree: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for name, setting in layers.items():
        section, _, key = name.partition(".")
        tree[section][key] = setting.value
    return Loaded(
        settings=msgspec.convert(tree, Settings),
        origins={name: layers[name].origin for name in KEYS},
        config_file=config_path,
        warnings=reading.warnings,
    )


class _Reading:
    """Reads one layer after the other and collects what is wrong in any of them."""

    def __init__(self, home: str | None) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self._home = home

    def flags(self, overrides: Mapping[str, str]) -> dict[str, Setting]:
        layer: dict[str, Setting] = {}
        for name, text in overrides.items():
            origin = f"flag {KEYS[name].flag}" if name in KEYS else "command line"
            self._take(layer, name, text, origin, is_text=True)
        return layer

    def variables(self, environ: Mapping[str, str]) -> dict[str, Setting]:
        layer: dict[str, Setting] = {}
        for variable, text in sorted(environ.items()):
            short = variable.removeprefix(_PREFIX)
            if short == variable or short in _CLIENTS_OWN:
                continue
            origin = f"environment {variable}"
            if short not in _VARIABLES:
                near = [_PREFIX + name for name in _closest(short, _VARIABLES)]
                self._refuse(variable, text, origin, _unknown("variable", near))
            elif short == "DEBUG" and text.strip().lower() in _BOOLEANS:
                if _BOOLEANS[text.strip().lower()]:
                    self._take(layer, "log.level", "debug", origin, is_text=True)
            elif short == "DEBUG":
                self._refuse(variable, text, origin, "accepted: true or false")
            else:
                self._take(layer, _VARIABLES[short], text, origin, is_text=True)
        return layer

    def file(self, path: Path) -> dict[str, Setting]:
        try:
            tree = tomllib.loads(read_bounded(path, _LARGEST_FILE_BYTES).decode("utf-8"))
        except (OSError, ValueError) as error:
            message = f"the file cannot be read: {_reason(error)}"
            self.problems.append(Problem(str(path), "", "config file", message))
            return {}
        return self._tree(tree, f"file {path}", path.parent)

    def kept(self, path: Path) -> dict[str, Setting]:
        """The values of config.json. We ignore a damaged one with a warning, because only the relay
        writes it.
        """
        try:
            tree = json.loads(read_bounded(path, _LARGEST_FILE_BYTES))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            message = f"{path} is passed over, it cannot be read: {_reason(error)}"
            self.warnings.append(message)
            return {}
        if not isinstance(tree, dict):
            self.warnings.append(f"{path} is passed over, it is not a JSON object")
            return {}
        layer = self._tree(tree, f"PATCH /config in {path}", path.parent)
        for name in layer.keys() - RUNTIME_CHANGEABLE:
            setting = layer.pop(name)
            message = "this cannot be changed while the relay runs; set it in config.toml"
            self._refuse(name, setting.value, setting.origin, message)
        return layer

    def refuse_to_move(self, file: Mapping[str, Setting], data_dir: str) -> None:
        moved = file.get("server.data_dir")
        if moved is not None and os.path.realpath(moved.value) != os.path.realpath(data_dir):
            message = (
                f"this file was found in the data directory {data_dir} and cannot name another; "
                f"use --data-dir, {_PREFIX}DATA_DIR, or --config with this file"
            )
            self._refuse("server.data_dir", moved.value, moved.origin, message)

    def _tree(self, tree: Mapping[str, Any], source: str, base: Path) -> dict[str, Setting]:
        layer: dict[str, Setting] = {}
        for section, values in tree.items():
            if section not in SECTIONS:
                near = [f"[{name}]" for name in _closest(section, SECTIONS)]
                self._refuse(f"[{section}]", None, source, _unknown("section", near))
            elif not isinstance(values, dict):
                message = f"{section} is a section; write its keys below [{section}]"
                self._refuse(section, values, source, message)
            else:
                for key, value in values.items():
                    origin = f"{source} [{section}]"
                    self._take(layer, f"{section}.{key}", value, origin, base=base)
        return layer

    def _take(
        self,
        layer: dict[str, Setting],
        name: str,
        raw: Any,
        origin: str,
        is_text: bool = False,
        base: Path | None = None,
    ) -> None:
        if name not in KEYS:
            self._refuse(name, raw, origin, _unknown("key", _closest(name, KEYS)))
            return
        try:
            value = _converted(KEYS[name], raw, is_text)
        except ValueError:
            # msgspec's message names its own types; we describe the bounds instead.
            self._refuse(name, raw, origin, f"accepted: {accepted(KEYS[name].info)}")
            return
        if name in _PATHS and value is not None:
            value = self.expanded(name, value, base, origin)
        other = layer.get(name)
        if other is not None and other.value != value:
            message = f"{other.origin} says {as_toml(other.value)}; set one of them"
            self._refuse(name, raw, origin, message)
        layer[name] = Setting(value, origin)

    def expanded(self, name: str, text: str, base: Path | None, origin: str) -> str:
        """The path with ~ and relative parts resolved; a config file's are relative to it."""
        if name == "python.default_path" and "/" not in text:
            return text
        if self._home and text.startswith("~/"):
            text = self._home + text[1:]
        text = os.path.expanduser(text)
        try:
            if not text.startswith("~"):
                return os.path.abspath(base / text if base else text)
            reason = "no such user's home directory"
        except FileNotFoundError:
            reason = "it is relative to a working directory that no longer exists"
        self._refuse(name, text, origin, f"{reason}; accepted: an absolute path")
        return text

    def _refuse(self, name: str, value: Any, origin: str, message: str) -> None:
        # An unknown setting may be somebody's credential under a mistyped name.
        secret = name not in KEYS and looks_secret(name)
        shown = as_toml(HIDDEN if secret else value) if value is not None else ""
        shown = shown if len(shown) <= 200 else shown[:200] + "…"
        self.problems.append(Problem(name, shown, origin, message))


def _converted(key: Key, raw: Any, is_text: bool) -> Any:
    """`raw` as the key's type; texts from the environment and from flags are parsed first."""
    optional = isinstance(key.info, msgspec.inspect.UnionType)
    if is_text:
        raw = raw.strip()
        if isinstance(key.info, msgspec.inspect.ListType):
            raw = [part.strip() for part in raw.split(",") if part.strip()]
        elif isinstance(key.info, msgspec.inspect.BoolType):
            raw = _BOOLEANS.get(raw.lower(), raw)
    if raw == "" and optional:
        return None
    for text in raw if isinstance(raw, list) else [raw]:
        # We also refuse bytes that are not UTF-8: os.environ has them as lone surrogates, which no
        # reply can contain.
        if isinstance(text, str) and not text.isprintable():
            raise ValueError(text)
    value = msgspec.convert(raw, key.kind, strict=not is_text)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(value)
    return value


def accepted(info: Any) -> str:
    """A description of the values that a key of this type accepts."""
    kinds = msgspec.inspect
    if isinstance(info, kinds.UnionType):
        return " or ".join(accepted(part) for part in info.types)
    if isinstance(info, kinds.NoneType):
        return '"" for none'
    if isinstance(info, kinds.ListType):
        return f"a list, each {accepted(info.item_type)}; in the environment with commas between"
    if isinstance(info, kinds.LiteralType):
        return ", ".join(str(value) for value in info.values)
    if isinstance(info, kinds.BoolType):
        return "true or false"
    if isinstance(info, kinds.IntType | kinds.FloatType):
        what = "an integer" if isinstance(info, kinds.IntType) else "a number"
        low = f" above {info.gt}" if info.gt is not None else f" from {info.ge}"
        return what + low + (f" to {info.le}" if info.le is not None else " on")
    if isinstance(info, kinds.StrType) and info.pattern:
        return "a host name or address"
    return "a path of printable characters"


def as_toml(value: Any) -> str:
    if value is None:
        return '""'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, list):
        return "[" + ", ".join(as_toml(item) for item in value) + "]"
    if isinstance(value, str):
        plain = value.encode("utf-8", "backslashreplace").decode()
        return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)


def describe(loaded: Loaded) -> list[Row]:
    """Every key with its value in force and the value's origin."""
    rows = []
    for name in KEYS:
        section, _, key = name.partition(".")
        value = getattr(getattr(loaded.settings, section), key)
        rows.append(Row(name, as_toml(value), loaded.origins[name]))
    return rows


def _closest(name: str, known: Any) -> list[str]:
    return difflib.get_close_matches(name, list(known), 1, 0.5)


def _unknown(what: str, near: list[str]) -> str:
    hint = f"did you mean {near[0]}?" if near else "debug-relay config lists what there is"
    return f"unknown {what}; {hint}"


def _reason(error: Exception) -> object:
    return error.strerror if isinstance(error, OSError) and error.strerror else error
