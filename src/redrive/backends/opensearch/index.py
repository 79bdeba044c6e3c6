"""The index as one event loop sees it: what it is asked, and what is written to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct, json

from redrive.backends.opensearch.address import Address
from redrive.backends.opensearch.client import Client
from redrive.backends.opensearch.document import LARGE_LETTER, SMALL
from redrive.backends.opensearch.errors import CONFLICT, MISSING, kind_of, refused
from redrive.backends.opensearch.fresh import Freshness, freshness
from redrive.backends.remote.clock import ServerClock
from redrive.model.errors import AnswerLost, StoreError, StoreUnavailable
from redrive.model.instant import instant

_MOST_BYTES = 5_000_000
"""Of one request that writes."""
_MOST_READ = 500
_HEAR_EVERY_SECONDS = _LOOK_EVERY_SECONDS = 60.0
_BAD_DOCUMENT = 400
_RESULTS = ",".join(f"items.*.{name}" for name in ("status", "result", "_seq_no", "_primary_term", "get._source", "error"))


class Write(Struct, frozen=True, gc=False):
    """One letter's share of a bulk request. `lines` is what is sent; `plainer`, where that can be refused, what is sent then."""

    id: UUID
    lines: bytes
    plainer: Callable[[], bytes] | None = None


class Result(Struct, frozen=True, gc=False):
    """What became of it."""

    status: int
    result: str = ""
    source: dict[str, Any] = {}
    """Those of redrive's own fields that were asked for, as they are now."""

    @property
    def is_conflict(self) -> bool:
        return self.status == CONFLICT

    @property
    def is_missing(self) -> bool:
        return self.status == MISSING

    @property
    def is_lost(self) -> bool:
        """The script found that the lease it was run for is over."""
        return self.status < 300 and self.source.get("token") == 0

    @property
    def is_done(self) -> bool:
        return self.status < 300 and self.result != "noop"


class Index:
    """Where letters lie."""

    def __init__(self, client: Client, address: Address) -> None:
        self.client = client
        self.address = address
        self.clock = ServerClock()
        self.uuid: str | None = None
        """None: it is not there yet."""
        self.has_ground = False
        """Has it been looked into, made or upgraded?"""
        self.ground = asyncio.Lock()
        """Whoever does so holds it."""
        self._fresh = Freshness()
        self._heard_at: float | None = None
        self._looked_for_large_at: float | None = None
        self._has_large = False
        self._refreshing: tuple[frozenset[int], asyncio.Task[None]] | None = None
        """Behind which writes the last refresh began."""

    @property
    def name(self) -> str:
        return self.client.name

    def path(self, verb: str) -> str:
        return f"/{self.address.index}/{verb}"

    def found(self, uuid: str) -> None:
        """It is there. Nobody knows what others have written to it."""
        if self.uuid != uuid:
            self.uuid, self._fresh = uuid, freshness(uuid)
            self._fresh.wrote()

    async def now(self, given: datetime | None = None) -> datetime:
        """The given instant, else the node's."""
        if given is None and (self._heard_at is None or time.monotonic() - self._heard_at > _HEAR_EVERY_SECONDS):
            await self._hear()
        return self.clock.now(given)

    async def search(self, body: dict[str, Any], shape: str = "") -> Any:
        """The answer to a search, less what is not in its shape. Never a part: a shard that fails, fails the whole."""
        params = {"allow_partial_search_results": "false"}
        if shape:
            params["filter_path"] = shape
        path = "/_search" if "pit" in body else self.path("_search")
        return await self.client.call("POST", path, body, params=params) or {}

    async def has_large(self) -> bool:
        """Are there letters that should not come with a page of others? To leave a field out costs more than to send all."""
        at = self._looked_for_large_at
        if at is None or time.monotonic() - at > _LOOK_EVERY_SECONDS:
            query = {"range": {"redrive.size": {"gt": SMALL}}}
            answer = await self.search({"size": 0, "terminate_after": 1, "query": query}, "hits.total.value")
            self._has_large = answer["hits"]["total"]["value"] > 0
            self._looked_for_large_at = time.monotonic()
        return self._has_large

    async def fresh(self, *, even_so: bool = False) -> bool:
        """Let searches see what this process has written; `even_so`: what others have written, too. Was there a need to?"""
        if self._fresh.is_fresh and not even_so:
            return False
        unseen, known = self._fresh.unseen, self._refreshing
        if known is None or known[1].done() or even_so or not unseen <= known[0]:
            known = self._refreshing = unseen, asyncio.ensure_future(self._refresh(unseen))
            # Whoever waits for it hears of a failure; when nobody does any more, there is nobody to tell.
            known[1].add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(known[1])
        return True

    async def read(self, ids: Sequence[UUID], *, large: bool = False) -> list[dict[str, Any]]:
        """The documents with these ids as they are now, in order; one that is not there is empty. `large`: even large letters."""
        parts = [ids[start : start + _MOST_READ] for start in range(0, len(ids), _MOST_READ)]
        without = {} if large else await self.without_large()
        found = await asyncio.gather(*(self._read(part, without) for part in parts))
        return [one for part in found for one in part]

    async def without_large(self) -> dict[str, str]:
        """What leaves large letters out of an answer; nothing where there are none, for it costs more than all else."""
        return {"_source_excludes": f"redrive.{LARGE_LETTER}"} if await self.has_large() else {}

    async def _read(self, ids: Sequence[UUID], params: dict[str, str]) -> list[dict[str, Any]]:
        answer = await self.client.call("POST", self.path("_mget"), {"ids": [str(id) for id in ids]}, params=params)
        for one in answer["docs"]:
            if "error" in one:
                raise refused(0, one["error"], self.name)
        return [one if one.get("found") else {} for one in answer["docs"]]

    async def write(self, writes: Sequence[Write], told: Mapping[str, str] = {}) -> list[Result]:
        """Write in as few requests as their size allows; what became of each. `told`: what of the documents is answered."""
        results: list[Result] = []
        with self.partly(lambda: any(result.is_done for result in results)):
            for some in _portions(writes):
                results += await self._written(some, told)
        return results

    @contextmanager
    def partly(self, has_done: Callable[[], bool]) -> Iterator[None]:
        """Around several steps of one verb: where one fails when others have changed something, `AnswerLost` says so."""
        try:
            yield
        except AnswerLost:
            raise
        except StoreError as error:
            if has_done():
                raise AnswerLost(f"part of the batch was done at {self.name}, the rest was not: {error}") from error
            raise

    async def _written(self, writes: Sequence[Write], told: Mapping[str, str]) -> list[Result]:
        results = await self._sent([write.lines for write in writes], told)
        again = [
            place
            for place, (write, result) in enumerate(zip(writes, results, strict=True))
            if result["status"] == _BAD_DOCUMENT and write.plainer
        ]
        if again:
            plainer = [plain() for place in again if (plain := writes[place].plainer)]
            for place, result in zip(again, await self._sent(plainer, told), strict=True):
                results[place] = result
        failures = [result for result in results if result["status"] >= 300 and not _is_expected(result)]
        if failures:
            error = refused(failures[0]["status"], failures[0].get("error"), self.name)
            if any(result["status"] < 300 for result in results):
                raise AnswerLost(f"part of the batch was done at {self.name}, the rest was not: {error}") from error
            raise error
        return [
            Result(one["status"], one.get("result", ""), one.get("get", {}).get("_source", {}).get("redrive", {}))
            for one in results
        ]

    async def _sent(self, lines: Iterable[bytes], told: Mapping[str, str]) -> list[dict[str, Any]]:
        # Should there be no primary to write to, the server is to say so before it is given up on.
        params = {"timeout": f"{max(1, round(800 * self.client.seconds))}ms", **told}
        if "_source" not in told:
            params["filter_path"] = _RESULTS
        with self.writing():
            answer = await self.client.call("POST", self.path("_bulk"), b"".join(lines), params=params, writes=True)
        return [result for item in answer["items"] for result in item.values()]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Around a request that writes: searches cannot see yet what it did, or may have done."""
        try:
            yield
        except StoreError as error:
            self._fresh.wrote(surely=not isinstance(error, AnswerLost))
            raise
        except BaseException:
            self._fresh.wrote(surely=False)
            raise
        self._fresh.wrote()

    async def _refresh(self, unseen: frozenset[int]) -> None:
        await self.client.call("POST", self.path("_refresh"), params={"filter_path": "_shards.failed"})
        self._fresh.refreshed(unseen)

    async def _hear(self) -> None:
        # What `now` means in a question is told with its answer.
        ranges = {"date_range": {"field": "updated_at", "ranges": [{"from": "now"}]}}
        body = {"size": 0, "query": {"match_none": {}}, "aggs": {"now": ranges}}
        answer = await self.search(body, "aggregations.now.buckets.from")
        buckets = answer.get("aggregations", {}).get("now", {}).get("buckets")
        if not buckets:
            raise StoreUnavailable(f"{self.name} does not tell what time it is; try again")
        self.clock.heard(instant(int(buckets[0]["from"]) * 1000))
        self._heard_at = time.monotonic()


def _is_expected(result: dict[str, Any]) -> bool:
    """Is it the letter that was changed or removed meanwhile? Of a missing index it is said with the same status."""
    if result["status"] == MISSING:
        return "error" not in result or kind_of(result["error"]) == "document_missing_exception"
    return bool(result["status"] == CONFLICT)


def created(id: UUID, document: dict[str, Any]) -> bytes:
    """Lines that write a document which is not there yet."""
    return _lines({"create": {"_id": str(id)}}, document)


def replaced(id: UUID, document: dict[str, Any], seq: int, term: int) -> bytes:
    """Lines that write a document in place of one that was not changed since."""
    return _lines({"index": {"_id": str(id), "if_seq_no": seq, "if_primary_term": term}}, document)


def deleted(id: UUID, seq: int, term: int) -> bytes:
    return json.encode({"delete": {"_id": str(id), "if_seq_no": seq, "if_primary_term": term}}) + b"\n"


def updated(id: UUID, script: str, params: dict[str, Any], version: tuple[int, int] | None = None) -> bytes:
    """Lines that run a script on a document; with `version`, only if it was not changed since."""
    action: dict[str, Any] = {"_id": str(id)}
    if version is not None:
        action |= {"if_seq_no": version[0], "if_primary_term": version[1]}
    return _lines({"update": action}, {"script": {"source": script, "params": params}})


def _lines(*values: dict[str, Any]) -> bytes:
    return json.encode(values[0]) + b"\n" + json.encode(values[1]) + b"\n"


def _portions(writes: Sequence[Write]) -> Iterator[Sequence[Write]]:
    start = size = 0
    for place, write in enumerate(writes):
        if place > start and size + len(write.lines) > _MOST_BYTES:
            yield writes[start:place]
            start, size = place, 0
        size += len(write.lines)
    if start < len(writes):
        yield writes[start:]
