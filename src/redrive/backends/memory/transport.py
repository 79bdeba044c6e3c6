"""A queue in memory as a transport: for tests, examples, and consumers in one process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from msgspec.structs import replace

from redrive.model.message import Message
from redrive.model.operation import Delivered, Delivery
from redrive.ports.transport import Parcel


class MemoryTransport:
    """First in, first out; a message that was not acknowledged before its lease ended is given out again."""

    def __init__(self, name: str = "memory:") -> None:
        self.name = name
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, Message] = OrderedDict()
        self._leased: dict[str, tuple[str, datetime]] = {}
        """Key by handle, and the end of its lease."""

    async def send(self, messages: Sequence[Message]) -> list[Delivery]:
        with self._lock:
            for message in messages:
                self._waiting[uuid4().hex] = replace(message, delivery_count=0)
        return [Delivered()] * len(messages)

    async def receive(self, *, limit: int = 10, lease: timedelta = timedelta(seconds=30)) -> list[Parcel]:
        now = datetime.now(UTC)
        with self._lock:
            held = {key for key, until in self._leased.values() if until > now}
            free = [key for key in self._waiting if key not in held][:limit]
            parcels = []
            for key in free:
                message = self._waiting[key]
                self._waiting[key] = message = replace(message, delivery_count=(message.delivery_count or 0) + 1)
                handle = uuid4().hex
                self._leased[handle] = (key, now + lease)
                parcels.append(Parcel(message=message, handle=handle))
            return parcels

    async def settle(self, handles: Sequence[str], *, done: bool) -> list[bool]:
        now = datetime.now(UTC)
        answers = []
        with self._lock:
            for handle in handles:
                key, until = self._leased.pop(handle, ("", now))
                is_held = until > now and key in self._waiting
                if is_held and done:
                    del self._waiting[key]
                answers.append(is_held)
        return answers

    async def peek(self, *, limit: int = 10) -> list[Message]:
        with self._lock:
            return list(self._waiting.values())[:limit]
