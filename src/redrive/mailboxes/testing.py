"""Mailboxes for tests of blocking code: one that forgets, one that collects, and one that does as it is told."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from redrive.engine.bridge import Bridge
from redrive.mailboxes import doubles
from redrive.mailboxes.blocking import Body, Mailbox, Reply
from redrive.mailboxes.doubles import Sent
from redrive.mailboxes.resolving import MailboxResolver

__all__ = ["CollectingMailbox", "FakeMailbox", "NullMailbox", "Sent"]


class NullMailbox(Mailbox[Body, Reply]):
    """Takes whatever is sent, and has nothing to give."""

    def __init__(self, name: str = "null") -> None:
        super().__init__(doubles.NullMailbox[Body, Reply](name), Bridge(inline=True))


class CollectingMailbox(Mailbox[Body, Reply]):
    """Keeps what is sent in `sent`, in order, and has nothing to give."""

    def __init__(self, name: str = "collecting") -> None:
        self._double = doubles.CollectingMailbox[Body, Reply](name)
        super().__init__(self._double, Bridge(inline=True))

    @property
    def sent(self) -> list[Body]:
        """The bodies that were sent."""
        return self._double.sent

    @property
    def deliveries(self) -> list[Sent[Body]]:
        return self._double.deliveries


class FakeMailbox(Mailbox[Body, Reply]):
    """Gives the messages that a test puts in, and fails when a test says so: see `redrive.mailboxes.doubles.FakeMailbox`."""

    def __init__(
        self,
        name: str = "fake",
        messages: Iterable[Body] = (),
        *,
        resolver: MailboxResolver[Mailbox[Any, Any]] | None = None,
    ) -> None:
        self._double = doubles.FakeMailbox[Body, Reply](name, messages)
        super().__init__(self._double, Bridge(inline=True), resolver)

    @property
    def sent(self) -> list[Body]:
        return self._double.sent

    @property
    def deliveries(self) -> list[Sent[Body]]:
        return self._double.deliveries

    @property
    def acknowledged(self) -> list[str]:
        return self._double.acknowledged

    @property
    def nacked(self) -> list[tuple[str, timedelta]]:
        return self._double.nacked

    @property
    def extended(self) -> list[tuple[str, timedelta]]:
        return self._double.extended

    def inject(self, body: Body, *, id: str | None = None, delivery_count: int = 1, reply_to: str | None = None) -> str:
        """A message that will be received, for the `delivery_count`th time; answers with its id."""
        return self._double.inject(body, id=id, delivery_count=delivery_count, reply_to=reply_to)

    def expire_handles(self) -> None:
        """All that was received is no longer its receiver's, and comes again."""
        self._double.expire_handles()

    def disconnect(self) -> None:
        """From now on every verb raises `MailboxConnectionError`."""
        self._double.disconnect()

    def reconnect(self) -> None:
        self._double.reconnect()
