"""Mailboxes for blocking code. Safe from threads: each verb runs the async one, on an event loop in a thread of its own."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar, cast, overload

from redrive.engine.bridge import Bridge
from redrive.mailboxes import place
from redrive.mailboxes.mailbox import Mailbox as AsyncMailbox
from redrive.mailboxes.mailbox import Named
from redrive.mailboxes.message import Message as AsyncMessage
from redrive.mailboxes.message import ensure_can_reply, found, not_available
from redrive.mailboxes.resolving import FactoryResolver, MailboxResolver
from redrive.model.message import Message as Raw
from redrive.ports.inline import drive

Body = TypeVar("Body")
Reply = TypeVar("Reply")
T = TypeVar("T")


class Runner(Protocol):
    """Runs async verbs for blocking code."""

    def run(self, verb: Coroutine[Any, Any, T]) -> T: ...


def open(url: str | None = None, *, resolver: MailboxResolver[Mailbox[Any, Any]] | None = None) -> Mailboxes:
    """The mailboxes of a store: `with redrive.mailboxes.open("sqlite:shop.db") as place`."""
    return Mailboxes(place.open(url), resolver=resolver)


class Message(Generic[Body, Reply]):
    """`redrive.mailboxes.aio.Message` for blocking code."""

    def __init__(
        self,
        message: AsyncMessage[Body, Reply],
        runner: Runner,
        resolver: MailboxResolver[Mailbox[Any, Any]] | None = None,
    ) -> None:
        self._message = message
        self._run = runner.run
        self._resolver = resolver

    @property
    def id(self) -> str:
        return self._message.id

    @property
    def body(self) -> Body:
        return self._message.body

    @property
    def raw(self) -> Raw:
        return self._message.raw

    @property
    def receipt_handle(self) -> str:
        return self._message.receipt_handle

    @property
    def delivery_count(self) -> int:
        return self._message.delivery_count

    @property
    def enqueued_at(self) -> datetime:
        return self._message.enqueued_at

    @property
    def reply_to_name(self) -> str | None:
        return self._message.reply_to_name

    @property
    def reply_to(self) -> Mailbox[Reply, Any] | None:
        return found(self._resolver, self.reply_to_name)

    @property
    def is_finalized(self) -> bool:
        return self._message.is_finalized

    def acknowledge(self) -> None:
        self._run(self._message.acknowledge())

    def nack(self, *, visibility_timeout: float = 0) -> None:
        self._run(self._message.nack(visibility_timeout=visibility_timeout))

    def extend_visibility(self, timeout: float) -> None:
        self._run(self._message.extend_visibility(timeout))

    def reply(self, body: Reply) -> str:
        ensure_can_reply(self)
        mailbox = self.reply_to
        if mailbox is None:
            raise not_available(self)
        return mailbox.send(body)


class Mailbox(Generic[Body, Reply]):
    """`redrive.mailboxes.aio.Mailbox` for blocking code."""

    def __init__(
        self,
        mailbox: AsyncMailbox[Body, Reply],
        runner: Runner,
        resolver: MailboxResolver[Mailbox[Any, Any]] | None = None,
    ) -> None:
        self._mailbox = mailbox
        self._runner = runner
        self._resolver = resolver

    @property
    def name(self) -> str:
        return self._mailbox.name

    @property
    def closed(self) -> bool:
        return self._mailbox.closed

    def send(self, body: Body, *, reply_to: Named | str | None = None) -> str:
        return self._runner.run(self._mailbox.send(body, reply_to=reply_to))

    def receive(
        self, *, max_messages: int = 1, visibility_timeout: float = 30, wait_time_seconds: float = 0
    ) -> list[Message[Body, Reply]]:
        received = self._runner.run(
            self._mailbox.receive(
                max_messages=max_messages, visibility_timeout=visibility_timeout, wait_time_seconds=wait_time_seconds
            )
        )
        return [Message(message, self._runner, self._resolver) for message in received]

    def purge(self) -> int:
        return self._runner.run(self._mailbox.purge())

    def approximate_count(self) -> int:
        return self._runner.run(self._mailbox.approximate_count())

    def close(self) -> None:
        self._runner.run(self._mailbox.close())


class Mailboxes:
    """`redrive.mailboxes.aio.Mailboxes` for blocking code."""

    def __init__(self, mailboxes: place.Mailboxes, *, resolver: MailboxResolver[Mailbox[Any, Any]] | None = None) -> None:
        self._mailboxes = mailboxes
        self._resolver = resolver or FactoryResolver(self.mailbox)
        self._bridge = Bridge(inline=False)

    @overload
    def mailbox(self, name: str, *, max_size: int | None = None, default_ttl: float = 0) -> Mailbox[Any, Any]: ...

    @overload
    def mailbox(
        self, name: str, body: type[Body], *, max_size: int | None = None, default_ttl: float = 0
    ) -> Mailbox[Body, Any]: ...

    @overload
    def mailbox(self, name: str, body: Any, *, max_size: int | None = None, default_ttl: float = 0) -> Mailbox[Any, Any]: ...

    def mailbox(self, name: str, body: Any = Any, *, max_size: int | None = None, default_ttl: float = 0) -> Mailbox[Any, Any]:
        mailbox = self._mailboxes.mailbox(name, body, max_size=max_size, default_ttl=default_ttl)
        return Mailbox(cast("AsyncMailbox[Any, Any]", mailbox), _UntilClosed(self._mailboxes, self._bridge), self._resolver)

    @property
    def closed(self) -> bool:
        return self._mailboxes.closed

    def close(self) -> None:
        if not self.closed:
            self._bridge.run(self._mailboxes.close())
            self._bridge.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class _UntilClosed:
    """Runs verbs on the loop of a place. Once it is closed none is started again: what is asked then says so at once."""

    def __init__(self, mailboxes: place.Mailboxes, bridge: Bridge) -> None:
        self._mailboxes = mailboxes
        self._bridge = bridge

    def run(self, verb: Coroutine[Any, Any, T]) -> T:
        return drive(verb) if self._mailboxes.closed else self._bridge.run(verb)
