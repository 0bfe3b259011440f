"""Decides as which user an interpreter may run, from who owns and who may change the code it would
run.

One function decides, for questions to an interpreter and for launches. It looks at files and runs
nothing. It does not know how an interpreter is found or started.

An interpreter runs more than its own file: it also runs its standard library, which it finds by its
place in the file system or by `home` in pyvenv.cfg. Whoever owns one of these files, or a folder or
link on the way there, decides what runs. So we check every component of every path, from the root
down, one link at a time (as sshd does for StrictModes).

We check names and start by name. Between the two somebody might exchange the file. He must then be
able to write to it or to a folder on its path, which this check refuses: for an interpreter that
was found in a project always, for one that its caller named if root would run it as root. Each
component is checked after its parent folder, so from that moment on nobody else can exchange it. An
interpreter of another user runs as that user, who gains nothing.

That leaves an interpreter that a caller named in a folder to which others may write. Starting it by
a descriptor (`posix_spawn` of `/proc/self/fd/N`, or `os.execve(fd)`, with the path as `argv[0]`)
was tried on 3.8 to 3.13 and does not close that race:
- Python opens everything else by name. Whoever could exchange `bin/python` writes `pyvenv.cfg`
  beside it instead, or `lib/python3.X/site-packages/sitecustomize.py`: it ran, although the
  descriptor was that of the file that had been checked. He may also overwrite the file in place,
  which keeps its inode.
- An interpreter that is a script, such as pyenv's, does not start: the shell opens
  `/proc/self/fd/N`, which the exec has closed. A descriptor that stays open is seen by the program.
- `sys.executable` and the venv are right, but `ps -o comm`, `pgrep -x` and top show "7" (before
  Linux 6.14 also after `os.execve(fd)`).
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
from debug_relay.protocol.system.users import user

_MOST_LINKS: Final = 40  # Symbolic links on the way to an interpreter; the kernel's own bound.
_MOST_CONFIG_BYTES: Final = 1 << 20  # A pyvenv.cfg.
_MOST_HOMES: Final = 4  # Virtual environments that lead from one to the next.
_SCRIPT_HEAD_BYTES: Final = 256  # The first line of a script.
_VERSIONED: Final = re.compile(r"python(3\.\d+)t?")
_LIBRARIES: Final = ("lib", "lib64")
_LANDMARKS: Final = ("os.py", "os.pyc")
_BY_DIRECTORY: Final = "whoever chooses the current directory: it names a relative path"
_ACL: Final = "system.posix_acl_access"


def user_for(paths: Iterable[str], *, found: bool) -> int | None:
    """The user as whom to start an interpreter; None means ourselves. `paths` all decide what it
    runs.

    An interpreter that was `found` in a project, and not named by the caller, runs only if its
    parts belong to root or us and nobody else may change them. A named interpreter is its caller's
    choice, but root runs another user's code only as that user. Everything else is refused with the
    reason.
    """
    # The interpreter that runs this worker needs no check: its owner controls us already.
    chosen = [path for path in dict.fromkeys(paths) if path != sys.executable]
    parts = _Parts()
    for path in chosen:
        try:
            homes = _homes(path)  # refuses files that would block the interpreter itself
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

    A program of another user needs files and sockets of this relay, which that user cannot reach.
    """
    owner = user_for(paths, found=found)
    if owner is not None:
        raise RelayError(
            Code.LAUNCH_INTERPRETER_NOT_FOUND,
            f"{paths[0]} is not run as root: it, or code that it runs, belongs to {user(owner)}",
            f"Run a relay as {user(owner)}, or give python_path an interpreter of root's.",
            python_path=paths[0],
        )


class _Parts:
    """The parts that decide which code runs, as far as they are not only root's or ours."""

    def __init__(self) -> None:
        self.strangers: dict[int, str] = {}  # uid → a part that this other user owns
        self.writable: dict[str, str] = {}  # path that others may change → who may change it
        self._seen: dict[str, os.stat_result] = {}
        self._libraries: set[str] = set()

    def add_interpreter(self, path: str, homes: list[str]) -> None:
        """Checks an interpreter; `homes` are the ones that its pyvenv.cfg names."""
        real = self._add(path)
        for config in _configs(path):
            # We check the folder even without a pyvenv.cfg, because one could be written there.
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
            # A script that is root's or ours runs the interpreter that its first line names.
            for word in head[2:].split(maxsplit=1)[:1]:
                self._add(os.fsdecode(word))
                if not word.startswith(b"/"):
                    self.writable.setdefault(real, _BY_DIRECTORY)
            return
        named = _VERSIONED.match(os.path.basename(real))
        for home in homes or [os.path.dirname(real)]:
            self._add_library_of(home, named[1] if named else None)

    def _add_library_of(self, folder: str, version: str | None) -> None:
        """Checks the standard library where Python searches it: upwards from the interpreter."""
        level = os.path.abspath(folder)
        while True:
            # We check each folder even if it has no library, because one could be put there.
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
            # The file name does not always contain the version; then the library may be further up.
            if level == "/" or (there and version is not None):
                return
            level = os.path.dirname(level)

    def _add_entries(self, library: str) -> None:
        """Checks the library's own entries. Deeper files are protected by their folders."""
        if library in self._libraries:
            return
        self._libraries.add(library)
        with os.scandir(library) as entries:
            for entry in entries:
                self._examine(entry.path, entry.stat(follow_symlinks=False), may_be_sticky=False)

    def _add_folder(self, path: str) -> None:
        """Checks a folder in which Python looks up names that may not exist yet."""
        place = self._add(path)
        if place in self._seen:
            self._examine(place, self._seen[place], may_be_sticky=False)

    def _add(self, path: str) -> str:
        """Checks everything that decides where a path leads, from the root down; returns the
        destination.
        """
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
                # Anyone who may write to this folder decides what the missing name will be.
                self._examine(current, self._see(current), may_be_sticky=False)
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
            self._examine(place, self._seen[place], may_be_sticky=True)
        return self._seen[place]

    def _examine(self, place: str, facts: os.stat_result, *, may_be_sticky: bool) -> None:
        """Records whether others own or may change this place.

        `may_be_sticky`: in a folder such as /tmp, nobody can remove or rename another user's files,
        so it may lie on the way to a file of ours. But names must not be looked up in such a
        folder.
        """
        if not _is_trusted(facts.st_uid):
            self.strangers.setdefault(facts.st_uid, place)
        if stat.S_ISLNK(facts.st_mode):
            return  # a link itself cannot be written to
        if may_be_sticky and stat.S_ISDIR(facts.st_mode) and facts.st_mode & stat.S_ISVTX:
            return
        if facts.st_mode & stat.S_IWOTH:
            self.writable.setdefault(place, "everybody")
        elif facts.st_mode & stat.S_IWGRP and not _is_private(place, facts.st_gid):
            self.writable.setdefault(place, _group(facts.st_gid))


def _is_trusted(uid: int) -> bool:
    return uid in (0, os.geteuid())


def _is_private(place: str, gid: int) -> bool:
    """Whether only root and we are members of a group: many systems give each user a group of his
    own and let it write whatever the user may write.
    """
    # With an access list, the group bits of the mode show what the list allows anybody.
    return _has_trusted_members_only(gid) and not _has_access_list(place)


@functools.cache
def _has_trusted_members_only(gid: int) -> bool:
    try:
        named = {pwd.getpwnam(name).pw_uid for name in grp.getgrgid(gid).gr_mem}
    except KeyError:
        return False  # its members are unknown
    return all(
        map(_is_trusted, named | {one.pw_uid for one in pwd.getpwall() if one.pw_gid == gid})
    )


def _has_access_list(place: str) -> bool:
    try:
        return _ACL in os.listxattr(place)
    except OSError:
        return False  # a file system without extended attributes


def _head(path: str) -> bytes:
    try:
        with open(path, "rb", opener=open_regular) as file:
            return file.read(_SCRIPT_HEAD_BYTES).partition(b"\n")[0]
    except OSError:
        return b""  # an unreadable file may still be executable


def _configs(path: str) -> list[str]:
    """The places in which Python looks for pyvenv.cfg: beside the interpreter or one folder up;
    older Pythons resolve links first.
    """
    folders = [os.path.dirname(place) for place in (path, os.path.realpath(path))]
    both = [place for folder in folders for place in (folder, os.path.dirname(folder))]
    return [os.path.join(folder, "pyvenv.cfg") for folder in dict.fromkeys(both)]


def _homes(path: str) -> list[str]:
    """The `home` values of these files: the folder of the interpreter from which the venv
    was made.
    """
    found: dict[str, None] = {}
    for config in _configs(path):
        try:
            text = read_bounded(config, _MOST_CONFIG_BYTES).decode("utf-8", "surrogateescape")
        except FileRefused as error:
            raise RelayError(
                Code.LAUNCH_INTERPRETER_NOT_FOUND,
                f"{path} cannot be run: {config} {error.words}",
                "Recreate the venv, or give another python_path.",
                python_path=path,
            ) from None
        except OSError:
            continue  # there is no such file
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
            continue  # there is no such folder
        for name in names:
            found = _VERSIONED.fullmatch(name)
            if found is not None and version in (None, found[1]):
                yield os.path.join(lib, name)


def _refused(path: str, parts: _Parts, found: bool) -> RelayError:
    reasons = [f"{place} belongs to {user(uid)}" for uid, place in parts.strangers.items()]
    reasons += [f"{place} can be changed by {who}" for place, who in parts.writable.items()]
    if not found:
        what = "is not run: code that it runs belongs to several users"
    else:
        what = "was found in the project and is not run: other users can change what it runs"
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
    reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
    return RelayError(
        Code.LAUNCH_INTERPRETER_NOT_FOUND,
        f"{path} cannot be run: its owner cannot be determined ({reason})",
        "Give another python_path.",
        python_path=path,
    )


def _group(gid: int) -> str:
    try:
        return f"the group {grp.getgrgid(gid).gr_name}"
    except KeyError:
        return f"the group {gid}"
