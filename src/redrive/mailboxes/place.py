"""The mailboxes of one place: a store's URL, or the store that letters lie in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from redrive.engine.dead_letters import DeadLetters
from redrive.mailboxes.errors import MailboxConnectionError
from redrive.mailboxes.mailbox import Mailbox, QueueMailbox
from redrive.mailboxes.making import in_own_words
from redrive.mailboxes.resolving import FactoryResolver, MailboxResolver
from redrive.queues import opening
from redrive.queues.service import Queues
from redrive.settings import Settings, load

Body = TypeVar("Body")


def open(url: str | None = None, *, resolver: MailboxResolver[Mailbox[Any, Any]] | None = None) -> Mailboxes:
    """The mailboxes of a store: `async with redrive.mailboxes.aio.open("sqlite:shop.db") as place`."""
    return Mailboxes(opening.open(url), resolver=resolver)


def beside(
    dlq: DeadLetters, settings: Settings | None = None, *, resolver: MailboxResolver[Mailbox[Any, Any]] | None = None
) -> Mailboxes:
    """The mailboxes that lie where these letters lie: what a policy's route puts there wakes who waits here. Close it before the
    letters. `settings` are those that the letters were opened with, if these were not the usual ones."""
    return Mailboxes(opening.beside(dlq, settings or load({}).settings), resolver=resolver)


class Mailboxes:
    """Gives mailboxes by name. From the first use until it is closed, it brings back what receivers did not settle in time."""

    def __init__(self, queues: Queues, *, resolver: MailboxResolver[Mailbox[Any, Any]] | None = None) -> None:
        """`resolver` finds the mailboxes to reply to; without one, each name is a mailbox of this place."""
        self._queues = queues
        self._resolver = resolver or FactoryResolver(self.mailbox)
        self._starting: asyncio.Lock | None = None
        self._is_started = False
        self._is_closed = False
        self._turns: dict[str, asyncio.Lock] = {}
        self._receiving: set[asyncio.Future[None]] = set()

    @overload
    def mailbox(self, name: str, *, max_size: int | None = None, default_ttl: float = 0) -> QueueMailbox[Any, Any]: ...

    @overload
    def mailbox(
        self, name: str, body: type[Body], *, max_size: int | None = None, default_ttl: float = 0
    ) -> QueueMailbox[Body, Any]: ...

    @overload
    def mailbox(self, name: str, body: Any, *, max_size: int | None = None, default_ttl: float = 0) -> QueueMailbox[Any, Any]: ...

    def mailbox(
        self, name: str, body: Any = Any, *, max_size: int | None = None, default_ttl: float = 0
    ) -> QueueMailbox[Any, Any]:
        """The mailbox of this name, with bodies of this type. Its queue is made when it is first used.

        `max_size`: a send that finds so many messages there is refused. `default_ttl`: seconds after which a message that nobody
        took is let go, if the queue is made now; 0: never.
        """
        return QueueMailbox(self, name, body, resolver=self._resolver, max_size=max_size, default_ttl=default_ttl)

    @property
    def closed(self) -> bool:
        return self._is_closed

    def turn(self, name: str) -> asyncio.Lock:
        """Who counts before sending does so one after another."""
        return self._turns.setdefault(name, asyncio.Lock())

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """While somebody receives: whoever closes this place waits until they have gone."""
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._receiving.add(gone)
        try:
            yield
        finally:
            self._receiving.discard(gone)
            gone.set_result(None)

    async def served(self, name: str) -> Queues:
        """The queues, looked after from now on."""
        if self._is_closed:
            raise MailboxConnectionError(f"Mailbox '{name}' is closed")
        if not self._is_started:
            self._starting = self._starting or asyncio.Lock()
            async with self._starting:
                if not self._is_started:
                    with in_own_words(name):
                        await self._queues.__aenter__()
                    self._is_started = True
        return self._queues

    async def close(self) -> None:
        """Send those away who wait, and stop. What is stored stays."""
        self._is_closed = True
        await self._queues.close()
        if self._receiving:
            await asyncio.wait(self._receiving)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
