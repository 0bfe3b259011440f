"""The output of a child process goes to the relay by pipes of its own, so that it is known whose it
is. Only what would have gone where the program's own output goes is moved.
"""

import os
import stat


def move(known, pipes):
    """`known` says of the inodes of the session's pipes what they are; `pipes` are the new ones.
    Returns which of these are in use now."""
    used = set()
    for fd in (1, 2):
        try:
            facts = os.fstat(fd)
            name = known.get(str(facts.st_ino)) if stat.S_ISFIFO(facts.st_mode) else None
            if name is None:
                continue
            pipe = os.open(pipes[name], os.O_WRONLY)
        except OSError:
            continue  # closed, or not ours to open: it stays as it is
        os.dup2(pipe, fd)
        os.close(pipe)
        used.add(name)
    return sorted(used)
