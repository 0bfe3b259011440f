"""As whom an interpreter may run: decided by who owns, and who may change, what it would run.

One function decides for questions and for launches. It looks at files and runs nothing. It knows
nothing of how an interpreter is found or started.

An interpreter runs more than its own file: its standard library, which it finds by its place in the
file system or by `home` in pyvenv.cfg. Whoever owns one of these, or a folder or link on the way
there, decides what runs. So every component of every path is looked at, from the root down, links
one by one (as sshd does it with StrictModes).

Check and start go by the same names, which is as good as the same open file: an interpreter runs as
ourselves only when all of its parts belong to root or us, and where it was only found, when nobody
else may write to them either. Each component is looked at after the folder that it is in, so by
then nobody else can exchange it, now or later. A descriptor of the file alone would guard less,
because Python finds its library by name, and it would show as "7" in `ps`. What belongs to another
user runs as that user: whatever he puts there meanwhile gains him nothing. Only who names an
interpreter in a folder that others may write to trusts those others; they could as well change the
packages in there at any other time.
"""

from __future__ import annotations

import functools
import grp
import os
import pwd
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from typing import Final

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.system.files import FileRefused, open_regular, read_bounded

_MOST_LINKS: Final = 40  # the kernel's own bound
_MOST_CONFIG_BYTES: Final = 1 << 20
_MOST_HOMES: Final = 4
_SCRIPT_HEAD: Final = 256
_VERSIONED: Final = re.compile(r"python(3\.\d+)t?")
_LIBRARIES: Final = ("lib", "lib64")
_LANDMARKS: Final = ("os.py", "os.pyc")
_BY_DIRECTORY: Final = "who chooses the current directory: it names a relative path"
_ACL: Final = "system.posix_acl_access"


def user_for(paths: Iterable[str], *, found: bool) -> int | None:
    """As whom to start an interpreter; None for as ourselves. `paths` all decide what it runs.

    One that was `found`, in a project and not by its name, runs only when its parts belong to root
    or us and nobody else may change them. One that was named is its caller's choice; but root runs
    nothing that belongs to another user, other than as that user. All else is refused in words.
    """
    # Whoever owns the interpreter that runs us is us already.
    chosen = [path for path in dict.fromkeys(paths) if path != sys.executable]
    parts = _Parts()
    for path in chosen:
        try:
            homes = _homes(path)  # refuses what would hold up the interpreter itself
            if found or os.geteuid() == 0:
                parts.add_interpreter(path, homes)
        except (OSError, ValueError) as error:
            raise _unseen(path, error) from None
    if not chosen or not (parts.strangers or (found and parts.writable)):
        return None
    if found or len(parts.strangers) > 1:
        raise _refused(chosen[0], parts, found)
    return next(iter(parts.strangers))


def require_ours(paths: list[str], *, found: bool = False) -> None:
    """Refuses a launch that would not run as ourselves.

    A program of another user's needs files and sockets of this relay that this user cannot reach.
    """
    user = user_for(paths, found=found)
    if user is not None:
        raise RelayError(
            Code.LAUNCH_INTERPRETER_NOT_FOUND,
            f"{paths[0]} is not run by root: it, or what it runs, belongs to {_name(user)}",
            f"Run a relay as {_name(user)}, or give python_path an interpreter of root's.",
            python_path=paths[0],
        )


class _Parts:
    """What decides which code runs, as far as it is not root's or ours alone."""

    def __init__(self) -> None:
        self.strangers: dict[int, str] = {}  # who else owns a part, and which
        self.writable: dict[str, str] = {}  # what others may change, and how that is known
        self._seen: dict[str, os.stat_result] = {}
        self._libraries: set[str] = set()

    def add_interpreter(self, path: str, homes: list[str]) -> None:
        """`homes` are what its pyvenv.cfg names."""
        real = self._add(path)
        for config in _configs(path):
            # Also where there is none, or none that names a home: one may be written there.
            self._add_folder(os.path.dirname(config))
            self._add(config)
        if len(homes) > _MOST_HOMES:
            raise ValueError(f"pyvenv.cfg names {len(homes)} homes")
        for home in homes:
            self._add_folder(home)
            if not os.path.isabs(home):
                self.writable.setdefault(path, _BY_DIRECTORY)
        prefix = os.path.dirname(os.path.dirname(path))
        for library in _standard_libraries(prefix, None):
            for folder in (os.path.dirname(library), library, f"{library}/site-packages"):
                self._add_folder(folder)
        head = _head(real)
        if head.startswith(b"#!"):
            # A script of ours runs what we wrote into it, by what its first line names.
            for word in head[2:].split(maxsplit=1)[:1]:
                self._add(os.fsdecode(word))
                if not word.startswith(b"/"):
                    self.writable.setdefault(real, _BY_DIRECTORY)
            return
        named = _VERSIONED.match(os.path.basename(real))
        for home in homes or [os.path.dirname(real)]:
            self._add_library_of(home, named[1] if named else None)

    def _add_library_of(self, folder: str, version: str | None) -> None:
        """The standard library, where Python looks for it: upwards from the interpreter."""
        level = os.path.abspath(folder)
        while True:
            # Also where there is none: whoever may write here could put one here.
            self._add_folder(level)
            there = [
                library
                for library in _standard_libraries(level, version)
                if any(os.path.exists(os.path.join(library, name)) for name in _LANDMARKS)
            ]
            for library in there:
                self._add_folder(library)
                self._add_entries(library)
            for lib in {os.path.dirname(library) for library in there}:
                self._add_folder(lib)
                for name in os.listdir(lib):
                    if name.startswith("libpython"):
                        self._add(os.path.join(lib, name))
            # Its version is not always told by its name: then the library may be one further up.
            if level == "/" or (there and version is not None):
                return
            level = os.path.dirname(level)

    def _add_entries(self, library: str) -> None:
        """What lies in the library itself. For what is deeper, its folders speak."""
        if library in self._libraries:
            return
        self._libraries.add(library)
        with os.scandir(library) as entries:
            for entry in entries:
                self._judge(entry.path, entry.stat(follow_symlinks=False), may_be_sticky=False)

    def _add_folder(self, path: str) -> None:
        """One in which things are looked up by names that may not be there yet."""
        place = self._add(path)
        if place in self._seen:
            self._judge(place, self._seen[place], may_be_sticky=False)

    def _add(self, path: str) -> str:
        """All that decides what a path leads to, from the root down; where it leads to."""
        current = "/"
        self._see(current)
        waiting = path.split("/")[::-1]
        links = 0
        while waiting:
            name = waiting.pop()
            if name in ("", "."):
                continue
            if name == "..":
                current = os.path.dirname(current)
                continue
            place = os.path.join(current, name)
            try:
                facts = self._see(place)
            except (FileNotFoundError, NotADirectoryError):
                # Whoever may write here decides what will be there.
                self._judge(current, self._see(current), may_be_sticky=False)
                return os.path.join(place, *waiting[::-1])
            if not stat.S_ISLNK(facts.st_mode):
                current = place
                continue
            links += 1
            if links > _MOST_LINKS:
                raise ValueError(f"{path} leads through more than {_MOST_LINKS} links")
            target = os.readlink(place)
            if target.startswith("/"):
                current = "/"
            waiting += target.split("/")[::-1]
        return current

    def _see(self, place: str) -> os.stat_result:
        if place not in self._seen:
            self._seen[place] = os.lstat(place)
            self._judge(place, self._seen[place], may_be_sticky=True)
        return self._seen[place]

    def _judge(self, place: str, facts: os.stat_result, *, may_be_sticky: bool) -> None:
        """`may_be_sticky`: in a folder such as /tmp nobody can remove or rename what is another's,
        so it may be on the way to something of ours. It is no place to look for something in."""
        if not _is_trusted(facts.st_uid):
            self.strangers.setdefault(facts.st_uid, place)
        if stat.S_ISLNK(facts.st_mode):
            return  # nobody writes to a link
        if may_be_sticky and stat.S_ISDIR(facts.st_mode) and facts.st_mode & stat.S_ISVTX:
            return
        if facts.st_mode & stat.S_IWOTH:
            self.writable.setdefault(place, "everybody")
        elif facts.st_mode & stat.S_IWGRP and not _is_private(place, facts.st_gid):
            self.writable.setdefault(place, _group(facts.st_gid))


def _is_trusted(uid: int) -> bool:
    return uid in (0, os.geteuid())


def _is_private(place: str, gid: int) -> bool:
    """Whether a group is of nobody but root and us: many systems give each user one, and let it
    write what the user writes."""
    # With access lists these bits of the mode tell what the lists allow to anybody.
    return _has_trusted_members_only(gid) and not _has_access_list(place)


@functools.cache
def _has_trusted_members_only(gid: int) -> bool:
    try:
        named = {pwd.getpwnam(name).pw_uid for name in grp.getgrgid(gid).gr_mem}
    except KeyError:
        return False  # who is in it cannot be told
    return all(
        map(_is_trusted, named | {one.pw_uid for one in pwd.getpwall() if one.pw_gid == gid})
    )


def _has_access_list(place: str) -> bool:
    try:
        return _ACL in os.listxattr(place)
    except OSError:
        return False  # a file system without


def _head(path: str) -> bytes:
    try:
        with open(path, "rb", opener=open_regular) as file:
            return file.read(_SCRIPT_HEAD).partition(b"\n")[0]
    except OSError:
        return b""  # one that cannot be read may be run all the same


def _configs(path: str) -> list[str]:
    """Where Python looks for pyvenv.cfg: beside it, or above; and older ones behind the links."""
    folders = [os.path.dirname(place) for place in (path, os.path.realpath(path))]
    both = [place for folder in folders for place in (folder, os.path.dirname(folder))]
    return [os.path.join(folder, "pyvenv.cfg") for folder in dict.fromkeys(both)]


def _homes(path: str) -> list[str]:
    """What they name as `home`: where the interpreter is that the venv was made from."""
    found: dict[str, None] = {}
    for config in _configs(path):
        try:
            text = read_bounded(config, _MOST_CONFIG_BYTES).decode("utf-8", "surrogateescape")
        except FileRefused as error:
            raise RelayError(
                Code.LAUNCH_INTERPRETER_NOT_FOUND,
                f"{path} cannot be run: {config} {error.words}",
                "Make the venv anew, or give another python_path.",
                python_path=path,
            ) from None
        except OSError:
            continue
        for line in text.splitlines():
            name, _, value = line.partition("=")
            if name.strip().lower() == "home":
                found[value.strip()] = None
    return list(found)


def _standard_libraries(prefix: str, version: str | None) -> Iterator[str]:
    for lib in (os.path.join(prefix, name) for name in _LIBRARIES):
        try:
            names = os.listdir(lib)
        except OSError:
            continue
        for name in names:
            found = _VERSIONED.fullmatch(name)
            if found is not None and version in (None, found[1]):
                yield os.path.join(lib, name)


def _refused(path: str, parts: _Parts, found: bool) -> RelayError:
    reasons = [f"{place} belongs to {_name(uid)}" for uid, place in parts.strangers.items()]
    reasons += [f"{place} can be changed by {who}" for place, who in parts.writable.items()]
    if not found:
        what = "is not run: what it runs belongs to several users"
    else:
        what = "was found in the project and is not run: others decide what it runs"
    if parts.strangers and os.geteuid() == 0:
        advice = "Give python_path an interpreter of root's, or run a relay as its owner."
    else:
        advice = f"If you trust it, name it: give python_path as {path}."
    if found and not parts.strangers:
        advice += f" Or take that right away: chmod go-w {next(iter(parts.writable))}"
    return RelayError(
        Code.LAUNCH_INTERPRETER_NOT_FOUND,
        f"{path} {what} ({'; '.join(reasons[:3])})",
        advice,
        python_path=path,
    )


def _unseen(path: str, error: OSError | ValueError) -> RelayError:
    told = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
    return RelayError(
        Code.LAUNCH_INTERPRETER_NOT_FOUND,
        f"{path} cannot be run: who owns it cannot be told ({told})",
        "Give another python_path.",
        python_path=path,
    )


def _name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _group(gid: int) -> str:
    try:
        return f"the group {grp.getgrgid(gid).gr_name}"
    except KeyError:
        return f"the group {gid}"
