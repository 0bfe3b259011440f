"""Changes of source files, as they are noticed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from debug_relay.worker.breakpoints.source_changes import SourceWatch, identity


async def test_a_file_is_not_read_while_it_is_being_written(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("before\n")
    read: list[str] = []
    noticed = asyncio.Event()

    async def changed(paths: set[str]) -> None:
        assert paths == {str(file)}
        read.append(file.read_text())
        noticed.set()

    watch = SourceWatch(lambda: {str(file): False}, changed)
    watch.seen({str(file): identity(str(file))})
    lines = [f"line {number}\n" for number in range(80)]
    with file.open("w") as out:  # longer than until the first look
        for line in lines:
            out.write(line)
            out.flush()
            await asyncio.sleep(0.01)
    async with asyncio.timeout(10):
        await noticed.wait()
    await watch.close()
    assert read == ["".join(lines)]
