"""Python that is started indirectly: by the first line of a script, or by a shell.

Both are taken apart only where it is plain what the kernel or the shell would make of them; all
else is left as it is. What is a command's name is looked for where they would look.
"""

import os
import re

_LINE_BYTES = 256  # The first line of a script; the kernel reads no further.
_SHELLS = ("sh", "bash", "dash")
# Characters that are nothing to a shell, and quotes in which nothing is.
_WORD = re.compile(r"""[ \t]*((?:[\w%+,./:=@-]|'[^']*'|"[^"$`\\]*")+)(?=[ \t]|\Z)""")
_PIECE = re.compile(r"""'([^']*)'|"([^"]*)"|([^'"]+)""")
# Whatever file there is of that name.
_BUILT_IN = (
    " . : alias bg bind break builtin caller case cd command compgen complete compopt continue "
    "coproc declare dirs disown echo enable eval exec exit export false fc fg for function getopts "
    "hash help history if jobs kill let local logout mapfile popd printf pushd pwd read readarray "
    "readonly return select set shift shopt source suspend test time times trap true type typeset "
    "ulimit umask unalias unset until wait while "
)


def name_of(path):
    # `os.path` is code in Python, and called by the program: a breakpoint in there is not for us.
    return path.rpartition("/")[2]


def seen_from(folder, path):
    """The path, where `folder` is to be the current one."""
    return path if path.startswith("/") or not folder else folder + "/" + path


def located(name, paths, folder):
    """The file that a command's name means where `folder` is the current one; None if none."""
    folders = [""] if "/" in name else [(path or ".") + "/" for path in paths.split(":")]
    files = [seen_from(folder, path + name) for path in folders]
    return next((file for file in files if os.access(file, os.X_OK)), None)


def by_first_line(file, path, words, paths, folder):
    """What the kernel starts for a script of Python's, and with which words; None if it is none.
    `path` is how the script was called."""
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
        # Not blocking: it may be a pipe.
        script = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            return os.read(script, _LINE_BYTES).partition(b"\n")[0]
        finally:
            os.close(script)
    except OSError:
        return b""


def by_shell(path, words):
    """The words of the one simple command that a shell is to run; else None."""
    if name_of(path) not in _SHELLS or len(words) != 3 or words[1] != "-c":
        return None
    return simple(words[2])


def simple(command):
    """The words of a command with which a shell does nothing but to part them; else None."""
    words, at, text = [], 0, command.rstrip(" \t")
    while at < len(text):
        found = _WORD.match(text, at)
        if found is None:
            return None
        words.append("".join(map("".join, _PIECE.findall(found.group(1)))))
        at = found.end()
    return words if words and " %s " % words[0] not in _BUILT_IN else None


def spelt(words):
    """For a shell: the command of these words."""
    return " ".join("'%s'" % word.replace("'", "'\"'\"'") for word in words)
