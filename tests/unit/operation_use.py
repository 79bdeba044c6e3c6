"""Operations to watch: letters for them, targets of one answer, and what their ledgers say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from redrive import Failure, Message
from redrive.engine.dead_letters import DeadLetters
from redrive.model.operation import Delivered, Delivery, Entry, OperationStatus, Refused
from tests.unit.targets import Target, captured

WORKED = Delivered(confirmed=True)
FAILED = Refused(failure=Failure(type="x.Y", message="still down"))


async def many(dlq: DeadLetters, count: int, **more: Any) -> list[UUID]:
    return [await captured(dlq, f"message {number}", **more) for number in range(count)]


async def counted(dlq: DeadLetters, id: UUID) -> Counter[Entry]:
    return Counter([row.entry async for row in dlq.operations.ledger(id)])


def always(delivery: Delivery) -> Target:
    async def send(messages: Sequence[Message]) -> list[Delivery]:
        return [delivery] * len(messages)

    return Target(send)


async def is_finished(dlq: DeadLetters, id: UUID) -> bool:
    return (await dlq.operations.get(id)).status is OperationStatus.FINISHED
