"""A mailbox: messages of one type are sent to it, and received from it one receiver at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec.structs import replace

from redrive.engine.mint import minted
from redrive.mailboxes import checks
from redrive.mailboxes.bodies import Bodies, bodies_of
from redrive.mailboxes.dead_letter import counted
from redrive.mailboxes.errors import MailboxConnectionError, MailboxFullError
from redrive.mailboxes.making import in_own_words, make
from redrive.mailboxes.message import Body, Delivery, Message, Reply
from redrive.model.errors import NoSuchQueue, QueueClosing, QueueEmpty
from redrive.model.instant import instant
from redrive.model.item import Again, Item, Leased
from redrive.queues.letters import message_of
from redrive.queues.line import partition_of
from redrive.queues.opening import client_name
from redrive.queues.service import Queues

if TYPE_CHECKING:
    from redrive.mailboxes.place import Mailboxes
    from redrive.mailboxes.resolving import MailboxResolver

_AT_ONCE_SECONDS = 0.011
"""The shortest that a queue can be asked to wait."""
_AT_A_TIME_SECONDS = 600.0
"""The longest that it is asked to wait; who waits longer asks again."""

T = TypeVar("T")


class Named(Protocol):
    """Anything that is called something: a mailbox of any face."""

    @property
    def name(self) -> str: ...


class Mailbox(Protocol[Body, Reply]):
    """Typed messages under leases. Whatever holds them, a message is received by one at a time, and comes again unless it is
    acknowledged."""

    @property
    def name(self) -> str: ...

    @property
    def closed(self) -> bool: ...

    async def send(self, body: Body, *, reply_to: Named | str | None = None) -> str:
        """Put a message into the mailbox; answers with its id. When it returns, it is as durable as the store is."""
        ...

    async def receive(
        self, *, max_messages: int = 1, visibility_timeout: float = 30, wait_time_seconds: float = 0
    ) -> list[Message[Body, Reply]]:
        """Take up to `max_messages` (1 to 10), invisible to others for so many seconds; wait for some to come. None came: none."""
        ...

    async def purge(self) -> int:
        """Delete all messages, also those that are being worked on; answers with how many."""
        ...

    async def approximate_count(self) -> int:
        """How many there are, those included that nobody can see at the moment."""
        ...

    async def close(self) -> None:
        """Receive no more: who waits here is sent away with nothing. What was received can still be settled."""
        ...


class QueueMailbox(Generic[Body, Reply]):
    """A mailbox that is a queue of its store, made on first use."""

    def __init__(
        self,
        place: Mailboxes,
        name: str,
        kind: Any = Any,
        *,
        resolver: MailboxResolver[Mailbox[Any, Any]],
        max_size: int | None = None,
        default_ttl: float = 0,
    ) -> None:
        self._place = place
        self._name = checks.name(name)
        self._bodies: Bodies[Body] = bodies_of(kind)
        self._resolver = resolver
        self._max_size = checks.size(max_size)
        self._ttl = checks.ttl(default_ttl)
        self._is_closed = False
        self._receiving: set[asyncio.Future[Leased]] = set()

    @property
    def name(self) -> str:
        return self._name

    @property
    def closed(self) -> bool:
        return self._is_closed or self._place.closed

    async def send(self, body: Body, *, reply_to: Named | str | None = None) -> str:
        if self.closed:
            raise MailboxConnectionError(f"Mailbox '{self._name}' is closed")
        fresh = self._bodies.written(body, reply_to if isinstance(reply_to, str | None) else reply_to.name)
        fresh = replace(fresh, message_id=fresh.message_id or str(minted()))

        async def put(queues: Queues) -> None:
            put = fresh
            if fresh.source_id:
                # What is there already is found in its own partition only.
                count = len((await queues.info(self._name)).partitions)
                put = replace(fresh, partition=partition_of(fresh.source_id, count))
            await queues.produce(self._name, [put])

        if self._max_size is None:
            await self._on_queue(put)
        else:
            async with self._place.turn(self._name):
                if await self.approximate_count() >= self._max_size:
                    raise MailboxFullError(f"Queue '{self._name}' at capacity ({self._max_size})")
                await self._on_queue(put)
        return fresh.message_id

    async def receive(
        self, *, max_messages: int = 1, visibility_timeout: float = 30, wait_time_seconds: float = 0
    ) -> list[Message[Body, Reply]]:
        limit, hidden = checks.messages(max_messages), checks.visibility(visibility_timeout)
        wait_seconds = checks.wait(wait_time_seconds)
        if self.closed:
            return []
        with self._place.receiving():
            return await self._received(limit, hidden, time.monotonic() + wait_seconds)

    async def _received(self, limit: int, hidden: timedelta, deadline: float) -> list[Message[Body, Reply]]:
        while not self.closed:
            left = deadline - time.monotonic()
            wait = timedelta(seconds=min(max(left, _AT_ONCE_SECONDS), _AT_A_TIME_SECONDS))
            try:
                leased = await self._on_queue(partial(self._leased, limit=limit, hidden=hidden, wait=wait))
            except QueueEmpty:
                if left <= _AT_A_TIME_SECONDS:
                    break
            except MailboxConnectionError:
                if not self.closed:
                    raise
            else:
                return [self._message(item, leased.partition) for item in leased.items]
        return []

    async def _leased(self, queues: Queues, *, limit: int, hidden: timedelta, wait: timedelta) -> Leased:
        """Wait for messages, unless the mailbox is closed meanwhile."""
        if self._is_closed:
            raise QueueClosing(f"mailbox '{self._name}' was closed")
        leasing = asyncio.ensure_future(queues.lease(self._name, limit, client=client_name(), timeout=wait, lease=hidden))
        self._receiving.add(leasing)
        try:
            return await leasing
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._is_closed or (task is not None and task.cancelling()):
                raise
            raise QueueClosing(f"mailbox '{self._name}' was closed") from None
        finally:
            self._receiving.discard(leasing)

    def _message(self, item: Item, partition: int) -> Message[Body, Reply]:
        delivery = Delivery(
            raw=counted(message_of(item, self._name, partition), item.attempts),
            receipt_handle=f"{partition}:{item.id}",
            delivery_count=item.attempts,
            enqueued_at=instant(item.created_us),
            read=partial(self._bodies.read, item, self._name, partition),
        )
        return Message(delivery, QueueHands(self._place, self._name), self._resolver)

    async def purge(self) -> int:
        return await self._on_queue(lambda queues: queues.clear(self._name, queue=True, scheduled=True, destructive=True))

    async def approximate_count(self) -> int:
        stats = await self._on_queue(lambda queues: queues.stats(self._name))
        return sum(one.total + one.scheduled for one in stats.partitions)

    async def close(self) -> None:
        self._is_closed = True
        for leasing in list(self._receiving):
            leasing.cancel()

    async def _on_queue(self, verb: Callable[[Queues], Awaitable[T]]) -> T:
        """Do it, in a queue that is made when it is not there."""
        queues = await self._place.served(self._name)
        with in_own_words(self._name):
            try:
                return await verb(queues)
            except NoSuchQueue:
                await make(queues, self._name, self._ttl)
            return await verb(queues)


class QueueHands:
    """Settles messages by the partition and position that their handles name."""

    def __init__(self, place: Mailboxes, mailbox: str) -> None:
        self._place = place
        self._mailbox = mailbox

    async def acknowledge(self, handle: str) -> None:
        queues, partition, id = await self._held(handle)
        with in_own_words(self._mailbox, handle):
            await queues.complete(self._mailbox, partition, [id])

    async def nack(self, handle: str, hidden: timedelta) -> None:
        """Extended first: that answers when the time is over by the store's clock, and keeps it hidden should we die in between."""
        queues, partition, id = await self._held(handle)
        with in_own_words(self._mailbox, handle):
            is_later = hidden > timedelta(milliseconds=1)
            at_us = await queues.extend(self._mailbox, partition, [id], hidden) if is_later else 0
            await queues.retry(self._mailbox, partition, [Again(id=id, at_us=at_us)])

    async def extend(self, handle: str, hidden: timedelta) -> None:
        queues, partition, id = await self._held(handle)
        with in_own_words(self._mailbox, handle):
            await queues.extend(self._mailbox, partition, [id], hidden)

    async def _held(self, handle: str) -> tuple[Queues, int, str]:
        partition, _, id = handle.partition(":")
        return await self._place.served(self._mailbox), int(partition), id
