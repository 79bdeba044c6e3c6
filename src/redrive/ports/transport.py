"""`Transport`: anything that messages can be sent to and received from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from msgspec import Struct

from redrive.model.message import Message
from redrive.model.operation import Delivery


class Parcel(Struct, frozen=True, kw_only=True):
    """A received message and the handle by which to settle it."""

    message: Message
    handle: str


class Transport(Protocol):
    """Sends and receives in batches. What a transport cannot do raises `Unsupported`."""

    @property
    def name(self) -> str:
        """How people call this target, e.g. `py:shop.orders:handle`."""
        ...

    async def send(self, messages: Sequence[Message]) -> list[Delivery]:
        """Send messages; say for each: delivered, refused or unknown. Raises only when nothing was sent at all.

        An answer that does not come is `Unknown`, never a guess.
        """
        ...

    async def receive(self, *, limit: int = 10, lease: timedelta = timedelta(seconds=30)) -> list[Parcel]:
        """Take up to `limit` messages that are there, invisible to others until the lease ends."""
        ...

    async def settle(self, handles: Sequence[str], *, done: bool) -> list[bool]:
        """Acknowledge (`done`) or give back received messages; False for each whose lease was lost."""
        ...

    async def peek(self, *, limit: int = 10) -> list[Message]:
        """Look at waiting messages where they are, changing nothing."""
        ...
