"""How tests use a Kafka: make topics, send to them as redrive does, and read them as any consumer would."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka import Message as Record
from confluent_kafka.admin import AdminClient, NewTopic

from redrive import Message
from redrive.model.operation import Delivery, Refused, Unknown
from redrive.settings import Settings
from redrive.wiring import transport
from tests.unit.shell import eventually

_SECONDS = 30


def shared() -> str:
    """The brokers that all tests share."""
    return brokers(os.environ["REDRIVE_TEST_KAFKA"])


def brokers(url: str) -> str:
    """`host:port` of an engine's URL."""
    return url.removeprefix("kafka://")


def made(where: str, topic: str, *, partitions: int = 1, **config: str) -> str:
    """A new topic that its broker knows of; answers with its URL. Options are written with _ for dots."""
    admin = AdminClient({"bootstrap.servers": where, "log_level": 0})
    told = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1, config=told)])[topic].result(_SECONDS)
    eventually(lambda: topic in topics(where))
    return f"kafka://{where}/{topic}"


def deleted(where: str, topic: str) -> None:
    """The topic is gone when this returns."""
    # What a client was asked for ends with it.
    admin = AdminClient({"bootstrap.servers": where, "log_level": 0})
    admin.delete_topics([topic])[topic].result(_SECONDS)
    eventually(lambda: topic not in topics(where))


def topics(where: str) -> set[str]:
    """All that there are."""
    return set(AdminClient({"bootstrap.servers": where, "log_level": 0}).list_topics(timeout=_SECONDS).topics)


def read(where: str, topic: str) -> list[Record]:
    """All that is in a topic now, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": where,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        partitions = range(len(consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions))
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        open, found = set(partitions), []

        def is_over() -> bool:
            for record in consumer.consume(1000, timeout=0.1):
                error = record.error()
                if error is None:
                    found.append(record)
                elif error.name() == "_PARTITION_EOF":
                    open.discard(record.partition())
            return not open

        eventually(is_over)
    finally:
        consumer.close()
    return sorted(found, key=lambda record: (record.partition(), record.offset()))


def bodies(where: str, topic: str) -> list[bytes]:
    return [record.value() or b"" for record in read(where, topic)]


def headers(record: Record) -> dict[str, bytes]:
    """By name; where one is repeated, its last value."""
    pairs: Any = record.headers() or []
    return dict(pairs)


def sent(url: str, *messages: Message, kafka: Mapping[str, str] | None = None) -> list[Delivery]:
    """What a target answers."""
    return asyncio.run(transport(url, Settings(kafka=dict(kafka or {}))).send(messages or [Message(body=b"x")]))


def refused(url: str, *messages: Message, kafka: Mapping[str, str] | None = None) -> Refused:
    (delivery,) = sent(url, *messages, kafka=kafka)
    assert isinstance(delivery, Refused)
    return delivery


def unknown(delivery: Delivery) -> str:
    assert isinstance(delivery, Unknown), delivery
    return delivery.reason
