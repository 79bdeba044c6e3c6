"""A received message: to be acknowledged, given back, held for longer or replied to."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import Struct

from redrive.mailboxes import checks
from redrive.mailboxes.errors import MailboxResolutionError, MessageFinalizedError, ReplyNotAvailableError
from redrive.model.message import Message as Raw

if TYPE_CHECKING:
    from redrive.mailboxes.mailbox import Mailbox
    from redrive.mailboxes.resolving import MailboxResolver

Body = TypeVar("Body")
Reply = TypeVar("Reply")


class Hands(Protocol):
    """Settles what was received. A handle that is no longer valid raises `ReceiptHandleExpiredError`."""

    async def acknowledge(self, handle: str) -> None: ...

    async def nack(self, handle: str, hidden: timedelta) -> None: ...

    async def extend(self, handle: str, hidden: timedelta) -> None: ...


class Delivery(Struct, Generic[Body], frozen=True, kw_only=True):
    """One delivery of a message, as it came from its mailbox."""

    raw: Raw
    """The message in the words of the rest of redrive: bytes, headers, origin."""
    receipt_handle: str
    delivery_count: int
    enqueued_at: datetime
    read: Callable[[], Body]


class Message(Generic[Body, Reply]):
    """What a mailbox gives. Whoever received it settles it before its visibility timeout ends, or it comes again."""

    def __init__(
        self, delivery: Delivery[Body], hands: Hands, resolver: MailboxResolver[Mailbox[Any, Any]] | None = None
    ) -> None:
        self._delivery = delivery
        self._hands = hands
        self._resolver = resolver
        self._read: list[Body] = []
        self._is_finalized = False

    @property
    def id(self) -> str:
        """The same with every delivery."""
        return self._delivery.raw.id or ""

    @property
    def body(self) -> Body:
        """`SerializationError` when it is not of the mailbox's type; such a message can be settled all the same."""
        if not self._read:
            self._read.append(self._delivery.read())
        return self._read[0]

    @property
    def raw(self) -> Raw:
        """The message as bytes, with its headers and origin: what a guard or a letter keeps of it."""
        return self._delivery.raw

    @property
    def receipt_handle(self) -> str:
        """New with each delivery."""
        return self._delivery.receipt_handle

    @property
    def delivery_count(self) -> int:
        """1 at the first delivery."""
        return self._delivery.delivery_count

    @property
    def enqueued_at(self) -> datetime:
        return self._delivery.enqueued_at

    @property
    def reply_to_name(self) -> str | None:
        """What the mailbox is called that waits for a reply, whether or not it can be found here."""
        return self._delivery.raw.origin.reply_to

    @property
    def reply_to(self) -> Mailbox[Reply, Any] | None:
        """The mailbox that waits for a reply; None: none does, or nobody here knows it."""
        return found(self._resolver, self.reply_to_name)

    @property
    def is_finalized(self) -> bool:
        """Was it acknowledged or given back?"""
        return self._is_finalized

    async def acknowledge(self) -> None:
        """It is worked off and does not come again."""
        await self._hands.acknowledge(self.receipt_handle)
        self._is_finalized = True

    async def nack(self, *, visibility_timeout: float = 0) -> None:
        """It was not worked off: it comes again after so many seconds."""
        await self._hands.nack(self.receipt_handle, checks.visibility(visibility_timeout))
        self._is_finalized = True

    async def extend_visibility(self, timeout: float) -> None:
        """It stays this receiver's for so many seconds from now."""
        await self._hands.extend(self.receipt_handle, checks.visibility(timeout, "timeout"))

    async def reply(self, body: Reply) -> str:
        """Send to the mailbox that waits for a reply, as often as there is something to say; answers with the reply's id."""
        ensure_can_reply(self)
        mailbox = self.reply_to
        if mailbox is None:
            raise not_available(self)
        return await mailbox.send(body)


class Received(Protocol):
    @property
    def raw(self) -> Raw: ...


def message_of(message: Received) -> Raw:
    """A received message in the words of the rest of redrive. As an extractor it tells a guard what to keep:
    `dlq.guard(source="mailbox:orders", extract=message_of)`."""
    return message.raw


class Finalizable(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def is_finalized(self) -> bool: ...
    @property
    def reply_to_name(self) -> str | None: ...


Box = TypeVar("Box")


def found(resolver: MailboxResolver[Box] | None, name: str | None) -> Box | None:
    if resolver is None or name is None:
        return None
    try:
        return resolver.resolve(name)
    except MailboxResolutionError:
        return None


def ensure_can_reply(message: Finalizable) -> None:
    if message.is_finalized:
        raise MessageFinalizedError(f"Message '{message.id}' already finalized; cannot reply")


def not_available(message: Finalizable) -> ReplyNotAvailableError:
    if message.reply_to_name is None:
        return ReplyNotAvailableError(f"Message '{message.id}' has no reply_to; cannot reply")
    return ReplyNotAvailableError(f"Message '{message.id}': {MailboxResolutionError(message.reply_to_name)}")
