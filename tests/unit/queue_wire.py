"""The queues' HTTP interface, spoken to by hand: requests in both encodings, and what is heard of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

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
