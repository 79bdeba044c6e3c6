"""Mailboxes for async code: `async with redrive.mailboxes.aio.open("sqlite:shop.db") as place`."""

from redrive.mailboxes.mailbox import Mailbox, QueueMailbox
from redrive.mailboxes.message import Message
from redrive.mailboxes.place import Mailboxes, beside
from redrive.mailboxes.place import open as open  # noqa: A004 - as in `redrive.open`

__all__ = ["Mailbox", "Mailboxes", "Message", "QueueMailbox", "beside", "open"]
