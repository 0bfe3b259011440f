"""The debugger's connection, which checks that its descriptor is still its own.

A program that becomes a daemon closes all descriptors, and opens files of its own, which get the
same numbers. From then on a read, write, shutdown or close by the number would hit the program's
file. A read that waits keeps the connection open although its descriptor is closed, and neither
side would notice; so the read ends from time to time and checks again.
"""

import _socket
import os
import struct

# One receive on the connection: the program may replace its descriptor meanwhile.
_LOOK_SECONDS = 0.5
# The original functions: the program or gevent may replace them.
_fstat = os.fstat
_Socket = _socket.socket


class GuardedSocket(_Socket):
    def __init__(self, sock):
        family, kind, number = sock.family, sock.type, sock.proto
        _Socket.__init__(self, family, kind, number, fileno=sock.detach())
        self.settimeout(None)  # the program may have set another default
        self._identity = self._look()
        # The kernel's own timeout for receiving; sending has no bound and needs none.
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
        """Whether the descriptor is still the connection's. If not, the socket gives it up, and
        every use of it fails as with a closed socket.
        """
        if self.fileno() >= 0 and self._look() != self._identity:
            self.detach()
        return self.fileno() >= 0

    def recv(self, *args):
        while True:
            self.is_own()
            try:
                return _Socket.recv(self, *args)
            except BlockingIOError:
                continue  # the timeout of a read is over: look whether the socket is still ours

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
        """Close safely: Python's own `__del__` would close the number even if it is the
        program's.
        """
        try:
            self.close()
        except Exception:  # noqa: S110  at the program's end nothing is sure to be there
            pass
