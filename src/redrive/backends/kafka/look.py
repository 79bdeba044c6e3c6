"""Look into a topic: read its oldest records, and leave nothing behind."""

from __future__ import annotations

import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka import Message as Record

from redrive.backends.kafka.address import Address
from redrive.backends.kafka.errors import misconfigured, sentence_of
from redrive.backends.kafka.record import message_of
from redrive.model.errors import BadSettings, StoreUnavailable
from redrive.model.message import Message

_POLL_SECONDS = 0.2
_MOST_AT_ONCE = 500


def looked(address: Address, partitions: int, limit: int) -> list[Message]:
    """The oldest records of all partitions, by their time."""
    try:
        consumer = Consumer(_configured(address))
    except KafkaException as error:
        raise misconfigured(error.args[0], address) from error
    try:
        consumer.assign([TopicPartition(address.topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
        found = _read(consumer, address, partitions, limit)
    finally:
        consumer.close()
    found.sort(key=lambda record: (record.timestamp()[1], record.partition(), record.offset()))
    return [message_of(record) for record in found[:limit]]


def _read(consumer: Consumer, address: Address, partitions: int, limit: int) -> list[Record]:
    """Up to `limit` of each partition: which of them are the oldest is known when all are there."""
    until = time.monotonic() + address.timeout.total_seconds()
    found: dict[int, list[Record]] = {partition: [] for partition in range(partitions)}
    open = set(found) if limit > 0 else set()
    while open:
        if time.monotonic() >= until:
            raise StoreUnavailable(f"{address.name} could not be read within {address.timeout.total_seconds():g} s")
        for record in consumer.consume(min(limit * len(open), _MOST_AT_ONCE), timeout=_POLL_SECONDS):
            partition, error = record.partition(), record.error()
            if error is not None and error.name() == "TOPIC_AUTHORIZATION_FAILED":
                raise BadSettings(sentence_of(error, address))
            if partition not in open or (error is not None and error.name() != "_PARTITION_EOF"):
                continue
            if error is None:
                found[partition].append(record)
            if error is not None or len(found[partition]) == limit:
                open.discard(partition)
    return [record for records in found.values() for record in records]


def _configured(address: Address) -> dict[str, object]:
    """The options of a consumer that belongs to no group: it says where it reads, and never how far it came."""
    return {
        "client.id": "redrive",
        "queued.max.messages.kbytes": 16_384,
        "log_level": 0,
        **address.options,
        "bootstrap.servers": address.brokers,
        "group.id": "redrive",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
    }
