"""The load through stacks on asyncio: `python -m tests.bench.load.asyncio_stacks STACK ...` (see `asks`)."""

from __future__ import annotations

import asyncio
from importlib import import_module

import httpx

from tests.bench.load.asks import CHAT, HEADERS, Task, play_as_told


def play_httpx(task: Task) -> None:
    """An AsyncClient without limits."""

    async def play() -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(base_url=task.url, limits=limits, timeout=60) as client:

            async def slot() -> None:
                for ask in task.asks():
                    async with client.stream("POST", CHAT, content=ask.body, headers=HEADERS) as answer:
                        async for data in answer.aiter_raw():
                            ask.hear(data)
                    ask.end()

            await asyncio.gather(*(slot() for _ in range(task.streams)))

    asyncio.run(play())


def play_aiohttp(task: Task) -> None:
    """One session without limits."""
    aiohttp = import_module("aiohttp")

    async def play() -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(task.url, connector=connector, read_bufsize=10 * 2**20) as client:

            async def slot() -> None:
                for ask in task.asks():
                    async with client.post(CHAT, data=ask.body, headers=HEADERS) as answer:
                        async for data in answer.content.iter_any():
                            ask.hear(data)
                    ask.end()

            await asyncio.gather(*(slot() for _ in range(task.streams)))

    asyncio.run(play())


if __name__ == "__main__":
    play_as_told({"httpx": play_httpx, "aiohttp": play_aiohttp})
