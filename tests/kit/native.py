"""Native programs, and the debuggers that connect to them."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.client import Session

WITHIN = 60.0

PROGRAM = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int total;

int add(int n) {
    total += n;
    return total;
}

static void goodbye(int number) {
    (void)number;
    write(1, "goodbye\n", 8);
    _exit(3);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 2; i < argc; i++) printf("argument %s\n", argv[i]);
    fprintf(stderr, "to stderr\n");
    for (int i = 1; i <= 3; i++) printf("total %d\n", add(i));
    if (!strcmp(how, "read")) {
        char line[100];
        if (fgets(line, sizeof line, stdin)) printf("read %s", line);
    }
    if (!strcmp(how, "environment") && getchar() == EOF)
        printf("%s %s\n", getenv("DEBUG_SESSION_URI"), getenv("DEBUG_SESSION_TOKEN"));
    if (!strcmp(how, "terminal")) printf("terminal %d\n", isatty(0));
    if (!strcmp(how, "crash")) abort();
    if (!strcmp(how, "child") && fork() == 0) {
        setsid();
        for (;;) pause();
    }
    if (!strcmp(how, "allocate")) {
        char *memory = malloc(400 << 20);
        memset(memory, 1, 400 << 20);
    }
    if (!strcmp(how, "handle")) signal(SIGTERM, goodbye);
    if (!strcmp(how, "read") || !strcmp(how, "end") || !strcmp(how, "environment")) return 7;
    if (!strcmp(how, "terminal")) return 7;
    for (;;) {
        add(0);
        usleep(20000);
    }
}
"""


def needs(*tools: str) -> pytest.MarkDecorator:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def compiled(folder: Path, text: str = PROGRAM) -> Path:
    """The program, in the folder."""
    source, program = folder / "native.c", folder / "native"
    source.write_text(text)
    subprocess.run(
        ["gcc", "-g", "-O0", "-w", "-o", str(program), str(source)], check=True, timeout=WITHIN
    )
    return program


def port_of(session: Session) -> int:
    return int(session.get().ok()["debugger"]["uri"].rpartition(":")[2])


def gdb_command(target: str, *commands: str) -> list[str]:
    return _gdb(["-ex", f"target remote {target}"], commands)


def _gdb(connecting: list[str], commands: Iterable[str]) -> list[str]:
    quiet = ["gdb", "-q", "--batch", "-nx", "-iex", "set sysroot /", "-iex"]
    quiet += ["set debuginfod enabled off", "-iex", "set auto-load off"]
    return quiet + connecting + [word for line in commands for word in ("-ex", line)]


def lldb_command(port: int, *commands: str) -> list[str]:
    return _lldb(["-o", f"gdb-remote 127.0.0.1:{port}"], commands)


def _lldb(connecting: list[str], commands: Iterable[str]) -> list[str]:
    plain = ["lldb", "-x", "-b", "-o", "settings set use-color false"]
    return plain + connecting + [word for line in commands for word in ("-o", line)]


def documented_command(line: str, *commands: str) -> list[str]:
    """A debugger's command line as a guide has it, and what is typed to the debugger then."""
    name, *connecting = shlex.split(line)
    return {"gdb": _gdb, "lldb": _lldb}[name](connecting, commands)


def said(command: list[str], **options: Any) -> str:
    """All that a debugger has said."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=WITHIN,
        check=False,
        **options,
    )
    return done.stdout.decode(errors="replace")


class RawDebugger:
    """A debugger's connection, byte by byte."""

    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer
        peer.settimeout(WITHIN)
        self._unread = b""
        self.acks = True

    @classmethod
    def of(cls, session: Session) -> RawDebugger:
        return cls(socket.create_connection(("127.0.0.1", port_of(session)), WITHIN))

    def __enter__(self) -> RawDebugger:
        return self

    def __exit__(self, *_: object) -> None:
        self.peer.close()

    def send(self, text: str) -> None:
        self.peer.sendall(packet(text))

    def ask(self, text: str) -> str:
        self.send(text)
        return self.packet()

    def packet(self) -> str:
        return expanded(self.raw_packet()).decode()

    def raw_packet(self) -> bytes:
        """A packet as it is on the wire, without the signs around it."""
        while b"#" not in self._unread or len(self._unread.partition(b"#")[2]) < 2:
            piece = self.peer.recv(65536)
            assert piece, self._unread
            self._unread += piece
        body, _, rest = self._unread.partition(b"#")
        self._unread = rest[2:]
        if self.acks:
            self.peer.sendall(b"+")
        return body.partition(b"$")[2]


def expanded(data: bytes) -> bytes:
    """Without run-length encoding: a star and how often the byte before it comes again."""
    return re.sub(rb"(.)\*(.)", lambda run: run[1] * (run[2][0] - 28), data, flags=re.DOTALL)


def packet(text: str) -> bytes:
    data = text.encode()
    return b"$%b#%02x" % (data, sum(data) & 0xFF)
