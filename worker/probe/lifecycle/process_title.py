"""The process's command line as `ps` and `pgrep -f` show it: that of the program.

The kernel reads it from the process's own memory, between two addresses that only a privileged
process may move. So the words are written over those that we were started by, and nothing behind
them is touched: the environment follows there. Where they are as long, as the worker sees to, the
kernel shows them word by word. Where they are shorter it shows one text, the words with spaces
between them: that is its rule for a title, and a last byte that is not NUL asks for it.
"""

import os

_START, _END = 45, 46  # fields of /proc/self/stat behind the name: the arguments' addresses


def given():
    """The address of the words that the process was started by, and the words."""
    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    start, end = int(fields[_START]), int(fields[_END])
    memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.pread(memory, end - start, start)
    finally:
        os.close(memory)
    if len(there) != end - start or there[-1:] != b"\0":
        raise ValueError("somebody has a title there already")
    return start, there[:-1].split(b"\0")


def show(wanted_of):
    """Show what `wanted_of` makes of those words, if it fits; else they stay."""
    try:
        start, words = given()
        text = fitted(wanted_of(words), sum(map(len, words)) + len(words))
        memory = os.open("/proc/self/mem", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(memory, text, start)
        finally:
            os.close(memory)
    except (OSError, ValueError, LookupError):
        pass  # the kernel does not say, or not let us: it is what it was


def fitted(words, size):
    """Exactly so many bytes, which show the words."""
    text = b"\0".join(words) + b"\0"
    if len(text) > size:
        raise ValueError("there is no room for it")
    if len(text) < size:
        text = text[:-1].replace(b"\0", b" ") + b"\0"
        text += b" " * (size - len(text))
    return text
