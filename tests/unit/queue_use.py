"""Queues to try things on: in process and over HTTP, on every store."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from redrive import wiring
from redrive.model.errors import AnswerLost, StoreUnavailable
from redrive.model.item import Item
from redrive.ports.queues import QueueStore
from redrive.queues import QueueClient, Queues
from redrive.queues.verbs import Limits
from redrive.serve.http.queues import PREFIX, QueueSurface
from redrive.serve.http.server import bound, serving
from redrive.serve.http.surface import Surface
from redrive.testing.clock import ManualClock

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
SOON = timedelta(seconds=10)
"""How long a request of a test may wait; nothing takes as long."""
WOKEN_SECONDS = 8.0
"""By when who waits for `SOON` is woken, on however busy a machine; at its end it would look by itself."""
AT_ONCE = timedelta(milliseconds=30)
"""How long a request waits that is to find nothing."""

Place = Callable[[Path, str], str]
STORES: list[Any] = [
    pytest.param(lambda folder, name: "memory:", id="memory"),
    pytest.param(lambda folder, name: f"sqlite:{folder}/queues.db", id="sqlite"),
    pytest.param(
        lambda folder, name: f"{os.environ['REDRIVE_TEST_POSTGRES']}?schema={name}",
        id="postgres",
        marks=pytest.mark.engine("postgres"),
    ),
    pytest.param(
        lambda folder, name: f"{os.environ['REDRIVE_TEST_REDIS']}?prefix={name}", id="redis", marks=pytest.mark.engine("redis")
    ),
]
WAYS = ["in process", "over HTTP"]


class Use(Struct):
    """A client of queues, and what is behind it."""

    client: Queues | QueueClient
    served: Queues
    clock: ManualClock
    endpoint: str = ""

    async def define(self, name: str = "orders", **settings: Any) -> None:
        """Create a queue, with a dead queue `NAME-dead` when attempts or times matter and none is named."""
        await self.client.create(name, **{"lease_timeout": MINUTE, "expire_timeout": 24 * HOUR, **settings})

    async def stored(self, name: str = "orders", partition: int = 0) -> list[Item]:
        return await self.client.items(name, partition)

    async def take(self, name: str = "orders", limit: int = 10, *, client: str = "worker") -> tuple[int, list[Item]]:
        """Lease what is there, or comes."""
        leased = await self.client.lease(name, limit, client=client, timeout=SOON)
        return leased.partition, leased.items


class Troubled:
    """A store that counts the calls of each verb. It can be taken down, wholly or for some verbs, or be given faults for the next
    calls of a verb."""

    def __init__(self, store: QueueStore) -> None:
        self.calls: Counter[str] = Counter()
        self.is_down = False
        self.fails: set[str] = set()
        """Verbs that fail until they are taken out, and do nothing."""
        self._store = store
        self._before: defaultdict[str, deque[Exception]] = defaultdict(deque)
        self._after: defaultdict[str, deque[Exception]] = defaultdict(deque)

    def fail(self, verb: str, error: Exception | None = None, *, times: int = 1) -> None:
        """The next calls of the verb fail, and do nothing."""
        self._before[verb].extend([error or StoreUnavailable("gone for lunch")] * times)

    def lose_answer(self, verb: str) -> None:
        """The next call is done, and nobody hears of it."""
        self._after[verb].append(AnswerLost("the line is dead"))

    @contextmanager
    def down(self) -> Iterator[None]:
        self.is_down = True
        try:
            yield
        finally:
            self.is_down = False

    def __getattr__(self, verb: str) -> Any:
        attribute = getattr(self._store, verb)
        if not inspect.iscoroutinefunction(attribute):
            return attribute

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[verb] += 1
            if verb in self.fails or (self.is_down and verb != "close"):
                raise StoreUnavailable("gone for lunch")
            if self._before[verb]:
                raise self._before[verb].popleft()
            answer = await attribute(*args, **kwargs)
            if self._after[verb]:
                raise self._after[verb].popleft()
            return answer

        return call


def queue_store(url: str) -> QueueStore:
    opened = wiring.store(url, desk="memory:")
    assert opened.queues is not None
    return opened.queues


@asynccontextmanager
async def used(way: str, *urls: str, clock: ManualClock | None = None, limits: Limits = Limits()) -> AsyncIterator[Use]:
    """Queues on these stores, for as long as the test needs them."""
    clock = clock or ManualClock()
    stores = {f"store{number}" if number else "store": queue_store(url) for number, url in enumerate(urls)}
    async with Queues(stores, clock=clock, limits=limits, owns_stores=True) as served:
        if way == "in process":
            yield Use(served, served, clock)
            return
        async with endpoint(served) as address, QueueClient(address) as client:
            yield Use(client, served, clock, address)


@asynccontextmanager
async def endpoint(served: Queues) -> AsyncIterator[str]:
    """A server of these queues, on a port of its own."""
    surface = Surface()
    branch = QueueSurface(served)
    surface.mount(PREFIX, branch)
    stopping = asyncio.Event()
    with bound("127.0.0.1:0") as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        server = asyncio.create_task(serving(surface, listening, stopping, when_down=branch.close))
        try:
            yield address
        finally:
            stopping.set()
            await server
