"""Mailboxes: typed messages that are sent, received under a lease, acknowledged or given back, on any store that keeps queues.

with redrive.mailboxes.open("sqlite:shop.db") as place:
    orders = place.mailbox("orders", Order)
    orders.send(Order(number=7))
    for message in orders.receive(wait_time_seconds=20):
        message.acknowledge()

`redrive.mailboxes.aio` has the same for async code.
"""

from redrive.mailboxes.blocking import Mailbox, Mailboxes, Message
from redrive.mailboxes.blocking import open as open  # noqa: A004 - as in `redrive.open`
from redrive.mailboxes.dead_letter import DeadLetter, dead_letter_of
from redrive.mailboxes.errors import (
    InvalidParameterError,
    MailboxConnectionError,
    MailboxError,
    MailboxFullError,
    MailboxResolutionError,
    MessageFinalizedError,
    ReceiptHandleExpiredError,
    ReplyNotAvailableError,
    SerializationError,
)
from redrive.mailboxes.message import message_of
from redrive.mailboxes.resolving import CompositeResolver, FactoryResolver, MailboxResolver, RegistryResolver

__all__ = [
    "CompositeResolver",
    "DeadLetter",
    "FactoryResolver",
    "InvalidParameterError",
    "Mailbox",
    "MailboxConnectionError",
    "MailboxError",
    "MailboxFullError",
    "MailboxResolutionError",
    "MailboxResolver",
    "Mailboxes",
    "Message",
    "MessageFinalizedError",
    "ReceiptHandleExpiredError",
    "RegistryResolver",
    "ReplyNotAvailableError",
    "SerializationError",
    "dead_letter_of",
    "message_of",
    "open",
]
