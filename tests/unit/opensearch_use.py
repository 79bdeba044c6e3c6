"""How tests use an OpenSearch: open the store that a URL names, do something with it, and close it; and ask the node itself."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from redrive.backends.opensearch import OpenSearchLetters, opened
from redrive.model.arrival import Held
from redrive.model.errors import RedriveError
from redrive.model.finding import Finding
from redrive.testing import letter

T = TypeVar("T")
Use = Callable[[OpenSearchLetters], Coroutine[Any, Any, T]]


def node() -> str:
    """The URL of the one that tests share."""
    return os.environ["REDRIVE_TEST_OPENSEARCH"]


def location(index: str, url: str = "") -> str:
    """What follows the scheme in a store's URL."""
    return f"{(url or node()).partition(':')[2]}/{index}"


def used(where: str, use: Use[T]) -> T:
    """What becomes of a store that is opened, used and closed."""

    async def scene() -> T:
        letters = opened(where).letters
        assert isinstance(letters, OpenSearchLetters)
        try:
            return await use(letters)
        finally:
            await letters.close()

    return asyncio.run(scene())


def refusal(where: str, use: Use[object] = lambda letters: letters.check()) -> RedriveError:
    """What the store raises."""
    with pytest.raises(RedriveError) as caught:
        used(where, use)
    return caught.value


async def held(letters: OpenSearchLetters, *names: str) -> list[Held]:
    return await letters.put([letter(name) for name in names])


async def examined(where: str) -> list[Finding]:
    """What the doctor finds."""
    store = opened(where)
    try:
        return await store.examine()
    finally:
        await store.letters.close()


def ask(method: str, path: str, body: object = None, *, url: str = "") -> Any:
    """What the node itself answers."""
    sent = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{url or node()}{path}", sent, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return json.loads(error.read())


@asynccontextmanager
async def pretending(answer: Callable[[str], tuple[int, object]]) -> AsyncIterator[int]:
    """A server that answers to the first line of a request with a status and a JSON body; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while first := (await reader.readline()).decode():
            size = 0
            while (line := (await reader.readline()).decode().lower()).strip():
                if line.startswith("content-length:"):
                    size = int(line.partition(":")[2])
            await reader.readexactly(size)
            status, body = answer(first)
            text = json.dumps(body).encode()
            writer.write(
                f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n".encode() + text
            )
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        yield server.sockets[0].getsockname()[1]
