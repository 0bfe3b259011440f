"""A program that another owner has started: output, input and children are the owner's."""

from __future__ import annotations

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.worker.system.descendants import Ended


class UnownedProgram:
    """It ran before us and outlives us. A subclass knows how to debug it."""

    attached = True

    def wake(self) -> None:
        """Nothing to do: we send no signals to a program that we did not start."""

    def state_changed(self) -> None:
        """Nothing to do."""

    def flush_output(self) -> None:
        """Nothing to do: the program writes to where its owner sent its output."""

    async def write_input(self, data: bytes, eof: bool) -> None:
        raise RelayError(
            Code.ATTACH_UNSUPPORTED,
            "The relay cannot write to the standard input of an attached program",
            "Write to the terminal or pipe that it was started with, or launch it instead.",
        )

    async def end_children(self) -> list[Ended]:
        return []  # they belong to the program's owner

    def kept_pipes(self) -> list[int]:
        return []
