"""`KafkaTransport`: letters become records of a topic, and each is sent when all replicas in sync have it.

The broker's acknowledgement says that the topic has it, not that its consumer has worked: that is open. What a broker refuses is
refused, what is not acknowledged in time is unknown. When no broker can be reached, nothing was sent.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import NoReturn

from confluent_kafka import KafkaError

from redrive.backends.kafka.address import Address
from redrive.backends.kafka.errors import delivery_of, is_too_large, sentence_of
from redrive.backends.kafka.line import Given, Heard, Landed, Line
from redrive.backends.kafka.look import looked
from redrive.backends.kafka.record import headers_of, partition_of
from redrive.model.category import Category
from redrive.model.errors import BadSettings, Unsupported
from redrive.model.message import Message
from redrive.model.operation import Delivered, Delivery, Refused, Unknown
from redrive.model.told import failure
from redrive.ports.aside import aside
from redrive.ports.transport import Parcel


class KafkaTransport:
    """One topic. It must be there: none is made by sending to it."""

    def __init__(self, address: Address) -> None:
        self.name = address.name
        self._address = address
        self._lock = threading.Lock()
        self._lines: list[Line] = []
        """The last one is in use; those before it are a parent's, or over."""
        # A transport has no end of its own: its line ends with it.
        weakref.finalize(self, _end, self._lines)

    def __repr__(self) -> str:
        return f"<KafkaTransport {self.name}>"

    async def send(self, messages: Sequence[Message]) -> list[Delivery]:
        """Messages of one key arrive in the order in which they are given, in the partition where their key belongs."""
        is_cancelled = threading.Event()
        try:
            return await aside(self._sent, messages, is_cancelled)
        except asyncio.CancelledError:
            # What was handed over may still arrive, under the same `redrive-id` as when it is sent again.
            is_cancelled.set()
            raise

    async def receive(self, *, limit: int = 10, lease: timedelta = timedelta(seconds=30)) -> list[Parcel]:
        self._cannot("received from")

    async def settle(self, handles: Sequence[str], *, done: bool) -> list[bool]:
        self._cannot("settled")

    async def peek(self, *, limit: int = 10) -> list[Message]:
        """The oldest records that the topic keeps, whether or not somebody has read them; nothing is committed."""
        return await aside(self._looked, limit)

    def _looked(self, limit: int) -> list[Message]:
        partitions = self._line().partitions()
        if isinstance(partitions, KafkaError):
            raise BadSettings(sentence_of(partitions, self._address))
        return looked(self._address, partitions, limit)

    def _cannot(self, verb: str) -> NoReturn:
        raise Unsupported(
            f"a topic can be sent to and looked into, but not {verb}, for Kafka leases no single message: {self.name}"
        )

    def _sent(self, messages: Sequence[Message], is_cancelled: threading.Event) -> list[Delivery]:
        line = self._line()
        partitions = line.partitions()
        if isinstance(partitions, KafkaError):
            return [delivery_of(partitions, self._address)] * len(messages)
        answers: dict[int, Delivery] = {}
        given: dict[int, Given] = {}
        for number, message in enumerate(messages):
            try:
                headers = headers_of(message)
            except Unsupported as error:
                answers[number] = Refused(
                    failure=failure("redrive.Unsupported", str(error), Category.PERMANENT), was_reached=False
                )
            else:
                partition = partition_of(message, self._address.topic, partitions)
                given[number] = Given(message.body, message.key, headers, partition)
        heard = dict(zip(given, line.send(list(given.values()), is_cancelled), strict=True))
        for number in self._refused_together(given, heard):
            # The topic takes less at once than went together; by itself it may fit.
            (heard[number],) = line.send([given[number]], is_cancelled)
        answers |= {number: self._delivery(one) for number, one in heard.items()}
        return [answers[number] for number in range(len(messages))]

    def _refused_together(self, given: dict[int, Given], heard: dict[int, Heard | None]) -> list[int]:
        if len(given) < 2:
            return []
        return [number for number, one in heard.items() if isinstance(one, KafkaError) and is_too_large(one)]

    def _delivery(self, heard: Heard | None) -> Delivery:
        match heard:
            case Landed():
                return Delivered(result=heard, where=str(heard))
            case None:
                return Unknown(reason=f"{self.name} was not heard of again; it may have arrived")
            case _:
                return delivery_of(heard, self._address)

    def _line(self) -> Line:
        with self._lock:
            if not self._lines or not self._lines[-1].is_usable:
                self._lines.append(Line(self._address))
            return self._lines[-1]


def _end(lines: list[Line]) -> None:
    for line in lines:
        line.end()
