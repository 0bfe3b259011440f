"""What the stories of errors share. A story makes a refusal and hands it over with `yield`; what
comes back is the error, and the rest of the story does as the error says.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_relay.protocol.errors import Code
from tests.kit.client import Answer, Client, Session
from tests.kit.listening import Listening
from tests.kit.relay import Relay
from tests.kit.running import Running
from tests.kit.source import Source

PROGRAM = """
    import time

    def work(n):
        doubled = n * 2  # @inside
        return doubled  # @next

    # a comment  @comment
    for n in range(1000):
        work(n)
"""
SLEEPING = "import time\ntime.sleep(600)\n"
NOBODY = "/sessions/sess_00000000"


@dataclass
class Scene:
    """What a story may use."""

    client: Client
    relay: Relay
    write: Callable[..., Source]
    start: Callable[..., Relay]
    folder: Path
    ends: ExitStack
    stopped: tuple[Session, Source] | None = None

    def session(self, **fields: Any) -> Session:
        return self.ends.enter_context(self.client.session(**fields))

    def at_a_stop(self) -> tuple[Session, Source]:
        """A paused session that several stories look into, one after the other."""
        self.stopped = self.stopped or self.paused()
        return self.stopped

    def paused(self, **fields: Any) -> tuple[Session, Source]:
        program = self.write(PROGRAM)
        session = self.session(**fields)
        session.break_at(program, program["inside"])
        assert session.launch(program)["status"] == "paused"
        return session, program

    def listening(self, port: int) -> Listening:
        target = Listening(self.write(SLEEPING, "sleeping.py").path, port)
        self.ends.callback(target.end)
        return target

    def process(self, *command: str) -> subprocess.Popen[bytes]:
        started = subprocess.Popen(command)
        self.ends.callback(started.wait)
        self.ends.callback(started.kill)
        return started

    def running(self) -> Running:
        """A program that nobody debugs."""
        one = Running(self.write("print('up', flush=True)\n" + SLEEPING, "running.py"))
        self.ends.callback(one.end)
        assert one.line() == "up"
        return one

    def suggested(self, error: Any, body: Any = None, **more: Any) -> Answer:
        """The call that the suggestion names, made."""
        found = re.search(r"(GET|POST|DELETE) /api/v1(\S+?)[.;,]?(\s|$)", suggestion(error))
        assert found is not None, suggestion(error)
        path = found.group(2)
        return self.client.call(found.group(1), path, body, **more)


def suggestion(error: Any) -> str:
    return str(error["details"]["suggestion"])


Story = Callable[[Scene], Generator[Answer, Any, None]]
STORIES: dict[Code, Story] = {}


def story_of(code: Code) -> Callable[[Story], Story]:
    def add(function: Story) -> Story:
        assert code not in STORIES
        STORIES[code] = function
        return function

    return add
