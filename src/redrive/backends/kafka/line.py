"""A line to the brokers: a producer, and the thread that hears what became of what it was given."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Record
from msgspec import Struct

from redrive.backends.kafka.address import Address
from redrive.backends.kafka.errors import is_about_login, misconfigured, unreachable

_LISTEN_SECONDS = 0.2
_ASK_SECONDS = 1.0
_REACH_SECONDS = 10.0
"""So long at most for a broker to be found; some are just being started anew."""
_NEW_SECONDS = 1.0
"""So long a topic that was just made may be unknown to some brokers."""
_AGAIN_SECONDS = 0.1
_GRACE_SECONDS = 5.0
_CLOSE_SECONDS = 2.0
_BATCH_BYTES = 65_536
"""A broker refuses what goes together as a whole. So no more goes together than any topic in its senses takes at once."""


class Given(Struct, frozen=True):
    """What is handed over as one record."""

    value: bytes
    key: bytes | None
    headers: list[tuple[str, str | bytes | None]]
    partition: int


class Landed(Struct, frozen=True):
    """Where a broker has put a message."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}, partition {self.partition}, offset {self.offset}"


Heard = Landed | KafkaError


class Mail:
    """Some records on their way, and what was heard of each."""

    def __init__(self, count: int) -> None:
        self.heard: list[Heard | None] = [None] * count
        self._left = count
        self._lock = threading.Lock()
        self._is_answered = threading.Event()
        if not count:
            self._is_answered.set()

    def tell(self, number: int, error: KafkaError | None, record: Record | None) -> None:
        """A broker has answered, or librdkafka in its place."""
        if error is None and record is not None:
            self.heard[number] = Landed(record.topic() or "", record.partition() or 0, record.offset() or 0)
        else:
            self.heard[number] = error
        with self._lock:
            self._left -= 1
            if not self._left:
                self._is_answered.set()

    def wait(self, seconds: float) -> None:
        """Until all is answered, or so long."""
        self._is_answered.wait(seconds)


class Line:
    """Used from whatever thread; it blocks, and is ended by `end`. Never taken over by a forked child."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._process = os.getpid()
        self._trouble: KafkaError | None = None
        self._is_over = threading.Event()
        self._is_spent = False
        self._seconds = address.timeout.total_seconds()
        try:
            self._producer = Producer(_configured(address) | {"error_cb": self._note})
        except KafkaException as error:
            raise misconfigured(error.args[0], address) from error
        threading.Thread(target=self._listen, name="redrive-kafka", daemon=True).start()

    @property
    def is_usable(self) -> bool:
        """Is it this process's, and has it not come to a state that it cannot leave?"""
        return self._process == os.getpid() and not self._is_spent

    def partitions(self) -> int | KafkaError:
        """How many the topic has, or why it cannot be sent to. Raises when no broker can be asked; nothing is made by asking."""
        until = time.monotonic() + min(self._seconds, _REACH_SECONDS)
        # A new topic is known to all a moment after it was made.
        patient_until = time.monotonic() + min(self._seconds, _NEW_SECONDS)
        while True:
            try:
                found = self._producer.list_topics(self._address.topic, timeout=_ASK_SECONDS).topics[self._address.topic]
            except KafkaException as error:
                trouble = self._trouble or error.args[0]
                if time.monotonic() >= until or is_about_login(trouble):
                    raise unreachable(trouble, self._address) from error
                self._is_over.wait(_AGAIN_SECONDS)
                continue
            self._trouble = None
            if found.error is None or found.error.name() == "LEADER_NOT_AVAILABLE":
                return len(found.partitions)
            if time.monotonic() >= patient_until:
                return KafkaError(found.error.code(), found.error.str())
            self._is_over.wait(_AGAIN_SECONDS)

    def send(self, given: Sequence[Given], is_cancelled: threading.Event) -> list[Heard | None]:
        """Hand records over, and wait for what becomes of them; None: that was never told. Nothing is begun once it is cancelled."""
        mail = Mail(len(given))
        for number, one in enumerate(given):
            if is_cancelled.is_set():
                break
            self._hand_over(one, partial(mail.tell, number), is_cancelled)
        else:
            mail.wait(self._seconds + _GRACE_SECONDS)
        heard = mail.heard
        if any(isinstance(one, KafkaError) and one.fatal() for one in heard):
            self._is_spent = True
        return heard

    def end(self) -> None:
        """Send nothing more that is not on its way; the thread that listens sees to the rest."""
        self._is_over.set()

    def _hand_over(self, one: Given, tell: partial[None], is_cancelled: threading.Event) -> None:
        until = time.monotonic() + self._seconds
        while True:
            try:
                self._producer.produce(
                    self._address.topic,
                    value=one.value,
                    key=one.key,
                    headers=one.headers,
                    partition=one.partition,
                    on_delivery=tell,
                )
            except KafkaException as error:
                tell(error.args[0], None)
            except BufferError:
                if time.monotonic() < until and not is_cancelled.wait(_LISTEN_SECONDS / 10):
                    continue
                tell(KafkaError(KafkaError._QUEUE_FULL), None)  # noqa: SLF001 - so librdkafka calls its own codes
            return

    def _note(self, error: KafkaError) -> None:
        """That all are down says less than why one is; and a refused login more than a connection that broke."""
        if error.name() == "_ALL_BROKERS_DOWN" or (self._trouble is not None and is_about_login(self._trouble)):
            return
        self._trouble = error

    def _listen(self) -> None:
        while not self._is_over.is_set():
            self._producer.poll(_LISTEN_SECONDS)
        self._producer.flush(_CLOSE_SECONDS)
        # Closing waits for what is left, however long; so nothing is.
        self._producer.purge()
        with suppress(KafkaException):
            self._producer.close()


def _configured(address: Address) -> dict[str, object]:
    """The options of a producer whose answers can be believed: no order is changed, nothing is written twice by itself."""
    milliseconds = max(1, int(address.timeout.total_seconds() * 1000))
    return {
        "client.id": "redrive",
        "linger.ms": 1,
        "batch.size": _BATCH_BYTES,
        # The topic says what is too large for it.
        "message.max.bytes": 1_000_000_000,
        # As Kafka's own clients choose a partition by a key.
        "partitioner": "murmur2_random",
        "log_level": 0,
        **address.options,
        "bootstrap.servers": address.brokers,
        "enable.idempotence": True,
        "acks": "all",
        "message.timeout.ms": milliseconds,
        "allow.auto.create.topics": False,
    }
