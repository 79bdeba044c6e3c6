"""A queue as a target: letters and messages are sent to it, received from it, and looked at."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec.structs import replace

from redrive.engine.dead_letters import DeadLetters
from redrive.model.errors import AnswerLost, QueueEmpty, QueueRefused
from redrive.model.item import Again
from redrive.model.message import Message
from redrive.model.operation import Delivered, Delivery, Unknown
from redrive.ports.transport import Parcel
from redrive.queues import opening
from redrive.queues.checks import MOST_ITEMS
from redrive.queues.letters import SCHEME, fresh_of, message_of
from redrive.queues.line import partition_of
from redrive.queues.service import Queues
from redrive.settings import Settings

_AT_ONCE = timedelta(milliseconds=11)


def beside(dlq: DeadLetters, settings: Settings, url: str) -> QueueTransport:
    """The queue that `queue:NAME` or `mailbox:NAME` names, where these letters lie."""
    scheme, _, queue = url.partition(":")
    return QueueTransport(opening.beside(dlq, settings), queue, f"{scheme}:")


class QueueTransport:
    """One queue. What it takes is acknowledged by its store; whether the work is done, its consumer's guard tells."""

    def __init__(self, queues: Queues, queue: str, scheme: str = SCHEME) -> None:
        self._queues = queues
        self._queue = queue
        self.name = f"{scheme}{queue}"

    async def send(self, messages: Sequence[Message]) -> list[Delivery]:
        """Raises when there is no such queue. A message that redrive sends twice is there once."""
        queue = await self._queues.info(self._queue)
        items = [fresh_of(message) for message in messages]
        for number, item in enumerate(items):
            if item.source_id and not (queue.ordered and item.key):
                items[number] = replace(item, partition=partition_of(item.source_id, len(queue.partitions)))
        deliveries: list[Delivery] = []
        for start in range(0, len(items), MOST_ITEMS):
            some = items[start : start + MOST_ITEMS]
            try:
                await self._queues.produce(self._queue, some)
            except AnswerLost as error:
                deliveries += [Unknown(reason=str(error))] * len(some)
            else:
                deliveries += [Delivered()] * len(some)
        return deliveries

    async def receive(self, *, limit: int = 10, lease: timedelta = timedelta(seconds=30)) -> list[Parcel]:
        try:
            leased = await self._queues.lease(self._queue, limit, client=opening.client_name(), timeout=_AT_ONCE, lease=lease)
        except QueueEmpty:
            return []
        return [
            Parcel(message=message_of(item, self._queue, leased.partition), handle=f"{leased.partition}:{item.id}")
            for item in leased.items
        ]

    async def settle(self, handles: Sequence[str], *, done: bool) -> list[bool]:
        answers = []
        for handle in handles:
            partition, _, id = handle.partition(":")
            try:
                if done:
                    await self._queues.complete(self._queue, int(partition), [id])
                else:
                    await self._queues.retry(self._queue, int(partition), [Again(id=id)])
            except QueueRefused:
                answers.append(False)
            else:
                answers.append(True)
        return answers

    async def peek(self, *, limit: int = 10) -> list[Message]:
        queue = await self._queues.info(self._queue)
        found: list[Message] = []
        for partition in range(len(queue.partitions)):
            items = await self._queues.items(self._queue, partition, limit=limit)
            found += [message_of(item, self._queue, partition) for item in items]
        return found[:limit]
