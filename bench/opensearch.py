"""OpenSearch: put, and claim with settle, in batches of one and of a hundred, and searches among many letters, beside the driver.

The raw side writes the same documents into the same index with opensearch-py: bulk requests that were encoded in advance; for a
claim a refresh, a search and a script of a few lines. Nothing is decoded, checked, fenced or answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

from msgspec import json
from opensearchpy import AsyncOpenSearch

import redrive
from bench import processor, remote
from bench.harness import Effort, Goal, Row, Watch, compared
from bench.samples import letters
from dev.engines.registry import ENGINES
from redrive.backends.opensearch import opened
from redrive.backends.opensearch.address import Address
from redrive.backends.opensearch.document import document
from redrive.backends.opensearch.index import created
from redrive.backends.opensearch.mapping import mappings, settings
from redrive.model.instant import micros
from redrive.model.letter import Letter
from redrive.model.query import And, Field, Is, Query, Text
from redrive.model.settlement import Completed, settled

_CLAIM = "def r=ctx._source.redrive;r.token=params.t;r.owner='raw';r.until=params.u;r.claimable_at=params.u"
_QUESTIONS: dict[str, tuple[Query, dict[str, Any]]] = {
    "by status": (Is(Field.STATUS, "pending"), {"term": {"status": "pending"}}),
    "by words": (
        And((Text("timed out after"), Is(Field.SOURCE, "orders"))),
        {"bool": {"filter": [{"match_phrase": {"redrive.words": "timed out after"}}, {"term": {"redrive.source": "orders"}}]}},
    ),
}
_ID = ("redrive.id_high", "redrive.id_low")
_NEWEST = [{name: "desc"} for name in ("redrive.dead_lettered_at", *_ID)]


def rows(effort: Effort) -> Iterator[Row]:
    numbers = count()
    with ENGINES["opensearch"].make() as server:
        location = server.url.partition(":")[2]

        async def ours(given: Sequence[Letter], batch: int, is_put: bool) -> float:
            name = f"bench{next(numbers)}"
            store = opened(f"{location}/{name}").letters
            await store.purge(Is(Field.SOURCE, "nowhere"))  # makes the index
            rate = await (remote.put(store, given, batch) if is_put else remote.claim_and_settle(store, given, batch))
            await store.close()
            await _dropped(server.url, name)
            return rate

        async def raw(given: Sequence[Letter], batch: int, is_put: bool) -> float:
            name = f"bench{next(numbers)}"
            async with AsyncOpenSearch([server.url]) as client:
                await client.indices.create(index=name, body={"settings": settings(Address()), "mappings": mappings()})
                rate = await _Raw(client, name, given, batch).rate(is_put=is_put)
            await _dropped(server.url, name)
            return rate

        for batch, number in ((100, 10_000), (1, 500)):
            for verb, is_put in (("put", True), ("claim + settle", False)):
                given = letters(effort.of(number, step=batch), is_due=not is_put)
                yield compared(
                    f"OpenSearch: {verb}, batch {batch}",
                    _run(ours, given, batch, is_put),
                    _run(raw, given, batch, is_put),
                    effort,
                    against="raw driver",
                    goal=Goal("at least", 40) if batch == 100 else None,
                )
        due = letters(effort.of(10_000, step=100), is_due=True)
        yield processor.row("OpenSearch", _run(_processed, server.url, due), _run(raw, due, 100, False), effort)
        yield from _searches(location, server.url, effort)


async def _processed(url: str, due: Sequence[Letter]) -> float:
    async with redrive.open(f"opensearch:{url.partition(':')[2]}/processed") as dlq:
        await remote.put(dlq.letters, due, 500)
        rate = await processor.retried(dlq, len(due))
    await _dropped(url, "processed")
    return rate


def _run(measure: Callable[..., Any], *given: Any) -> Callable[[], float]:
    return lambda: asyncio.run(measure(*given))


def _searches(location: str, url: str, effort: Effort) -> Iterator[Row]:
    """Pages of a hundred, newest first."""
    number, pages = effort.of(100_000, step=100), effort.of(100)

    async def fill() -> None:
        store = opened(f"{location}/filled").letters
        await remote.put(store, letters(number), 500)
        assert await store.count() == number
        await store.close()

    async def find(query: Query) -> float:
        store = opened(f"{location}/filled").letters
        await store.find(limit=1)
        with Watch() as watch:
            for _ in range(pages):
                assert len((await store.find(query, limit=100)).letters) == 100
        await store.close()
        return watch.rate(pages)

    async def search(clause: dict[str, Any]) -> float:
        body = {"query": clause, "size": 101, "sort": _NEWEST, "track_total_hits": False}
        async with AsyncOpenSearch([url]) as client:
            await client.search(index="filled", body={**body, "size": 1})
            with Watch() as watch:
                for _ in range(pages):
                    found = await client.search(index="filled", body=body)
                    assert len(found["hits"]["hits"]) == 101
        return watch.rate(pages)

    asyncio.run(fill())
    for name, (query, clause) in _QUESTIONS.items():
        yield compared(
            f"OpenSearch: find 100 of {number:,} {name}",
            _run(find, query),
            _run(search, clause),
            effort,
            against="raw search",
            goal=Goal("at least", 67),
            unit="pages/s",
        )


async def _dropped(url: str, name: str) -> None:
    async with AsyncOpenSearch([url]) as client:
        await client.indices.delete(index=name)


class _Raw:
    """The same documents, written by hand."""

    def __init__(self, client: AsyncOpenSearch, name: str, given: Sequence[Letter], batch: int) -> None:
        self._client = client
        self._name = name
        self._batch = batch
        self._total = len(given)
        writes = [created(letter.id, document(letter, None, 1)) for letter in given]
        self._puts = [b"".join(writes[start : start + batch]) for start in range(0, len(writes), batch)]
        self._until = micros(datetime.now(UTC) + remote.LEASE)
        ended = ((letter.id, settled(letter, Completed(), datetime.now(UTC))) for letter in given)
        self._ended = {
            str(id): json.encode({"index": {"_id": str(id)}}) + b"\n" + json.encode(document(after, None, 2)) + b"\n"
            for id, after in ended
        }

    async def rate(self, *, is_put: bool) -> float:
        with Watch() as watch:
            for body in self._puts:
                await self._bulk(body)
        return watch.rate(self._total) if is_put else await self._claimed_and_settled()

    async def _claimed_and_settled(self) -> float:
        done = 0
        with Watch() as watch:
            while done < self._total:
                ids = await self._claimed()
                await self._bulk(b"".join(self._ended[id] for id in ids))
                done += len(ids)
        return watch.rate(done)

    async def _claimed(self) -> list[str]:
        await self._client.indices.refresh(index=self._name)
        due = {"range": {"redrive.claimable_at": {"lte": micros(datetime.now(UTC))}}}
        sort = [{"redrive.priority": "desc"}, *({name: "asc"} for name in ("redrive.claimable_at", *_ID))]
        body = {"query": due, "size": self._batch, "sort": sort, "seq_no_primary_term": True, "track_total_hits": False}
        hits = (await self._client.search(index=self._name, body=body))["hits"]["hits"]
        lines = bytearray()
        for hit in hits:
            held = {"_id": hit["_id"], "if_seq_no": hit["_seq_no"], "if_primary_term": hit["_primary_term"]}
            script = {"source": _CLAIM, "params": {"t": hit["_seq_no"] + 1, "u": self._until}}
            lines += json.encode({"update": held}) + b"\n" + json.encode({"script": script}) + b"\n"
        await self._bulk(bytes(lines))
        return [hit["_id"] for hit in hits]

    async def _bulk(self, body: bytes) -> None:
        answer = await self._client.bulk(body=body, index=self._name)
        assert not answer["errors"]
