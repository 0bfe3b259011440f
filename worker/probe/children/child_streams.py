"""Gives a child process pipes of its own for its output, so that the relay knows whose output it
is. Only streams that would go into the program's own pipes are moved.
"""

import os
import stat


def move(known, pipes):
    """Move the streams. `known` maps the inodes of the session's pipes to stream names, `pipes`
    stream names to the paths of the new pipes. Returns the names that were moved.
    """
    used = set()
    for fd in (1, 2):
        try:
            facts = os.fstat(fd)
            name = known.get(str(facts.st_ino)) if stat.S_ISFIFO(facts.st_mode) else None
            if name is None:
                continue
            pipe = os.open(pipes[name], os.O_WRONLY)
        except OSError:
            continue  # the stream is closed, or we may not open the pipe: it stays as it is
        os.dup2(pipe, fd)
        os.close(pipe)
        used.add(name)
    return sorted(used)
