"""The surface as an ASGI application, asked by a real client."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from redrive.queues import Queues
from redrive.serve.http.asgi import asgi
from redrive.serve.http.queues import PREFIX, QueueSurface
from redrive.serve.http.surface import BODY_LIMIT, Reply, Request, Surface
from tests.unit.queue_use import HOUR, MINUTE, queue_store

QUEUE = {"queueName": "orders", "leaseTimeout": "1m", "expireTimeout": "1h", "requestedPartitions": 1}


@asynccontextmanager
async def application() -> AsyncIterator[httpx.AsyncClient]:
    async def echo(request: Request) -> Reply:
        return Reply(content_type=request.format, body=request.body)

    async def hello(request: Request) -> Reply:
        return Reply(body=request.accept.encode())

    surface = Surface()
    surface.add({"/echo": echo}, method="POST")
    surface.add({"/hello": hello})
    async with Queues({"store": queue_store("memory:")}, owns_stores=True) as queues:
        surface.mount(PREFIX, QueueSurface(queues))
        await queues.create("others", lease_timeout=MINUTE, expire_timeout=HOUR)
        transport = httpx.ASGITransport(app=asgi(surface))  # type: ignore[arg-type]  # it is looser about scopes
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            yield client


def tried(trial: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    async def run() -> None:
        async with application() as client:
            await trial(client)

    asyncio.run(run())


def test_queues_are_served() -> None:
    async def trial(client: httpx.AsyncClient) -> None:
        async def ask(verb: str, **body: Any) -> dict[str, Any]:
            answer = await client.post(f"/v1/{verb}", json=body)
            assert answer.status_code == 200, answer.text
            told: dict[str, Any] = answer.json()
            return told

        await ask("queues.create", **QUEUE)
        payload = base64.b64encode(b"hello").decode()
        await ask("queue.produce", queueName="orders", requestTimeout="10s", items=[{"bytes": payload}])
        leased = await ask("queue.lease", queueName="orders", batchSize=1, clientId="me", requestTimeout="10s")
        (item,) = leased["items"]
        assert base64.b64decode(item["bytes"]) == b"hello"

    tried(trial)


def test_what_is_asked_comes_through_as_it_is() -> None:
    async def trial(client: httpx.AsyncClient) -> None:
        answer = await client.post("/echo", content=bytes(range(256)), headers={"content-type": "a/b"})
        assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, "a/b", bytes(range(256)))
        assert (await client.get("/hello", headers={"accept": "c/d"})).content == b"c/d"

    tried(trial)


def test_a_body_that_comes_in_pieces_is_one() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for number in range(5):
            yield b"%d" % number

    async def trial(client: httpx.AsyncClient) -> None:
        assert (await client.post("/echo", content=pieces())).content == b"01234"

    tried(trial)


def test_what_is_too_large_is_refused_and_not_kept() -> None:
    async def trial(client: httpx.AsyncClient) -> None:
        assert (await client.post("/echo", content=bytes(BODY_LIMIT))).status_code == 200
        answer = await client.post("/echo", content=bytes(BODY_LIMIT + 1))
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")

    tried(trial)


def test_a_wrong_method_hears_which_is_right_and_a_head_has_no_body() -> None:
    async def trial(client: httpx.AsyncClient) -> None:
        answer = await client.get("/echo")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        assert (await client.get("/nowhere")).status_code == 404
        head = await client.head("/hello", headers={"accept": "c/d"})
        assert (head.status_code, head.headers["content-length"], head.content) == (200, "3", b"")

    tried(trial)


def test_it_starts_and_ends_when_its_server_does() -> None:
    asked = iter(["lifespan.startup", "lifespan.shutdown"])
    told: list[str] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": next(asked)}

    async def send(event: MutableMapping[str, Any]) -> None:
        told.append(event["type"])

    asyncio.run(_awaited(asgi(Surface())({"type": "lifespan"}, receive, send)))
    assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def _awaited(work: Awaitable[None]) -> None:
    await work
