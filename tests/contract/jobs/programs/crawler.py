"""A crawler whose consumer never ends: one producer dies before it says so."""

from __future__ import annotations

import asyncio


async def produce(pages: asyncio.Queue[str], name: str, count: int) -> None:
    for n in range(count):
        await pages.put(f"{name}/{n}")
        if name == "b" and n == 1:
            return
    await pages.put("end")


async def consume(pages: asyncio.Queue[str], producers: int) -> int:
    ended = seen = 0
    while ended < producers:
        page = await pages.get()
        ended += page == "end"
        seen += page != "end"
    return seen


async def main() -> None:
    pages: asyncio.Queue[str] = asyncio.Queue()
    consumer = asyncio.create_task(consume(pages, 2), name="consumer")
    producers = [produce(pages, name, 3) for name in "ab"]
    running = [asyncio.create_task(one) for one in producers]
    print("serving", flush=True)
    print(await consumer, running)


asyncio.run(main())
