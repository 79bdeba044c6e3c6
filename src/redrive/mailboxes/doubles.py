"""Mailboxes for tests of async code: one that forgets, one that collects, and one that does as it is told.

`redrive.mailboxes.testing` has the same for blocking code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Generic

from msgspec import Struct
from msgspec.structs import replace

from redrive.engine.extract import encoded
from redrive.engine.mint import minted
from redrive.mailboxes import checks
from redrive.mailboxes.errors import MailboxConnectionError, ReceiptHandleExpiredError
from redrive.mailboxes.mailbox import Mailbox, Named
from redrive.mailboxes.message import Body, Delivery, Message, Reply
from redrive.mailboxes.resolving import MailboxResolver
from redrive.model.letter import Origin
from redrive.model.message import Message as Raw


class Sent(Struct, Generic[Body], frozen=True, kw_only=True):
    """What was sent, and where a reply was to go."""

    id: str
    body: Body
    reply_to: str | None = None


class NullMailbox(Generic[Body, Reply]):
    """Takes whatever is sent, and has nothing to give."""

    def __init__(self, name: str = "null") -> None:
        self.name = checks.name(name)
        self.closed = False

    async def send(self, body: Body, *, reply_to: Named | str | None = None) -> str:
        return str(minted())

    async def receive(
        self, *, max_messages: int = 1, visibility_timeout: float = 30, wait_time_seconds: float = 0
    ) -> list[Message[Body, Reply]]:
        checks.visibility(visibility_timeout)
        checks.wait(wait_time_seconds)
        return []

    async def purge(self) -> int:
        return 0

    async def approximate_count(self) -> int:
        return 0

    async def close(self) -> None:
        self.closed = True


class CollectingMailbox(NullMailbox[Body, Reply]):
    """Keeps what is sent in `sent`, in order, and has nothing to give."""

    def __init__(self, name: str = "collecting") -> None:
        super().__init__(name)
        self.deliveries: list[Sent[Body]] = []

    @property
    def sent(self) -> list[Body]:
        """The bodies that were sent."""
        return [one.body for one in self.deliveries]

    async def send(self, body: Body, *, reply_to: Named | str | None = None) -> str:
        id = await super().send(body)
        name = reply_to if isinstance(reply_to, str | None) else reply_to.name
        self.deliveries.append(Sent(id=id, body=body, reply_to=name))
        return id

    async def purge(self) -> int:
        count = len(self.deliveries)
        self.deliveries.clear()
        return count

    async def approximate_count(self) -> int:
        return len(self.deliveries)


class FakeMailbox(CollectingMailbox[Body, Reply]):
    """Gives the messages that a test puts in, and fails when a test says so. What is sent to it can be received from it.

    It knows no time: what is given back comes again at once, however long it was to be hidden, and a receiver never waits.
    """

    def __init__(
        self,
        name: str = "fake",
        messages: Iterable[Body] = (),
        *,
        resolver: MailboxResolver[Mailbox[Any, Any]] | None = None,
    ) -> None:
        super().__init__(name)
        self.acknowledged: list[str] = []
        """The ids of what was acknowledged."""
        self.nacked: list[tuple[str, timedelta]] = []
        """The ids of what was given back, and for how long it was to be hidden."""
        self.extended: list[tuple[str, timedelta]] = []
        self._resolver = resolver
        self._visible: deque[_Kept[Body]] = deque()
        self._held: dict[str, _Kept[Body]] = {}
        self._is_connected = True
        for body in messages:
            self.inject(body)

    def inject(self, body: Body, *, id: str | None = None, delivery_count: int = 1, reply_to: str | None = None) -> str:
        """A message that will be received, for the `delivery_count`th time; answers with its id."""
        payload, content_type = encoded(body)
        raw = Raw(
            body=payload,
            content_type=content_type,
            id=id or str(minted()),
            origin=Origin(topic=self.name, reply_to=reply_to),
            received_at=datetime.now(UTC),
        )
        self._visible.append(_Kept(raw=raw, body=body, deliveries=delivery_count - 1))
        return raw.id or ""

    def expire_handles(self) -> None:
        """All that was received is no longer its receiver's, and comes again."""
        self._visible.extend(self._held.values())
        self._held.clear()

    def disconnect(self) -> None:
        """From now on every verb raises `MailboxConnectionError`."""
        self._is_connected = False

    def reconnect(self) -> None:
        self._is_connected = True

    async def send(self, body: Body, *, reply_to: Named | str | None = None) -> str:
        self._ensure_connected()
        id = await super().send(body, reply_to=reply_to)
        return self.inject(body, id=id, reply_to=self.deliveries[-1].reply_to)

    async def receive(
        self, *, max_messages: int = 1, visibility_timeout: float = 30, wait_time_seconds: float = 0
    ) -> list[Message[Body, Reply]]:
        self._ensure_connected()
        await super().receive(visibility_timeout=visibility_timeout, wait_time_seconds=wait_time_seconds)
        count = 0 if self.closed else min(checks.messages(max_messages), len(self._visible))
        return [self._given(self._visible.popleft()) for _ in range(count)]

    def _given(self, kept: _Kept[Body]) -> Message[Body, Reply]:
        handle = str(minted())
        kept = replace(kept, deliveries=kept.deliveries + 1)
        self._held[handle] = kept
        delivery = Delivery(
            raw=replace(kept.raw, delivery_count=kept.deliveries),
            receipt_handle=handle,
            delivery_count=kept.deliveries,
            enqueued_at=kept.raw.received_at or datetime.now(UTC),
            read=lambda: kept.body,
        )
        return Message(delivery, self, self._resolver)

    async def acknowledge(self, handle: str) -> None:
        """What a message asks of its mailbox, as are the next two."""
        self.acknowledged.append(self._taken(handle).raw.id or "")

    async def nack(self, handle: str, hidden: timedelta) -> None:
        kept = self._taken(handle)
        self._visible.append(kept)
        self.nacked.append((kept.raw.id or "", _whole(hidden)))

    async def extend(self, handle: str, hidden: timedelta) -> None:
        kept = self._taken(handle)
        self._held[handle] = kept
        self.extended.append((kept.raw.id or "", _whole(hidden)))

    async def purge(self) -> int:
        self._ensure_connected()
        count = await self.approximate_count()
        self._visible.clear()
        self._held.clear()
        return count

    async def approximate_count(self) -> int:
        self._ensure_connected()
        return len(self._visible) + len(self._held)

    def _taken(self, handle: str) -> _Kept[Body]:
        self._ensure_connected()
        if handle not in self._held:
            raise ReceiptHandleExpiredError(handle)
        return self._held.pop(handle)

    def _ensure_connected(self) -> None:
        if not self._is_connected:
            raise MailboxConnectionError(f"Mailbox '{self.name}' cannot be reached")


class _Kept(Struct, Generic[Body], frozen=True, kw_only=True):
    raw: Raw
    body: Body
    deliveries: int


def _whole(hidden: timedelta) -> timedelta:
    """What was asked for: nothing at all is passed on as the shortest time there is."""
    return timedelta(seconds=round(hidden.total_seconds(), 3))
