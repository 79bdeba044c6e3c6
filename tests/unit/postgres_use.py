"""How tests use a PostgreSQL of their own: letters and queues that a URL names, and what its administrator sees and does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import asyncpg

from dev.engines.registry import ENGINES
from redrive.backends.postgres import PostgresLetters, PostgresQueues, opened
from redrive.testing.servers import Server

PATIENCE_SECONDS = 120
"""How long anything may take."""


def own_server() -> Iterator[Server]:
    """For a fixture of a module whose tests end other people's sessions, or count what the whole server does."""
    with ENGINES["postgres"].make(durable=False) as server:
        assert isinstance(server, Server)
        yield server


@asynccontextmanager
async def used(url: str, more: str = "") -> AsyncIterator[PostgresLetters]:
    letters = opened(url.partition(":")[2] + more).letters
    assert isinstance(letters, PostgresLetters)
    async with asyncio.timeout(PATIENCE_SECONDS):
        try:
            yield letters
        finally:
            await letters.close()


@asynccontextmanager
async def used_queues(url: str) -> AsyncIterator[PostgresQueues]:
    queues = opened(url.partition(":")[2]).queues
    assert isinstance(queues, PostgresQueues)
    async with asyncio.timeout(PATIENCE_SECONDS):
        try:
            yield queues
        finally:
            await queues.close()


@asynccontextmanager
async def administrator(server: Server) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(server.url)
    try:
        yield connection
    finally:
        await connection.close()
