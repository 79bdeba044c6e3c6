"""What the queues' HTTP interface says, to the letter: every refusal in both encodings, and the form of its answers."""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec import Struct

from redrive.queues.verbs import Limits, item
from redrive.queues.wire import messages as m
from redrive.queues.wire import proto, protojson
from redrive.testing.clock import ManualClock
from tests.unit.queue_use import HOUR, MINUTE, SOON, Use, used

JSON, PROTOBUF = "application/json", "application/protobuf"
ENCODINGS = [JSON, PROTOBUF]
TEXTS = {400: "Bad Request", 453: "Request Failed", 454: "Retry Request", 455: "Client Content Error", 501: "Not Implemented"}
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ABSENT = "0" * 27
"""An id as good as any, that no item has."""


class Heard(Struct):
    status: int
    content_type: str
    body: bytes

    @property
    def told(self) -> Any:
        """The answer, whichever encoding it is in."""
        return json.loads(self.body)


async def ask(endpoint: str, path: str, body: bytes = b"", *, method: str = "POST", **headers: str) -> Heard:
    """One request on a connection of its own; `content_type` and `accept` are sent when they are given."""
    parts = urlsplit(endpoint)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {parts.netloc}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    first, *named = head.decode().split("\r\n")
    (content_type,) = [line.partition(": ")[2] for line in named if line.lower().startswith("content-type:")]
    return Heard(int(first.split()[1]), content_type, rest)


async def say(endpoint: str, path: str, message: m.Message, encoding: str) -> Heard:
    """A message in an encoding, to be answered in the same."""
    body = protojson.write(message) if encoding == JSON else proto.write(message)
    heard = await ask(endpoint, path, body, content_type=encoding, accept=encoding)
    assert heard.content_type == encoding
    return heard


def reply(heard: Heard) -> m.Reply:
    if heard.content_type == PROTOBUF:
        return proto.read(m.Reply, heard.body)
    told = heard.told
    assert set(told) <= {"code", "code_text", "message"}, "the original's endpoints have no more to say"
    return m.Reply(**told)


def refusal(code: int, message: str) -> m.Reply:
    return m.Reply(code=code, code_text=TEXTS[code], message=message)


def ensure_refused(heard: Heard, code: int, message: str) -> None:
    """Protobuf's own sentences begin with `proto:` and a space that may be one that does not break."""
    assert heard.status == code
    told = reply(heard)
    told.message = told.message.replace("\u00a0", " ")
    assert told == refusal(code, message)


@asynccontextmanager
async def world(limits: Limits = Limits()) -> AsyncIterator[Use]:
    """Queues to be refused things at: `p1` with one item, which nobody has leased; `kept` leads to `dead`."""
    async with used("over HTTP", "memory:", clock=ManualClock(NOON), limits=limits) as use:
        await use.served.create("dead", lease_timeout=MINUTE, expire_timeout=HOUR)
        await use.served.create("p1", lease_timeout=MINUTE, expire_timeout=HOUR)
        await use.served.create("kept", lease_timeout=MINUTE, expire_timeout=HOUR, dead_queue="dead")
        await use.served.create("empty", lease_timeout=MINUTE, expire_timeout=HOUR)
        await use.served.produce("p1", [item(b"hello")], timeout=SOON)
        yield use


def tried(trial: Callable[[Use], Coroutine[Any, Any, None]], limits: Limits = Limits()) -> None:
    async def run() -> None:
        async with world(limits) as use:
            await trial(use)

    asyncio.run(run())


def create(**changes: Any) -> m.QueueInfo:
    usual = {"queue_name": "new", "lease_timeout": "1m", "expire_timeout": "24h", "requested_partitions": 1}
    return m.QueueInfo(**{**usual, **changes})


def produce(**changes: Any) -> m.Produce:
    return m.Produce(**{"queue_name": "p1", "request_timeout": "1m", "items": [m.ProduceItem(utf8="hi")], **changes})


def lease(**changes: Any) -> m.Lease:
    return m.Lease(**{"queue_name": "p1", "batch_size": 1, "client_id": "worker", "request_timeout": "1m", **changes})


def complete(**changes: Any) -> m.Complete:
    return m.Complete(**{"queue_name": "p1", "request_timeout": "1m", "ids": [ABSENT], **changes})


def retry(*ids: str, **changes: Any) -> m.Retry:
    return m.Retry(**{"queue_name": "p1", "items": [m.RetryItem(id=id) for id in ids], **changes})


CREATE, UPDATE, LIST, INFO, DELETE = (f"/v1/queues.{verb}" for verb in ("create", "update", "list", "info", "delete"))
PRODUCE, LEASE, COMPLETE, RETRY = (f"/v1/queue.{verb}" for verb in ("produce", "lease", "complete", "retry"))
STATS, CLEAR, RELOAD = (f"/v1/queue.{verb}" for verb in ("stats", "clear", "reload"))
ITEMS, SCHEDULED, IMPORT, DISCARD = (
    f"/v1/storage/{verb}" for verb in ("items.list", "scheduled.list", "items.import", "items.delete")
)

NO_NAME = "queue name is invalid; queue name cannot be empty"
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


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
@pytest.mark.parametrize("path", [LIST, "/v1/nope"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_all_is_posted(method: str, path: str, encoding: str) -> None:
    async def trial(use: Use) -> None:
        heard = await ask(use.endpoint, path, method=method, accept=encoding)
        assert heard.content_type == encoding
        ensure_refused(heard, 400, f"http method '{method}' not allowed; only POST")

    tried(trial)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
@pytest.mark.parametrize("path", ["/v1/nope", "/v1/", "/v1/queue.lease/", "/v1/more/nope"])
def test_what_is_nowhere_is_not_implemented(path: str, encoding: str) -> None:
    async def trial(use: Use) -> None:
        heard = await ask(use.endpoint, path, b"{}", accept=encoding, content_type=JSON)
        assert heard.content_type == encoding
        ensure_refused(heard, 501, f"no such method; {path}")

    tried(trial)


@pytest.mark.parametrize(
    "given", [None, JSON, "application/json; charset=utf-8", "application/json;charset=utf-8", "Application/JSON"]
)
def test_json_is_what_says_so_and_what_says_nothing(given: str | None) -> None:
    async def trial(use: Use) -> None:
        headers = {} if given is None else {"content_type": given}
        heard = await ask(use.endpoint, INFO, b'{"queue_name":"p1"}', **headers)
        assert (heard.status, heard.told["queue_name"]) == (200, "p1")

    tried(trial)


@pytest.mark.parametrize("given", [PROTOBUF, "application/protobuf; proto=x"])
def test_protobuf_without_accept_is_answered_in_json(given: str) -> None:
    async def trial(use: Use) -> None:
        heard = await ask(use.endpoint, INFO, proto.write(m.Named("p1")), content_type=given)
        assert (heard.status, heard.content_type, heard.told["queue_name"]) == (200, JSON, "p1")

    tried(trial)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
@pytest.mark.parametrize("given", ["text/plain", "text/plain; charset=utf-8", "application/xml", "json", "application/jsonp"])
def test_any_other_content_type_is_refused(given: str, encoding: str) -> None:
    async def trial(use: Use) -> None:
        heard = await ask(use.endpoint, LIST, b"{}", content_type=given, accept=encoding)
        assert heard.content_type == encoding
        ensure_refused(heard, 455, f"Content-Type header '{given}' is invalid format or unrecognized content type")

    tried(trial)


@pytest.mark.parametrize(
    ("accept", "encoding"),
    [
        ("*/*", JSON),
        ("application/*", JSON),
        (JSON, JSON),
        ("application/json; q=0.9", JSON),
        ("application/json, application/protobuf", JSON),
        ("*/*, application/protobuf", JSON),
        (PROTOBUF, PROTOBUF),
        ("Application/Protobuf", PROTOBUF),
        ("application/protobuf;q=1", PROTOBUF),
        ("application/protobuf, application/json", PROTOBUF),
    ],
)
def test_the_answer_is_in_the_format_that_is_accepted_first(accept: str, encoding: str) -> None:
    async def trial(use: Use) -> None:
        heard = await ask(use.endpoint, INFO, b'{"queue_name":"p1"}', content_type=JSON, accept=accept)
        assert (heard.status, heard.content_type) == (200, encoding)
        told = heard.told["queue_name"] if encoding == JSON else proto.read(m.QueueInfo, heard.body).queue_name
        assert told == "p1"

    tried(trial)


@pytest.mark.parametrize(
    ("accept", "named"), [("text/plain", "text/plain"), ("text/html, application/json", "text/html"), ("text/*", "text/*")]
)
def test_a_format_that_is_not_spoken_is_refused_in_json(accept: str, named: str) -> None:
    async def trial(use: Use) -> None:
        heard = await ask(use.endpoint, LIST, b"{}", accept=accept)
        assert heard.content_type == JSON
        sentence = (
            f"Accept header '{named}' is invalid format or unrecognized content type, only [{JSON},{PROTOBUF}] are supported"
        )
        ensure_refused(heard, 455, f"{sentence} by this method")

    tried(trial)


LIMITS = [
    (PRODUCE, 5_000_000, "5.0MB"),
    (LEASE, 512, "512B"),
    (STATS, 512, "512B"),
    (CLEAR, 512, "512B"),
    (RELOAD, 512, "512B"),
    (IMPORT, 64_000_000, "61.0MiB"),
    (UPDATE, 512_000, "500.0KiB"),
    *[(path, 256_000, "250.0KiB") for path in (COMPLETE, RETRY, CREATE, LIST, INFO, DELETE, ITEMS, SCHEDULED, DISCARD)],
]


@pytest.mark.parametrize(
    ("path", "limit", "text", "encoding"),
    [(*limit, encoding) for limit in LIMITS for encoding in ENCODINGS if (limit[0], encoding) != (IMPORT, PROTOBUF)],
)
def test_a_body_may_have_so_many_bytes_and_not_one_more(path: str, limit: int, text: str, encoding: str) -> None:
    async def trial(use: Use) -> None:
        fits = await ask(use.endpoint, path, b"{}".ljust(limit), content_type=JSON, accept=encoding)
        assert (fits.status, path) == (200, LIST) or reply(fits).message == NO_NAME
        heard = await ask(use.endpoint, path, b"{}".ljust(limit + 1), content_type=JSON, accept=encoding)
        assert heard.content_type == encoding
        ensure_refused(heard, 400, f"request body exceeds {text} limit")

    tried(trial)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        (CREATE, b'{"queue_name":"abcd", "foo":1}', 'proto: (line 1:23): unknown field "foo"'),
        (CREATE, b'{"queue_name":"abc", "foo":1}', 'proto: (line 1:22): unknown field "foo"'),
        (CREATE, b'{\n "queue_name":1}', "proto: (line 2:15): invalid value for string type: 1"),
        (CREATE, b'{"queueName":"a","queue_name":"b"}', 'proto: (line 1:18): duplicate field "queue_name"'),
        (CREATE, b"", "proto: syntax error (line 1:1): unexpected token "),
        (CREATE, b"[]", "proto: syntax error (line 1:1): unexpected token ["),
        (CREATE, b"null", "proto: syntax error (line 1:1): unexpected token null"),
        (CREATE, b"nul", "proto: syntax error (line 1:1): invalid value nul"),
        (CREATE, b'{"queue_name":', "proto: unexpected EOF"),
        (CREATE, b'{"queue_name":"abc', "proto: unexpected EOF"),
        (CREATE, b'{"queue_name":"a",}', "proto: syntax error (line 1:19): unexpected token }"),
        (CREATE, b'{"queue_name":"x"}{}', "proto: syntax error (line 1:19): unexpected token {"),
        (CREATE, b"{a:1}", "proto: syntax error (line 1:2): invalid value a"),
        (CREATE, b'{"queue_name":tru}', "proto: syntax error (line 1:15): invalid value tru"),
        (CREATE, b'{"max_attempts":true}', "proto: (line 1:17): invalid value for int32 type: true"),
        (CREATE, b'{"max_attempts":1.5}', "proto: (line 1:17): invalid value for int32 type: 1.5"),
        (CREATE, b'{"max_attempts":2147483648}', "proto: (line 1:17): invalid value for int32 type: 2147483648"),
        (CREATE, b'{"max_attempts":1e400}', "proto: (line 1:17): invalid value for int32 type: 1e400"),
        (CREATE, b'{"max_attempts":"1e400"}', 'proto: (line 1:17): invalid value for int32 type: "1e400"'),
        (CREATE, '{"max_attempts":"٣"}'.encode(), 'proto: (line 1:17): invalid value for int32 type: "٣"'),
        (CREATE, b'{"max_attempts":01}', "proto: syntax error (line 1:17): invalid value 01"),
        (CREATE, b'{"max_attempts":1x}', "proto: syntax error (line 1:17): invalid value 1x"),
        (CREATE, b'{"max_attempts":- 1}', "proto: syntax error (line 1:17): invalid value -"),
        (CREATE, b'{"queue_name":{}}', "proto: (line 1:15): invalid value for string type: {"),
        (CREATE, b'{"created_at":{}}', "proto: syntax error (line 1:15): unexpected token {"),
        (CREATE, b'{"created_at":1}', "proto: syntax error (line 1:15): unexpected token 1"),
        (CREATE, b'{"created_at":""}', 'proto: (line 1:15): invalid google.protobuf.Timestamp value ""'),
        (CREATE, b'{"partitions":[null]}', "proto: syntax error (line 1:16): unexpected token null"),
        (CREATE, b'{"partitions":{}}', "proto: syntax error (line 1:15): unexpected token {"),
        (PRODUCE, b'{"items":[{"bytes":"!!"}]}', 'proto: (line 1:20): invalid value for bytes type: "!!"'),
        (PRODUCE, b'{"items":[{"bytes":"a-!!"}]}', 'proto: (line 1:20): invalid value for bytes type: "a-!!"'),
        (
            PRODUCE,
            b'{"queue_name":"p1","request_timeout":"1m","items":[{"enqueue_at":"tomorrow"}]}',
            'proto: (line 1:66): invalid google.protobuf.Timestamp value "tomorrow"',
        ),
        (
            PRODUCE,
            b'{"queue_name":"p1","request_timeout":"1m","items":[{"enqueue_at":"2026-02-30T00:00:00Z"}]}',
            'proto: (line 1:66): invalid google.protobuf.Timestamp value "2026-02-30T00:00:00Z"',
        ),
        (
            IMPORT,
            b'{"queue_name":"p1","items":[{"payload":"aGk=","updated_at":"2024-13-01T00:00:00Z"}]}',
            'proto: (line 1:60): invalid google.protobuf.Timestamp value "2024-13-01T00:00:00Z"',
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_json_that_is_no_message_is_refused_with_its_place(path: str, body: bytes, sentence: str, encoding: str) -> None:
    async def trial(use: Use) -> None:
        heard = await ask(use.endpoint, path, body, content_type=JSON, accept=encoding)
        assert heard.content_type == encoding
        ensure_refused(heard, 455, sentence)
        assert [stored.payload for stored in await use.served.items("p1", 0)] == [b"hello"]

    tried(trial)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"\x08", "proto: cannot parse invalid wire-format data"),
        (b"\x0a\x02\xff\xff", "proto: cannot parse invalid wire-format data"),
        (
            b"\x0a\x02p1\x12\x021m\x1a\x0c\x22\x0a\x08" + b"\xff" * 8 + b"\x7f",
            "proto: invalid google.protobuf.Timestamp value: 9223372036854775807 s and 0 ns",
        ),
    ],
    ids=["cut short", "no text", "no instant"],
)
def test_protobuf_that_is_no_message_is_refused(body: bytes, sentence: str, encoding: str) -> None:
    async def trial(use: Use) -> None:
        heard = await ask(use.endpoint, PRODUCE, body, content_type=PROTOBUF, accept=encoding)
        assert heard.content_type == encoding
        ensure_refused(heard, 455, sentence)

    tried(trial)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
def test_what_is_done_without_more_to_say_is_code_200(encoding: str) -> None:
    async def trial(use: Use) -> None:
        (stored,) = (await use.served.lease("p1", 1, client="worker", timeout=SOON)).items
        for path, message in (
            (CREATE, create()),
            (UPDATE, m.QueueInfo(queue_name="new", lease_timeout="2m")),
            (PRODUCE, produce(queue_name="new")),
            (COMPLETE, complete(ids=[stored.id])),
            (CLEAR, m.Clear("new", queue=True)),
            (RELOAD, m.Named("new")),
            (DELETE, m.Delete("new")),
        ):
            heard = await say(use.endpoint, path, message, encoding)
            assert heard.status == 200
            assert heard.body == (b'{"code":200}' if encoding == JSON else b"\x08\xc8\x01"), path

    tried(trial)


@pytest.mark.parametrize("path", [LEASE, COMPLETE])
def test_a_quarter_of_an_hour_is_not_too_long_to_lease_and_complete(path: str) -> None:
    async def trial(use: Use) -> None:
        if path == COMPLETE:
            (stored,) = (await use.served.lease("p1", 1, client="worker", timeout=SOON)).items
            message: m.Message = complete(ids=[stored.id], request_timeout="15m")
        else:
            message = lease(request_timeout="15m")
        assert (await say(use.endpoint, path, message, JSON)).status == 200

    tried(trial)


@pytest.mark.parametrize("text", ["10.001ms", "10001µs", "14m59.999999999s", "0.5m", "1m0s0s0s0s0s0s0s", "+1s"])
def test_a_request_timeout_may_be_written_as_go_writes_it(text: str) -> None:
    async def trial(use: Use) -> None:
        assert (await say(use.endpoint, PRODUCE, produce(request_timeout=text), JSON)).status == 200

    tried(trial)


def test_names_are_in_camel_case_or_snake_case_and_come_back_in_snake_case() -> None:
    async def trial(use: Use) -> None:
        body = (
            b'{"queueName":"new","leaseTimeout":"90s","expireTimeout":"1440m","requestedPartitions":2,'
            b'"maxAttempts":"3","deadQueue":"dead","reference":null}'
        )
        assert (await ask(use.endpoint, CREATE, body)).body == b'{"code":200}'
        told = (await ask(use.endpoint, INFO, b'{"queue_name":"new"}')).told
        instants = {told.pop("created_at"), told.pop("updated_at")}
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3}|\.\d{6}|\.\d{9})?Z", instant) for instant in instants)
        assert told == {
            "queue_name": "new",
            "lease_timeout": "1m30s",
            "expire_timeout": "24h0m0s",
            "requested_partitions": 2,
            "max_attempts": 3,
            "dead_queue": "dead",
        }, "durations are normalised, and what is nothing is left out, the namespace too"
        listed = (await ask(use.endpoint, LIST, b'{"pivot":"new"}')).told
        assert [queue["queue_name"] for queue in listed["items"]] == ["new", "p1"]
        assert not any("namespace" in queue or "partitions" in queue for queue in listed["items"])

    tried(trial)


def test_bytes_are_base64_and_win_over_text() -> None:
    async def trial(use: Use) -> None:
        sent = [
            {"bytes": b64encode(b"\x00\xfe\xff").decode(), "utf8": "loses", "kind": "k", "encoding": "e", "reference": "r"},
            {"utf8": "naïve"},
            {"bytes": "-_8"},
            {},
        ]
        body = json.dumps({"queueName": "empty", "requestTimeout": "1m", "items": sent}).encode()
        assert (await ask(use.endpoint, PRODUCE, body)).status == 200
        told = (await say(use.endpoint, LEASE, lease(queue_name="empty", batch_size=10), JSON)).told
        items = told.pop("items")
        assert told == {"queue_name": "empty"}, "partition 0 is left out"
        ids = [one.pop("id") for one in items]
        assert ids == sorted(ids)
        assert all(len(id) == 27 for id in ids)
        common = {"attempts": 1, "lease_deadline": "2026-03-01T12:01:00Z"}
        assert items == [
            {"bytes": "AP7/", "kind": "k", "encoding": "e", "reference": "r", **common},
            {"bytes": b64encode("naïve".encode()).decode(), **common},
            {"bytes": "+/8=", **common},
            common,
        ]

    tried(trial)


def test_instants_are_rfc_3339_in_any_zone_and_come_back_in_utc() -> None:
    async def trial(use: Use) -> None:
        body = (
            b'{"queue_name":"empty","request_timeout":"1m","items":[{"enqueue_at":"2026-03-01T15:00:00.5+02:00"},'
            b'{"enqueueAt":"2026-03-01T14:00:00.123456789Z"}]}'
        )
        assert (await ask(use.endpoint, PRODUCE, body)).status == 200
        told = (await ask(use.endpoint, SCHEDULED, b'{"queue_name":"empty"}')).told
        assert sorted(one["enqueue_at"] for one in told["items"]) == ["2026-03-01T13:00:00.500Z", "2026-03-01T14:00:00.123456Z"]
        assert (await ask(use.endpoint, ITEMS, b'{"queue_name":"empty"}')).body == b"{}"

    tried(trial)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
def test_stats_have_logical_queues_and_nothing_that_the_released_client_does_not_know(encoding: str) -> None:
    async def trial(use: Use) -> None:
        later = use.clock.now() + timedelta(minutes=5)
        await use.served.produce("p1", [item(b"later", at=later), item(b"more")], timeout=SOON)
        use.clock.advance(timedelta(seconds=90))
        await use.served.lease("p1", 1, client="worker", timeout=SOON)
        heard = await say(use.endpoint, STATS, m.Named("p1"), encoding)
        if encoding == PROTOBUF:
            (logical,) = proto.read(m.Stats, heard.body).logical_queues
            (partition,) = logical.partitions
            assert (partition.total, partition.total_leased, partition.scheduled) == (2, 1, 0)
            return
        told = heard.told
        assert set(told) == {"queue_name", "logicalQueues"}
        ((logical,),) = [told["logicalQueues"]]
        assert set(logical) <= {"produce_waiting", "lease_waiting", "complete_waiting", "in_flight", "partitions"}
        (partition,) = logical["partitions"]
        ages = {partition.pop("average_age"), partition.pop("average_leased_age")}
        assert partition == {"total": 2, "total_leased": 1}
        assert "1m30s" in ages

    tried(trial)


def test_lists_of_nothing_are_left_out() -> None:
    async def trial(use: Use) -> None:
        for path, body in ((LIST, b'{"pivot":"zzz"}'), (ITEMS, b'{"queue_name":"empty"}'), (SCHEDULED, b'{"queue_name":"p1"}')):
            assert (await ask(use.endpoint, path, body)).body == b"{}"

    tried(trial)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["json", "protobuf"])
def test_what_is_imported_twice_is_echoed_without_an_id(encoding: str) -> None:
    async def trial(use: Use) -> None:
        sent = m.Import("empty", 0, [m.StoredItem(source_id="here", payload=b"x", is_leased=True, reference="r")])
        ids = []
        for _ in range(2):
            heard = await say(use.endpoint, IMPORT, sent, encoding)
            (echo,) = (protojson if encoding == JSON else proto).read(m.Imported, heard.body).items
            ids.append(echo.id)
            assert (heard.status, echo) == (200, m.StoredItem(id=echo.id, source_id="here", payload=b"x", reference="r"))
        assert [len(id) for id in ids] == [27, 0]

    tried(trial)
