"""What the queues' HTTP interface refuses, to the letter: every sentence, in both encodings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from redrive.queues.verbs import Limits, item
from redrive.queues.wire import messages as m
from tests.unit.queue_use import HOUR, MINUTE, SOON, Use, used
from tests.unit.queue_wire import (
    ABSENT,
    CLEAR,
    COMPLETE,
    CREATE,
    DELETE,
    DISCARD,
    ENCODINGS,
    IMPORT,
    INFO,
    ITEMS,
    LEASE,
    LIST,
    NO_NAME,
    PRODUCE,
    RELOAD,
    RETRY,
    SCHEDULED,
    STATS,
    UPDATE,
    complete,
    create,
    ensure_refused,
    lease,
    produce,
    retry,
    say,
    tried,
)

NO_QUEUE = "queue does not exist; no such queue named 'nope'"
NO_TIMEOUT = "request timeout is required; '5m' is recommended, 15m is the maximum"
NOT_ID = "invalid storage id; 'bogus': Valid encoded KSUIDs are 27 characters"
NOT_THERE = f"invalid storage id; '{ABSENT}' does not exist"
NOT_9 = "partition is invalid; '9' is not a valid partition"
BAD_NAMES = {
    "": NO_NAME,
    "a b": "queue name is invalid; 'a b' cannot contain whitespace",
    "a~b": "queue name is invalid; 'a~b' cannot contain '~' character",
    "a" * 513: "queue name is invalid; cannot be greater than '512' characters",
}
LONG = "1m" + "0s" * 7
"""A duration of 16 characters."""
BAD_TIMEOUTS = {
    "": NO_TIMEOUT,
    "16m": "request timeout is invalid; maximum timeout is '15m' but '16m0s' was requested",
    "5ms": "request timeout is invalid; minimum timeout is '10ms' but '5ms' was requested",
    "10ms": "request timeout is invalid; minimum timeout is '10ms' but '10ms' was requested",
    "foo": 'request timeout is invalid; time: invalid duration "foo" - expected format: 900ms, 5m or 15m',
}
LEASE_FORM, EXPIRE_FORM = "expected format: 8m, 15m or 1h", "expected format: 60m, 2h or 24h"
REFUSED: list[tuple[str, m.Message, str]] = [
    *[(CREATE, create(queue_name=name), why) for name, why in BAD_NAMES.items()],
    (INFO, m.Named(), NO_NAME),
    (INFO, m.Named("a b"), BAD_NAMES["a b"]),
    (UPDATE, m.QueueInfo(), NO_NAME),
    (DELETE, m.Delete(), NO_NAME),
    (PRODUCE, produce(queue_name=""), NO_NAME),
    (LEASE, lease(queue_name=""), NO_NAME),
    (COMPLETE, complete(queue_name=""), NO_NAME),
    (RETRY, retry(ABSENT, queue_name=""), NO_NAME),
    (STATS, m.Named(), NO_NAME),
    (CLEAR, m.Clear(queue=True), NO_NAME),
    (RELOAD, m.Named(), NO_NAME),
    (ITEMS, m.ListItems(), NO_NAME),
    (SCHEDULED, m.ListItems(), NO_NAME),
    (IMPORT, m.Import(items=[m.StoredItem(payload=b"x")]), NO_NAME),
    (DISCARD, m.DeleteItems(ids=[ABSENT]), NO_NAME),
    (INFO, m.Named("nope"), NO_QUEUE),
    (UPDATE, m.QueueInfo(queue_name="nope", lease_timeout="1m"), NO_QUEUE),
    (PRODUCE, produce(queue_name="nope"), NO_QUEUE),
    (LEASE, lease(queue_name="nope"), NO_QUEUE),
    (COMPLETE, complete(queue_name="nope"), NO_QUEUE),
    (RETRY, retry(ABSENT, queue_name="nope"), NO_QUEUE),
    (STATS, m.Named("nope"), NO_QUEUE),
    (CLEAR, m.Clear("nope", queue=True), NO_QUEUE),
    (RELOAD, m.Named("nope"), NO_QUEUE),
    (ITEMS, m.ListItems("nope"), NO_QUEUE),
    (SCHEDULED, m.ListItems("nope"), NO_QUEUE),
    (IMPORT, m.Import("nope", items=[m.StoredItem(payload=b"x")]), NO_QUEUE),
    (DISCARD, m.DeleteItems("nope", ids=[ABSENT]), NO_QUEUE),
    (CREATE, create(queue_name="p1"), "invalid queue; 'p1' already exists"),
    (CREATE, create(lease_timeout=""), "lease timeout is invalid; cannot be empty"),
    (CREATE, create(expire_timeout=""), "expire timeout is invalid; cannot be empty"),
    (
        CREATE,
        create(lease_timeout="20m", expire_timeout="10m"),
        "lease timeout is too long; 20m0s cannot be greater than the expire timeout 10m0s",
    ),
    (
        UPDATE,
        m.QueueInfo(queue_name="p1", lease_timeout="61m"),
        "lease timeout is too long; 1h1m0s cannot be greater than the expire timeout 1h0m0s",
    ),
    (CREATE, create(lease_timeout="abc"), f'lease timeout is invalid; time: invalid duration "abc" - {LEASE_FORM}'),
    (CREATE, create(lease_timeout="5"), f'lease timeout is invalid; time: missing unit in duration "5" - {LEASE_FORM}'),
    (CREATE, create(expire_timeout="5"), f'expire timeout is invalid; time: missing unit in duration "5" - {EXPIRE_FORM}'),
    (
        CREATE,
        create(expire_timeout="5d"),
        f'expire timeout is invalid; time: unknown unit "d" in duration "5d" - {EXPIRE_FORM}',
    ),
    (CREATE, create(lease_timeout=LONG), "lease timeout is invalid; cannot be greater than '15' characters"),
    (CREATE, create(expire_timeout=LONG), "expire timeout is invalid; cannot be greater than '15' characters"),
    (CREATE, create(requested_partitions=0), "partitions is invalid; cannot be less than 1"),
    (CREATE, create(requested_partitions=-1), "partitions is invalid; cannot be less than 1"),
    (CREATE, create(max_attempts=-1), "max attempts is invalid; cannot be negative number"),
    (CREATE, create(max_attempts=65537), "max attempts is invalid; cannot be greater than 65536"),
    (CREATE, create(reference="r" * 2001), "reference field is invalid; cannot be greater than '2000' characters"),
    (CREATE, create(dead_queue="new"), "dead_queue cannot reference itself"),
    (UPDATE, m.QueueInfo(queue_name="p1", dead_queue="p1"), "dead_queue cannot reference itself"),
    (CREATE, create(dead_queue="x"), "dead_queue 'x' does not exist; create it first"),
    (CREATE, create(dead_queue="kept"), "dead_queue 'kept' cannot have its own dead_queue"),
    (UPDATE, m.QueueInfo(queue_name="dead", dead_queue="p1"), "dead_queue 'dead' cannot have its own dead_queue"),
    *[(PRODUCE, produce(request_timeout=text), why) for text, why in BAD_TIMEOUTS.items()],
    (
        PRODUCE,
        produce(request_timeout="15m"),
        "request timeout is invalid; maximum timeout is '15m' but '15m0s' was requested",
    ),
    *[(LEASE, lease(request_timeout=text), why) for text, why in BAD_TIMEOUTS.items()],
    *[(COMPLETE, complete(request_timeout=text), why) for text, why in BAD_TIMEOUTS.items()],
    (PRODUCE, produce(items=[]), "items cannot be empty; at least one item is required"),
    (
        PRODUCE,
        produce(items=[m.ProduceItem(utf8="x")] * 1001),
        "items is invalid; max_produce_batch_size is 1000 but received 1001",
    ),
    (LEASE, lease(client_id=""), "invalid client id; cannot be empty"),
    (LEASE, lease(batch_size=0), "invalid batch size; must be greater than zero"),
    (LEASE, lease(batch_size=-1), "invalid batch size; must be greater than zero"),
    (LEASE, lease(batch_size=1001), "invalid batch size; max_lease_batch_size is 1000, but 1001 was requested"),
    (COMPLETE, complete(ids=[]), "ids is invalid; list of ids cannot be empty"),
    (COMPLETE, complete(ids=[ABSENT] * 1001), "ids is invalid; max_complete_batch_size is 1000 but received 1001"),
    (RETRY, retry(), "items is invalid; list of items cannot be empty"),
    (COMPLETE, complete(ids=["bogus"]), NOT_ID),
    (RETRY, retry("bogus"), NOT_ID),
    (DISCARD, m.DeleteItems("p1", ids=["bogus"]), NOT_ID),
    (COMPLETE, complete(), NOT_THERE),
    (RETRY, retry(ABSENT), NOT_THERE),
    (COMPLETE, complete(partition=9), NOT_9),
    (RETRY, retry(ABSENT, partition=9), NOT_9),
    (ITEMS, m.ListItems("p1", 9), NOT_9),
    (SCHEDULED, m.ListItems("p1", 9), NOT_9),
    (IMPORT, m.Import("p1", 9, [m.StoredItem(payload=b"x")]), NOT_9),
    (DISCARD, m.DeleteItems("p1", 9, [ABSENT]), NOT_9),
    (COMPLETE, complete(partition=-1), "partition is invalid; '-1' is not a valid partition"),
    (LIST, m.ListQueues(limit=-1), "limit is invalid; limit cannot be negative"),
    (LIST, m.ListQueues(limit=65537), "limit is invalid; cannot be greater than 65536"),
    (LIST, m.ListQueues(pivot="~"), "pivot is invalid; '~' cannot contain '~' character"),
    (IMPORT, m.Import("p1"), "items is invalid; cannot be empty"),
    (DISCARD, m.DeleteItems("p1"), "ids is invalid; cannot be empty"),
    (CLEAR, m.Clear("p1"), "invalid clear request; one of 'queue', 'scheduled' must be true"),
    (CLEAR, m.Clear("p1", destructive=True), "invalid clear request; one of 'queue', 'scheduled' must be true"),
]


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
@pytest.mark.parametrize(("path", "message", "sentence"), REFUSED, ids=[f"{path[4:]}-{why[:60]}" for path, _, why in REFUSED])
def test_what_is_wrong_is_refused_in_these_words(path: str, message: m.Message, sentence: str, encoding: str) -> None:
    async def trial(use: Use) -> None:
        ensure_refused(await say(use.endpoint, path, message, encoding), 400, sentence)
        assert [queue.name for queue in await use.served.queues()] == ["dead", "empty", "kept", "p1"]
        assert [stored.payload for stored in await use.served.items("p1", 0)] == [b"hello"]

    tried(trial)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
@pytest.mark.parametrize(
    ("path", "request_for", "done"),
    [
        (COMPLETE, lambda one: complete(ids=[one]), "completed"),
        (RETRY, retry, "retried"),
    ],
    ids=["complete", "retry"],
)
def test_what_nobody_has_leased_cannot_be_settled(
    path: str, request_for: Callable[[str], m.Message], done: str, encoding: str
) -> None:
    async def trial(use: Use) -> None:
        (stored,) = await use.served.items("p1", 0)
        sentence = f"item(s) cannot be {done}; '{stored.id}' is not marked as leased"
        ensure_refused(await say(use.endpoint, path, request_for(stored.id), encoding), 400, sentence)

    tried(trial)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
def test_a_client_waits_once(encoding: str) -> None:
    async def trial(use: Use) -> None:
        first = asyncio.create_task(say(use.endpoint, LEASE, lease(queue_name="empty"), encoding))
        await until_leasing(use, "empty", 1)
        second = await say(use.endpoint, LEASE, lease(queue_name="empty"), encoding)
        ensure_refused(second, 400, "duplicate client id; a client cannot make multiple leased requests to the same queue")
        await use.served.produce("empty", [item(b"here")], timeout=SOON)
        assert (await first).status == 200

    tried(trial)


async def until_leasing(use: Use, name: str, count: int) -> None:
    async with asyncio.timeout(10):
        while (await use.served.stats(name)).leasing != count:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
def test_who_finds_nothing_is_told_to_come_again(encoding: str) -> None:
    async def trial(use: Use) -> None:
        heard = await say(use.endpoint, LEASE, lease(queue_name="empty", request_timeout="20ms"), encoding)
        ensure_refused(heard, 454, "request timeout; no items are in the queue, try again")

    tried(trial)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
@pytest.mark.parametrize(
    ("path", "message"), [(PRODUCE, produce()), (LEASE, lease(queue_name="empty"))], ids=["produce", "lease"]
)
def test_a_queue_that_has_too_much_to_do_says_so(path: str, message: m.Message, encoding: str) -> None:
    async def run() -> None:
        async with used("over HTTP", "memory:", limits=Limits(producing=0, leasing=0)) as use:
            for name in ("p1", "empty"):
                await use.served.create(name, lease_timeout=MINUTE, expire_timeout=HOUR)
            ensure_refused(await say(use.endpoint, path, message, encoding), 454, "queue is overloaded; try again later")

    asyncio.run(run())


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
@pytest.mark.parametrize(
    ("path", "message"),
    [
        (CREATE, create()),
        (LIST, m.ListQueues()),
        (PRODUCE, produce()),
        (LEASE, lease()),
        (STATS, m.Named("p1")),
        (ITEMS, m.ListItems("p1")),
    ],
    ids=["create", "list", "produce", "lease", "stats", "items"],
)
def test_queues_that_shut_down_say_so(path: str, message: m.Message, encoding: str) -> None:
    async def trial(use: Use) -> None:
        use.served.dismiss()
        ensure_refused(await say(use.endpoint, path, message, encoding), 453, "service is shutting down")

    tried(trial)
