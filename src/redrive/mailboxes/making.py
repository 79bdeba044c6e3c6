"""The queue behind a mailbox: made on first use, and whatever goes wrong with it in the words of mailboxes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from redrive.mailboxes.errors import InvalidParameterError, MailboxConnectionError, ReceiptHandleExpiredError
from redrive.model.errors import (
    NoSuchItem,
    NoSuchQueue,
    NotLeased,
    QueueBusy,
    QueueClosing,
    QueueEmpty,
    QueueGone,
    QueueRefused,
    StoreUnavailable,
)
from redrive.queues.service import Queues

_VISIBLE_AFTER = timedelta(seconds=30)
_FOR_EVER = timedelta(days=3650)
"""The longest that a queue keeps an item which nobody takes."""


async def make(queues: Queues, name: str, ttl: timedelta | None = None) -> None:
    """Create the queue of a mailbox, unless somebody was faster. It gives nothing up for its attempts."""
    expire = ttl or _FOR_EVER
    try:
        await queues.create(name, lease_timeout=min(_VISIBLE_AFTER, expire), expire_timeout=expire)
    except QueueRefused:
        try:
            await queues.info(name)
        except NoSuchQueue:
            pass
        else:
            return
        raise


@contextmanager
def in_own_words(mailbox: str, handle: str = "") -> Iterator[None]:
    """What queues raise, as mailboxes say it. That a queue is empty stays what it is, and so does an error of the store that no
    waiting mends."""
    try:
        yield
    except QueueEmpty:
        raise
    except (NoSuchItem, NotLeased, NoSuchQueue, QueueGone) as error:
        if not handle:
            raise MailboxConnectionError(f"Mailbox '{mailbox}' is gone: {error}") from error
        raise ReceiptHandleExpiredError(handle) from error
    except QueueClosing as error:
        raise MailboxConnectionError(f"Mailbox '{mailbox}' is closed") from error
    except (StoreUnavailable, QueueBusy) as error:
        raise MailboxConnectionError(f"Mailbox '{mailbox}' cannot be reached: {error}") from error
    except QueueRefused as error:
        raise InvalidParameterError(str(error)) from error
