"""The debugger's connection, which knows whether its descriptor is still its own.

A program that becomes a daemon closes every descriptor there is, and opens files of its own, which
get the same numbers. From then on the number is the program's: who reads, writes, shuts or closes
by it would do that to its file. A read that waits keeps the connection open though its descriptor
is closed, so that neither side would know; it looks again from time to time.
"""

import _socket
import os
import struct

# One receive on the connection: the program may replace its descriptor meanwhile.
_LOOK_SECONDS = 0.5
# Whatever the program, or gevent, has in their places.
_fstat = os.fstat
_Socket = _socket.socket


class OwnSocket(_Socket):
    def __init__(self, sock):
        family, kind, number = sock.family, sock.type, sock.proto
        _Socket.__init__(self, family, kind, number, fileno=sock.detach())
        self.settimeout(None)  # whatever the program has as its default
        self._identity = self._look()
        # For the kernel to do: what is sent has no bound, and needs none.
        seconds, rest = divmod(_LOOK_SECONDS, 1)
        patience = struct.pack("ll", int(seconds), int(rest * 1000000))
        self.setsockopt(_socket.SOL_SOCKET, _socket.SO_RCVTIMEO, patience)

    def _look(self):
        try:
            found = _fstat(self.fileno())
        except (OSError, ValueError):
            return None
        return found.st_dev, found.st_ino

    def is_own(self):
        """When it is not it has no descriptor from here on, and every use of it fails as one of a
        closed socket does."""
        if self.fileno() >= 0 and self._look() != self._identity:
            self.detach()
        return self.fileno() >= 0

    def recv(self, *args):
        while True:
            self.is_own()
            try:
                return _Socket.recv(self, *args)
            except BlockingIOError:
                continue

    def sendall(self, *args):
        self.is_own()
        return _Socket.sendall(self, *args)

    def shutdown(self, how):
        self.is_own()
        return _Socket.shutdown(self, how)

    def close(self):
        self.is_own()
        return _Socket.close(self)

    def __del__(self):
        """Instead of Python's own, which closes the number whosever it is."""
        try:
            self.close()
        except Exception:  # noqa: S110  at the program's end nothing is sure to be there
            pass
