"""Decides what looks secret, by its name or by its value, for everything that is shown or written.

Replies, the logs, the audit log, session records, exports and stored replies use these rules. In
doubt a value is secret: requesting a value again costs a moment, but a secret that was written down
cannot be taken back. docs/guide/secrets.md describes the rules in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

HIDDEN: Final = "***"

# -- names

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# These match inside a word too: PGPASSWORD, clientsecret, SetCookie.
_ANYWHERE: Final = re.compile(
    r"passw(?:or)?d|passphrase|secret|credential|authorization|cookie|apikey|privatekey|accesskey"
)
_WORDS: Final = frozenset({"bearer", "cred", "creds", "dsn", "jwt", "pat", "webhook", "webhooks"})
_LAST_WORDS: Final = frozenset(
    {"auth", "key", "keys", "netrc", "otp", "pin", "pw", "pwd", "sessionid", "sig", "signature",
     "sk"}
)  # fmt: skip
_PASS: Final = re.compile(r"(?<!by)(?<!com)(?<!over)(?<!sur)(?<!tres)(?<!under)pass")  # SSHPASS
# PWD and KEY alone usually mean the working directory and a loop variable.
_NOT_ALONE: Final = frozenset({"key", "keys", "pwd"})
# Keys that grant no access.
_PLAIN_KEYS: Final = frozenset(
    {"cache", "foreign", "idempotency", "partition", "primary", "public", "sort"}
)
# A number about a secret, or a path to one: MAX_TOKENS, COOKIE_MAX_AGE, TOKENS_FILE.
_ABOUT: Final = frozenset(
    {"age", "count", "expires", "expiry", "length", "limit", "max", "min", "num", "size", "ttl"}
)
_PLACES: Final = frozenset({"file", "path", "dir", "directory"})

# -- values

_ADDRESS: Final = re.compile(r"(?<=://)([^\s/@:]*):[^\s/]+(?=@)")
# Prefixes by which issuers mark their tokens, and keys in PEM.
_KNOWN: Final = re.compile(
    r"(?<![\w-])(?:gh[a-z]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|odr_[\w-]{20,}"
    r"|xox[a-z]-[\w-]{10,}|[rs]k_(?:live|test)_\w{10,}|sk-(?:ant|proj)-[\w-]{16,}"
    r"|npm_\w{30,}|pypi-[\w-]{30,}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*)"
    r"|(?<=://hooks\.slack\.com/services/)[\w/]+"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^-]*-----END [A-Z ]{0,40}PRIVATE KEY-----)?.*",
    re.DOTALL,
)
# name=value and "name": "value"; in code only a quoted text can be a secret.
_NAME: Final = r"(?<![\w.-])(?P<name>[A-Za-z_][\w.-]*)"
_QUOTED: Final = r"[\"']?\s{0,3}(?:=(?!=)|:)\s{0,3}[\"'](?P<value>[^\"'\r\n]+)"
_BARE: Final = r"=(?P<bare>(?:bearer |basic )?[^\s;&,\"'=][^\s;&,\"']*)"
_LITERAL: Final = re.compile(_NAME + _QUOTED)
_PAIR: Final = re.compile(f"{_NAME}(?:{_QUOTED}|{_BARE})", re.IGNORECASE)
_HEADER: Final = re.compile(r"([A-Za-z][\w-]*)(:\s*)(.+)", re.DOTALL)

# -- arguments

_OPTION: Final = re.compile(r"(--?)([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
# No secret follows --no-auth and --ask-pass.
_SWITCHES: Final = frozenset(
    {"allow", "ask", "disable", "enable", "no", "prompt", "require", "show", "skip", "use",
     "without"}
)  # fmt: skip
# Programs with a one-letter option that takes a password, in the same word or in the next one.
_ATTACHED: Final = {
    **dict.fromkeys(
        ("mysql", "mysqladmin", "mysqlcheck", "mysqldump", "mysqlimport", "mysqlshow", "mariadb",
         "mariadb-admin", "mariadb-dump", "7z", "7za", "rar", "unrar"),
        "p",
    ),
    "unzip": "P",
    "zip": "P",
}  # fmt: skip
_IN_NEXT: Final = {
    **dict.fromkeys(("mongo", "mongodump", "mongorestore", "mongosh", "sshpass"), "p"),
    **dict.fromkeys(("ldapadd", "ldapmodify", "ldapsearch"), "w"),
    "curl": "uU",
    "redis-cli": "a",
}
_PLAIN_P: Final = frozenset(
    {"cp", "docker", "find", "kubectl", "make", "mkdir", "nmap", "perl", "podman", "ps", "py.test",
     "pytest", "scp", "ssh", "tar", "tox"}
)  # fmt: skip
# What else may follow -p directly: a port or range, a path, a word (-print, -pno:cov, -python3).
_NO_PASSWORD: Final = re.compile(
    r"[\d.,:/x-]*|[a-z_.:-]+|[/.~@].*|rint0|ython[23]|[A-Z]:\d+", re.DOTALL
)
_SHORTEST_PASSWORD: Final = 4
# Levels of a value in which secrets are looked for; deeper values are masked whole.
_DEEPEST: Final = 8


def looks_secret(name: str) -> bool:
    """Whether the value of this name (a field, option, header or variable) should be hidden."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[-1] in _PLACES or _ABOUT.intersection(words):
        return False
    if _ANYWHERE.search("".join(words)) or _WORDS.intersection(words):
        return True
    if any(word.endswith(("token", "tokens")) for word in words):
        return True
    last = words[-1]
    if last.endswith("pass"):
        return _PASS.search(last) is not None
    if last not in _LAST_WORDS:
        return False
    if len(words) == 1:
        return last not in _NOT_ALONE
    return last not in ("key", "keys") or words[-2] not in _PLAIN_KEYS


def hide_secrets(text: str) -> str:
    """The text with its passwords and tokens masked, those in addresses and in `password=…`."""
    return _hidden(text, _PAIR)


def hide_in_code(text: str) -> str:
    """The same for a program's text, where `password=pw` names a variable: only quoted values are
    masked.
    """
    return _hidden(text, _LITERAL)


def _hidden(text: str, pairs: re.Pattern[str]) -> str:
    if "://" in text:
        text = _ADDRESS.sub(rf"\1:{HIDDEN}", text)
    if "=" in text or ":" in text:
        text = pairs.sub(_hide_pair, text)
    return _KNOWN.sub(HIDDEN, text)


def _hide_pair(found: re.Match[str]) -> str:
    name, groups = found["name"], found.groupdict()
    value = groups.get("bare") or groups.get("value") or ""
    # In a connection string, Pwd is a password; in a command line, PWD is the working directory.
    if not looks_secret(name) and (name.lower() != "pwd" or value.startswith(("/", "."))):
        return found[0]
    return f"{found[0][: -len(value)]}{HIDDEN}"


def _hide_value(text: str) -> str:
    """Masks an argument or a variable, which may be a header: `Authorization: Bearer …`."""
    header = _HEADER.fullmatch(text)
    if header is not None and looks_secret(header[1]):
        return f"{header[1]}{header[2]}{HIDDEN}"
    return hide_secrets(text)


def masked(name: str, value: Any, depth: int = _DEEPEST) -> Any:
    """A value as it may be shown; looks into mappings and lists."""
    if value is None or isinstance(value, bool):
        return value
    if looks_secret(name):
        return HIDDEN
    if isinstance(value, str):
        return _hide_value(value)
    if depth == 0:
        return value if isinstance(value, int | float) else "…"
    if isinstance(value, Mapping):
        return {key: masked(str(key), item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked("", item, depth - 1) for item in value]
    return value


def masked_environment(env: Mapping[str, str | None]) -> dict[str, str | None]:
    """Variables, or labels, with secret-looking values masked."""
    return {name: masked(name, value) for name, value in env.items()}


def is_secret(name: str, value: str | None) -> bool:
    """Whether a variable's value may not be written down."""
    # Unsetting a variable reveals nothing of its value.
    return value is not None and masked(name, value) != value


def masked_arguments(args: Sequence[str], program: str = "") -> list[str]:
    """Arguments with secrets masked: `--token=…`, `--password …`, `-p…`, `TOKEN=…`.

    `program` is the program that gets them. If the arguments name another program (`sudo mysql
    -pX`), that one counts from there on.
    """
    return list(_arguments(args, _name_of(program)))


def masked_command(words: Sequence[str]) -> list[str]:
    """A whole command line with secrets masked."""
    return [*words[:1], *masked_arguments(words[1:], words[0])] if words else []


def _arguments(args: Sequence[str], program: str) -> Iterator[str]:
    follows = False  # whether the next argument is the value of a secret-looking option
    for arg in args:
        option = _OPTION.fullmatch(arg)
        if option is None and not arg.startswith("-"):
            name = _name_of(arg)
            if not follows and (name in _ATTACHED or name in _IN_NEXT or name in _PLAIN_P):
                program = name
            yield HIDDEN if follows else _hide_value(arg)
            follows = False
            continue
        follows = False
        letter = _password_letter(arg, program)
        if letter is not None:
            follows = len(arg) == 2
            yield arg if follows else f"-{letter}{HIDDEN}"
        elif option is None:
            yield _hide_value(arg)
        elif option[3] is not None:
            dashes, name, value = option.groups()
            yield f"{dashes}{name}={HIDDEN if _takes_secret(name) else _hide_value(value)}"
        else:
            follows = _takes_secret(option[2])
            yield hide_secrets(arg)


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]


def _takes_secret(option: str) -> bool:
    first = option.partition("-")[0].lower()
    return looks_secret(option.replace("-", "_")) and first not in _SWITCHES


def _password_letter(arg: str, program: str) -> str | None:
    """The letter of a one-letter option that takes a password, in this word or in the next one.

    For programs that are not listed above only -p counts, and only if what follows it is no port,
    no path and no word: `-phunter2`, but not `-p8080` or `-print`.
    """
    letter, behind = arg[1:2], arg[2:]
    if arg[:1] != "-" or letter in ("", "-"):
        return None
    if letter in _IN_NEXT.get(program, "") or (behind and letter in _ATTACHED.get(program, "")):
        return letter
    if letter != "p" or program in _PLAIN_P or len(behind) < _SHORTEST_PASSWORD:
        return None
    # -prefix=/usr is a name and a value.
    return None if "=" in behind or _NO_PASSWORD.fullmatch(behind) else letter
