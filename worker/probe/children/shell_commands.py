"""Finds a Python that is started indirectly: by the first line of a script, or by a shell.

It parses only lines and commands whose meaning to the kernel or the shell is certain, and leaves
all others as they are. It looks for a command's file where the kernel or the shell would.
"""

import os
import re

_LINE_BYTES = 256  # The first line of a script; the kernel reads no further.
_SHELLS = ("sh", "bash", "dash")
# Characters without a meaning to a shell, and quoted text without any.
_WORD = re.compile(r"""[ \t]*((?:[\w%+,./:=@-]|'[^']*'|"[^"$`\\]*")+)(?=[ \t]|\Z)""")
_PIECE = re.compile(r"""'([^']*)'|"([^"]*)"|([^'"]+)""")
# The shell runs these itself, even if there is a file of that name.
_BUILT_IN = (
    " . : alias bg bind break builtin caller case cd command compgen complete compopt continue "
    "coproc declare dirs disown echo enable eval exec exit export false fc fg for function getopts "
    "hash help history if jobs kill let local logout mapfile popd printf pushd pwd read readarray "
    "readonly return select set shift shopt source suspend test time times trap true type typeset "
    "ulimit umask unalias unset until wait while "
)


def name_of(path):
    # We do not use `os.path`, because it is Python code: a breakpoint of the user in it would hit.
    return path.rpartition("/")[2]


def seen_from(folder, path):
    """The path as seen with `folder` as the current directory."""
    return path if path.startswith("/") or not folder else folder + "/" + path


def located(name, paths, folder):
    """The file that a command's name means with `folder` as the current directory, or None."""
    folders = [""] if "/" in name else [(path or ".") + "/" for path in paths.split(":")]
    files = [seen_from(folder, path + name) for path in folders]
    return next((file for file in files if os.access(file, os.X_OK)), None)


def by_first_line(file, path, words, paths, folder):
    """The interpreter that the kernel starts for a script, and its command line; None if the file
    is no script. `path` is the path by which the script was called.
    """
    line = _first_line(file)
    if not line.startswith(b"#!"):
        return None
    name, _, option = os.fsdecode(line[2:]).replace("\t", " ").strip(" ").partition(" ")
    option = option.strip(" ")
    interpreter, options = name, [option] if option else []
    if name_of(name) == "env":
        name, options = option, []
        interpreter = located(name, paths, folder) if name and " " not in name else None
    if not interpreter:
        return None
    return interpreter, [name] + options + [path] + words[1:]


def _first_line(file):
    if not os.access(file, os.X_OK):
        return b""
    try:
        # Opened without blocking, because it may be a pipe.
        script = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            return os.read(script, _LINE_BYTES).partition(b"\n")[0]
        finally:
            os.close(script)
    except OSError:
        return b""


def by_shell(path, words):
    """The words of the one simple command that a shell will run; otherwise None."""
    if name_of(path) not in _SHELLS or len(words) != 3 or words[1] != "-c":
        return None
    return simple(words[2])


def simple(command):
    """The words of a command that a shell only splits into words; otherwise None."""
    words, at, text = [], 0, command.rstrip(" \t")
    while at < len(text):
        found = _WORD.match(text, at)
        if found is None:
            return None
        words.append("".join(map("".join, _PIECE.findall(found.group(1)))))
        at = found.end()
    return words if words and " %s " % words[0] not in _BUILT_IN else None


def spelt(words):
    """The shell command with these words, quoted."""
    return " ".join("'%s'" % word.replace("'", "'\"'\"'") for word in words)
