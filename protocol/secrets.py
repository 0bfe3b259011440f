"""What looks secret, by its name or by itself: one judgement for all that is shown or written.

Replies, the logs, the audit log, session records, exports and kept replies ask here. In doubt a
value is secret: one that is asked for again costs a moment, one that was written down cannot be
taken back. docs/guide/secrets.md says in words what is looked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

HIDDEN: Final = "***"

# -- names

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Also inside a word: PGPASSWORD, clientsecret, SetCookie.
_ANYWHERE: Final = re.compile(
    r"passw(?:or)?d|passphrase|secret|credential|authorization|cookie|apikey|privatekey|accesskey"
)
_WORDS: Final = frozenset({"bearer", "cred", "creds", "dsn", "jwt", "pat", "webhook", "webhooks"})
_LAST_WORDS: Final = frozenset(
    {"auth", "key", "keys", "netrc", "otp", "pin", "pw", "pwd", "sessionid", "sig", "signature",
     "sk"}
)  # fmt: skip
_PASS: Final = re.compile(r"(?<!by)(?<!com)(?<!over)(?<!sur)(?<!tres)(?<!under)pass")  # SSHPASS
# PWD and KEY alone are the working directory and anybody's loop variable.
_NOT_ALONE: Final = frozenset({"key", "keys", "pwd"})
# Keys that open nothing.
_PLAIN_KEYS: Final = frozenset(
    {"cache", "foreign", "idempotency", "partition", "primary", "public", "sort"}
)
# A number about a secret, or the place where one lies: MAX_TOKENS, COOKIE_MAX_AGE, TOKENS_FILE.
_ABOUT: Final = frozenset(
    {"age", "count", "expires", "expiry", "length", "limit", "max", "min", "num", "size", "ttl"}
)
_PLACES: Final = frozenset({"file", "path", "dir", "directory"})

# -- values

_ADDRESS: Final = re.compile(r"(?<=://)([^\s/@:]*):[^\s/]+(?=@)")
# Beginnings that their issuers chose to be known by, and keys in PEM.
_KNOWN: Final = re.compile(
    r"(?<![\w-])(?:gh[a-z]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|odr_[\w-]{20,}"
    r"|xox[a-z]-[\w-]{10,}|[rs]k_(?:live|test)_\w{10,}|sk-(?:ant|proj)-[\w-]{16,}"
    r"|npm_\w{30,}|pypi-[\w-]{30,}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*)"
    r"|(?<=://hooks\.slack\.com/services/)[\w/]+"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^-]*-----END [A-Z ]{0,40}PRIVATE KEY-----)?.*",
    re.DOTALL,
)
# name=value and "name": "value"; in code only a quoted text is a value.
_NAME: Final = r"(?<![\w.-])(?P<name>[A-Za-z_][\w.-]*)"
_QUOTED: Final = r"[\"']?\s{0,3}(?:=(?!=)|:)\s{0,3}[\"'](?P<value>[^\"'\r\n]+)"
_BARE: Final = r"=(?P<bare>(?:bearer |basic )?[^\s;&,\"'=][^\s;&,\"']*)"
_LITERAL: Final = re.compile(_NAME + _QUOTED)
_PAIR: Final = re.compile(f"{_NAME}(?:{_QUOTED}|{_BARE})", re.IGNORECASE)
_HEADER: Final = re.compile(r"([A-Za-z][\w-]*)(:\s*)(.+)", re.DOTALL)

# -- arguments

_OPTION: Final = re.compile(r"(--?)([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
# --no-auth and --ask-pass are followed by no secret.
_SWITCHES: Final = frozenset(
    {"allow", "ask", "disable", "enable", "no", "prompt", "require", "show", "skip", "use",
     "without"}
)  # fmt: skip
# Programs whose options of one letter take a password: in the same word, or in the next one too.
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
# What else stands right behind -p: a port or range, a path, a word (-print, -pno:cov, -python3).
_NO_PASSWORD: Final = re.compile(
    r"[\d.,:/x-]*|[a-z_.:-]+|[/.~@].*|rint0|ython[23]|[A-Z]:\d+", re.DOTALL
)
_SHORTEST_PASSWORD: Final = 4
_DEEPEST: Final = 8


def looks_secret(name: str) -> bool:
    """Whether what goes by this name (a field, option, header or variable) should be hidden."""
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
    """The text with the passwords and tokens in it hidden: of addresses, of `password=…`."""
    return _hidden(text, _PAIR)


def hide_in_code(text: str) -> str:
    """The same of a program's text, where `password=pw` names a variable: quoted values alone."""
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
    # In a connection string Pwd is a password, in a command line PWD the working directory.
    if not looks_secret(name) and (name.lower() != "pwd" or value.startswith(("/", "."))):
        return found[0]
    return f"{found[0][: -len(value)]}{HIDDEN}"


def _hide_value(text: str) -> str:
    """Of an argument or a variable, which may be a header: `Authorization: Bearer …`."""
    header = _HEADER.fullmatch(text)
    if header is not None and looks_secret(header[1]):
        return f"{header[1]}{header[2]}{HIDDEN}"
    return hide_secrets(text)


def shown(name: str, value: Any, depth: int = _DEEPEST) -> Any:
    """A field as it may be shown, whatever it holds; looks into mappings and lists."""
    if value is None or isinstance(value, bool):
        return value
    if looks_secret(name):
        return HIDDEN
    if isinstance(value, str):
        return _hide_value(value)
    if depth == 0:
        return value if isinstance(value, int | float) else "…"
    if isinstance(value, Mapping):
        return {key: shown(str(key), item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shown("", item, depth - 1) for item in value]
    return value


def shown_environment(env: Mapping[str, str | None]) -> dict[str, str | None]:
    """Variables, or labels, as they may be shown: values that look secret are not."""
    return {name: shown(name, value) for name, value in env.items()}


def is_secret(name: str, value: str | None) -> bool:
    """Whether a variable holds something that may not be written down."""
    # To unset a variable tells nothing of what it held.
    return value is not None and shown(name, value) != value


def shown_arguments(args: Sequence[str], program: str = "") -> list[str]:
    """Arguments without what they give away: `--token=…`, `--password …`, `-p…`, `TOKEN=…`.

    `program` is whose they are. One that is named among them (`sudo mysql -pX`) counts from there.
    """
    return list(_arguments(args, _name_of(program)))


def shown_command(words: Sequence[str]) -> list[str]:
    """A whole command line."""
    return [*words[:1], *shown_arguments(words[1:], words[0])] if words else []


def _arguments(args: Sequence[str], program: str) -> Iterator[str]:
    follows = False  # the value of an option that looks secret
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
    """Of an option of one letter that takes a password, in this word or the next one.

    Elsewhere than in the programs that are known for it only -p is taken for one, and only where
    what is behind it is no port, no path and no word: `-phunter2`, but not `-p8080` or `-print`.
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
