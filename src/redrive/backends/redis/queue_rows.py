"""Items as bytes: what Python writes of them when they are put, and reads when they are leased or listed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct

from redrive.backends.redis.keys import text_bytes
from redrive.model.item import Again, Fresh, Item, Place, Why
from redrive.model.queue import Shard

_REST = Struct(">IB8I")
_INSTANTS = Struct(">QQQ")
_ITEM = Struct(">ccQQQQIB8I")
_LEASE = Struct(">QQ")

LETTERS = {Place.READY: "r", Place.LEASED: "l", Place.SCHEDULED: "s", Place.BEHIND: "b", Place.DYING: "d"}
_PLACES = {letter.encode(): place for place, letter in LETTERS.items()}
_WHY = {b"-": "", b"a": Why.ATTEMPTS.value, b"e": Why.EXPIRED.value, b"t": Why.TOLD.value}


def rest(fresh: Fresh) -> bytes:
    """The item from its attempts on."""
    message_id, source_id, key = text_bytes(fresh.message_id), text_bytes(fresh.source_id), text_bytes(fresh.key)
    reference, encoding, kind = text_bytes(fresh.reference), text_bytes(fresh.encoding), text_bytes(fresh.kind)
    story = fresh.story
    head = _REST.pack(
        fresh.attempts, fresh.priority,
        len(message_id), len(source_id), len(key), len(story), 0, len(reference), len(encoding), len(kind),
    )  # fmt: skip
    return b"".join((head, message_id, source_id, key, story, reference, encoding, kind, fresh.payload))


def instants(fresh: Fresh) -> bytes:
    """What is said of the item besides: its instants, and the partition it must go to."""
    packed = _INSTANTS.pack(max(fresh.created_us, 0), max(fresh.enqueue_us, 0), max(fresh.expire_us, 0))
    return packed if fresh.partition is None else packed + b"%d" % fresh.partition


def is_plain(shard: Shard, fresh: Fresh) -> bool:
    """Is nothing said of it but what is in it?"""
    return not (
        fresh.enqueue_us
        or fresh.source_id
        or fresh.created_us
        or fresh.expire_us
        or fresh.partition is not None
        or (shard.is_ordered and fresh.key)
        or (shard.dedupe_us and fresh.reference)
    )


def again_values(again: Iterable[Again]) -> list[bytes]:
    values: list[bytes] = []
    for one in again:
        values += (
            text_bytes(one.id),
            (b"1" if one.dead else b"0") + max(one.at_us, 0).to_bytes(8, "big"),
            one.failure,
        )
    return values


def leased_items(answer: Sequence[bytes], now_us: int, until_us: int) -> list[Item]:
    """Items that were just leased, from id and item of each."""
    items = []
    for id, raw in zip(answer[::2], answer[1::2], strict=True):
        item = _item(id, raw)
        item.place, item.attempts, item.updated_us, item.lease_us = Place.LEASED, item.attempts + 1, now_us, until_us
        items.append(item)
    return items


def listed_item(id: bytes, raw: bytes, lease: bytes) -> Item:
    item = _item(id, raw)
    if lease:
        item.lease_us, item.updated_us = _LEASE.unpack_from(lease)
        item.place, item.attempts = Place.LEASED, item.attempts + 1
    return item


def _item(raw_id: bytes, raw: bytes) -> Item:
    (
        place, why, created_us, updated_us, enqueue_us, expire_us, attempts, priority,
        message_id, source_id, key, story, failure, reference, encoding, kind,
    ) = _ITEM.unpack_from(raw)  # fmt: skip
    id = raw_id.decode()
    source_at = 71 + message_id
    key_at = source_at + source_id
    story_at = key_at + key
    failure_at = story_at + story
    reference_at = failure_at + failure
    encoding_at = reference_at + reference
    kind_at = encoding_at + encoding
    payload_at = kind_at + kind
    # By position: see `Item`.
    return Item(
        id,
        _text(raw[71:source_at]) if message_id else id,
        _text(raw[source_at:key_at]) if source_id else "",
        attempts, created_us, updated_us, enqueue_us, expire_us,
        raw[payload_at:],
        _text(raw[reference_at:encoding_at]) if reference else "",
        _text(raw[encoding_at:kind_at]) if encoding else "",
        _text(raw[kind_at:payload_at]) if kind else "",
        _text(raw[key_at:story_at]) if key else "",
        priority,
        raw[story_at:failure_at],
        _PLACES[place], 0, _WHY[why],
        raw[failure_at:reference_at],
    )  # fmt: skip


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")
