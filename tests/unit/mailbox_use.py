"""Mailboxes to try things on: on every store, on a clock of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from msgspec import Struct

from redrive.mailboxes.aio import Mailboxes, Message, QueueMailbox
from redrive.queues import Queues
from redrive.testing.clock import ManualClock
from tests.unit.queue_use import queue_store

SOON = 10
"""How many seconds a receiver of a test may wait; nothing takes as long."""


class Order(Struct, frozen=True):
    number: int
    note: str = ""


@dataclass(frozen=True)
class Invoice:
    number: int
    lines: tuple[str, ...] = ()


class Use(Struct):
    """A place of mailboxes, and its clock."""

    place: Mailboxes
    queues: Queues
    clock: ManualClock

    def orders(self, **settings: Any) -> QueueMailbox[Order, Any]:
        return self.place.mailbox("orders", Order, **settings)

    def later(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))


@asynccontextmanager
async def used(url: str) -> AsyncIterator[Use]:
    clock = ManualClock()
    queues = Queues({"store": queue_store(url)}, clock=clock, owns_stores=True)
    async with Mailboxes(queues) as place:
        yield Use(place, queues, clock)


async def one_of(mailbox: QueueMailbox[Any, Any], **settings: Any) -> Message[Any, Any]:
    """The message that is there, or comes."""
    (message,) = await mailbox.receive(wait_time_seconds=SOON, **settings)
    return message
