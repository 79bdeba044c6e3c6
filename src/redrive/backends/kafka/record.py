"""A message as a record of a topic, and a record as a message."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE
from confluent_kafka import Message as Record

from redrive.model.errors import Unsupported
from redrive.model.letter import Origin
from redrive.model.message import REDRIVE_SOURCE_ID, Message

CONTENT_TYPE = "content-type"
RECEIVED_AT = "redrive-received-at"
"""When the message was first received. Not the record's own time: a topic throws away what is older than it keeps."""

_PLAIN = "application/octet-stream"
_REPR = "text/x-python-repr"
"""What `redrive.engine.extract` calls a body that is evidence only."""
_EPOCH = datetime.fromtimestamp(0, UTC)


def headers_of(message: Message) -> list[tuple[str, str | bytes | None]]:
    """The message's headers as they are, and what a record has no other place for; `Unsupported` when they cannot be carried."""
    if message.content_type == _REPR:
        raise Unsupported("only the repr of this message was kept, so it cannot be sent back as it was; repair its body first")
    names = {name.lower() for name, _ in message.headers}
    made: list[tuple[str, str | bytes | None]] = [pair for pair in message.headers if pair[0].lower() != RECEIVED_AT]
    if message.content_type != _PLAIN and CONTENT_TYPE not in names:
        made.append((CONTENT_TYPE, message.content_type.encode("utf-8", "backslashreplace")))
    if message.id is not None and REDRIVE_SOURCE_ID not in names:
        made.append((REDRIVE_SOURCE_ID, message.id.encode("utf-8", "backslashreplace")))
    if message.received_at is not None:
        made.append((RECEIVED_AT, message.received_at.isoformat().encode()))
    for name, _ in message.headers:
        if not _is_writable(name):
            raise Unsupported(f"the name of its header {name!r} cannot be written in Kafka; repair its headers first")
    return made


def _is_writable(name: str) -> bool:
    try:
        # librdkafka takes a name up to its first NUL.
        return b"\0" not in name.encode()
    except UnicodeEncodeError:
        return False


def partition_of(message: Message, topic: str, partitions: int) -> int:
    """Back to the partition that it came from, where its key's other messages are; -1: its key decides."""
    origin = message.origin
    # A queue may have the same name, and partitions too; but it has no offsets.
    if origin.topic != topic or origin.offset is None or origin.partition is None:
        return -1
    return origin.partition if 0 <= origin.partition < partitions else -1


def message_of(record: Record) -> Message:
    """A record as a message. Its id is its place: topic, partition and offset."""
    topic, partition, offset = record.topic(), record.partition(), record.offset()
    headers = tuple((name, _raw(value)) for name, value in _pairs(record))
    told = {name.lower(): value for name, value in headers}
    return Message(
        body=_raw(record.value()),
        content_type=told.get(CONTENT_TYPE, b"").decode("utf-8", "replace") or _PLAIN,
        id=f"{topic}-{partition}-{offset}",
        headers=headers,
        key=None if record.key() is None else _raw(record.key()),
        origin=Origin(topic=topic, partition=partition, offset=offset),
        received_at=_received_at(told.get(RECEIVED_AT), record),
    )


def _pairs(record: Record) -> list[tuple[str, str | bytes | None]]:
    found = record.headers() or []
    return list(found.items()) if isinstance(found, dict) else list(found)


def _raw(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


def _received_at(told: bytes | None, record: Record) -> datetime | None:
    if told is not None:
        try:
            at = datetime.fromisoformat(told.decode("ascii"))
        except ValueError:
            at = None
        if at is not None and at.tzinfo is not None:
            return at.astimezone(UTC)
    kind, milliseconds = record.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
