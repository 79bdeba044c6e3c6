"""Stories on each embedded store, and targets that do as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import redrive
from redrive import Message, Unsupported
from redrive.engine.dead_letters import DeadLetters
from redrive.model.operation import Delivery, Entry

BAD = ValueError("bad")

Story = Callable[[DeadLetters], Awaitable[None]]
"""What happens to an opened store."""

Tell = Callable[[Story], None]


def teller(url: str) -> Tell:
    """Runs a story on the store of this URL."""

    def tell(story: Story) -> None:
        async def whole() -> None:
            async with redrive.open(url) as dlq:
                await story(dlq)

        asyncio.run(whole())

    return tell


async def captured(dlq: DeadLetters, message: Any, **more: Any) -> UUID:
    return (await dlq.capture(message, BAD, **({"source": "orders"} | more))).letter.id


async def entries(dlq: DeadLetters, operation: UUID) -> dict[UUID, Entry]:
    return {row.letter: row.entry for row in await dlq.desk.ledger(operation)}


class Target:
    """A transport that does as it is told and remembers what it was sent."""

    name = "test:"

    def __init__(self, answer: Callable[[Sequence[Message]], Awaitable[list[Delivery]]]) -> None:
        self.answer = answer
        self.sent: list[Message] = []
        self.batches: list[Sequence[Message]] = []
        self.is_reached = asyncio.Event()

    async def send(self, messages: Sequence[Message]) -> list[Delivery]:
        self.sent += messages
        self.batches.append(messages)
        self.is_reached.set()
        return await self.answer(messages)

    async def receive(self, *, limit: int = 10, lease: timedelta = timedelta(seconds=30)) -> list[Any]:
        raise Unsupported("not here")

    async def settle(self, handles: Sequence[str], *, done: bool) -> list[bool]:
        raise Unsupported("not here")

    async def peek(self, *, limit: int = 10) -> list[Message]:
        raise Unsupported("not here")


def answering(*deliveries: Delivery) -> Target:
    async def answer(messages: Sequence[Message]) -> list[Delivery]:
        return list(deliveries)

    return Target(answer)
