"""`python -m bench.million`: what each cost becomes at a thousand, ten thousand, a hundred thousand and a million letters.

One store is filled step by step. At each stop everything is measured beside bare statements on the same tables, over a connection
of their own, in rounds that alternate; the medians count. It takes long, and is no part of `python -m bench`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import platform
import sqlite3
import statistics
import sys
import traceback
from array import array
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from msgspec import json
from rich.console import Console

import redrive
from bench import raw
from bench.growth import Cost, Growth, Space, Stop, Waits, chart, markdown, percentile, table, waits_table
from bench.harness import OUT, Effort, Goal, Watch, folder, fsync_milliseconds
from redrive import EVERYTHING, __version__
from redrive.engine.dead_letters import DeadLetters
from redrive.model.errors import RedriveError
from redrive.model.hours import HOUR
from redrive.model.instant import micros
from redrive.model.lane import lane_of
from redrive.model.letter import Letter
from redrive.model.query import And, Field, GroupOrder, Is, Op, Or, Order, Query, Text, last_name
from redrive.model.spelling import spelled
from redrive.model.stored import restored
from redrive.model.texts import Where, body_words, message_words
from redrive.testing.fill import letters

CHART = Path(__file__).parent.parent / "docs" / "million.svg"
NAMESPACE = "default"
PAGE = 100
FILL_BATCH = 500
PUT, PUT_BATCH, PUT_ROUNDS = 2_000, 100, 5
INDEXED_FOR_THE_RATE = 20_000
INDEX_ALL_UP_TO = 200_000
"""Beyond this, bodies are indexed to the end only when it is asked for: it takes longer than all the rest."""
TIDY = 200
EVERY_SECONDS = 0.005
STALL_MS = 50.0
QUIET_SECONDS = 10.0
LONGEST_TIDY_SECONDS = 60.0

_PAGE = "namespace = $1 AND status = $2 AND source = $3 AND error_name = $4"
_NEWEST = f"ORDER BY l.dead_lettered_at DESC, l.id DESC LIMIT {PAGE + 1}"
_NEAREST = f"ORDER BY length(l.words), l.dead_lettered_at DESC, l.id DESC LIMIT {PAGE + 1}"
_GROUPS = (
    "SELECT fingerprint, count(*), min(dead_lettered_at), max(dead_lettered_at) FROM letters WHERE namespace = $1"
    " GROUP BY fingerprint ORDER BY {} DESC, fingerprint DESC LIMIT 101"
)
_GROWN = (
    "SELECT fingerprint, sum(CASE WHEN dead_lettered_at >= $3 THEN 1 ELSE -1 END) FROM letters WHERE namespace = $1"
    " AND dead_lettered_at >= $2 GROUP BY fingerprint ORDER BY 2 DESC, 1 DESC LIMIT 101"
)

Side = Callable[[], Awaitable[object]]


class Sizes(dict[str, int]):
    """Bytes by what they are for: `letters`, `indexes`, `texts` (the index of bodies and tracebacks), `rest`; `file` is all."""


class Ground(Protocol):
    """A store of an engine, and bare statements on its tables. Statements are written as PostgreSQL takes them."""

    name: str
    by_age: str
    """What makes a statement go through the letters by their age, where that has to be said."""
    url: str
    dlq: DeadLetters

    async def fetch(self, sql: str, *arguments: Any) -> list[Any]: ...

    def pages(self, condition: str) -> list[str]:
        """Statements that answer with the page under this condition, each by another index."""
        ...

    def worded(self, word: str, where: Where) -> tuple[str, str]:
        """What to read from, with the letters as `l`, and the condition that they have this word."""
        ...

    async def insert(self, rows: Any) -> None:
        """Write what `encoded` made, a transaction a batch."""
        ...

    def encoded(self, batches: Sequence[Sequence[Letter]]) -> Any: ...

    async def remove(self, given: Sequence[Letter]) -> None:
        """Take out what `insert` wrote."""
        ...

    async def rest(self) -> None:
        """Bring everything to where it stands when nobody has written for a while."""
        ...

    async def sizes(self) -> Sizes: ...


class SqliteGround:
    name = "SQLite"
    by_age = "INDEXED BY letters_by_age"

    def __init__(self, path: Path, dlq: DeadLetters) -> None:
        self.url = f"sqlite:{path}"
        self.dlq = dlq
        self._path = path
        self._connection = raw.connect(path)

    async def fetch(self, sql: str, *arguments: Any) -> list[Any]:
        return self._connection.execute(sql.replace("$", "?"), arguments).fetchall()

    def pages(self, condition: str) -> list[str]:
        ways = ["", *(f"INDEXED BY letters_by_{name}" for name in ("status", "source", "error"))]
        return [f"SELECT l.id, l.data FROM letters l {way} WHERE {condition} {_NEWEST}" for way in ways]

    def worded(self, word: str, where: Where) -> tuple[str, str]:
        if where is Where.MESSAGE:
            return "letters l JOIN message_words ON message_words.rowid = l.seq", f"message_words MATCH '\"{word}\"'"
        return "letters l JOIN letter_texts ON letter_texts.rowid = l.seq", f"letter_texts MATCH 'body : \"{word}\"'"

    def encoded(self, batches: Sequence[Sequence[Letter]]) -> Any:
        return [(raw.encoded(batch), [_claim(letter) for letter in _planned(batch)]) for batch in batches]

    async def insert(self, rows: Any) -> None:
        for written, claims in rows:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(raw.INSERT, written)
            self._connection.executemany("INSERT INTO claims (id, lane, priority, at, is_due) VALUES (?, ?, ?, ?, 1)", claims)
            self._connection.execute("COMMIT")

    async def remove(self, given: Sequence[Letter]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for name in ("letters", "claims"):
            self._connection.executemany(f"DELETE FROM {name} WHERE id = ?", [(letter.id.bytes,) for letter in given])
        self._connection.execute("COMMIT")

    async def rest(self) -> None:
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    async def sizes(self) -> Sizes:
        await self.rest()
        indexes = {name for (name,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
        sizes = Sizes(letters=0, indexes=0, texts=0, rest=0)
        for name, size in self._connection.execute("SELECT name, pgsize FROM dbstat WHERE aggregate = 1"):
            if name.startswith("letter_texts"):
                part = "texts"
            elif name in indexes or name.startswith("message_words"):
                part = "indexes"
            else:
                part = "letters" if name == "letters" else "rest"
            sizes[part] += size
        logs = self._path.with_name(f"{self._path.name}-wal")
        sizes["file"] = self._path.stat().st_size + (logs.stat().st_size if logs.exists() else 0)
        return sizes

    def close(self) -> None:
        self._connection.close()


class PostgresGround:
    name = "PostgreSQL"
    by_age = ""

    def __init__(self, url: str, dlq: DeadLetters, connection: Any) -> None:
        from redrive.backends.postgres import rows

        self.url = url
        self.dlq = dlq
        self._connection = connection
        self._rows = rows
        chosen = rows.selected(rows.COLUMNS)
        self._insert = f"""
            WITH a AS (SELECT a.* FROM {rows.unnested(rows.COLUMNS, first=1)}), c AS (
                INSERT INTO claims (id, lane, priority, at, is_due) SELECT a.id, a.lane, a.priority, a.next_retry_at, true FROM a
                WHERE a.status = 'pending' AND a.next_retry_at IS NOT NULL
            )
            INSERT INTO letters ({", ".join(rows.COLUMNS)}) SELECT {chosen} FROM a
        """

    async def fetch(self, sql: str, *arguments: Any) -> list[Any]:
        found: list[Any] = await self._connection.fetch(sql, *arguments)
        return found

    def pages(self, condition: str) -> list[str]:
        ways = ["", " AND left(source, 64) = left($3, 64)", " AND left(error_name, 64) = left($4, 64)"]
        ways.append("".join(ways))
        return [f"SELECT l.id, l.data FROM letters l WHERE {condition}{way} {_NEWEST}" for way in ways]

    def worded(self, word: str, where: Where) -> tuple[str, str]:
        if where is Where.MESSAGE:
            return "letters l", f"string_to_array(btrim(l.words), ' ') @> ARRAY['{word}']"
        return "letters l JOIN texts t ON t.id = l.id", f"string_to_array(btrim(t.body), ' ') @> ARRAY['{word}']"

    def encoded(self, batches: Sequence[Sequence[Letter]]) -> Any:
        rows = self._rows
        return [rows.arrays([rows.row(letter) for letter in batch], len(rows.COLUMNS)) for batch in batches]

    async def insert(self, rows: Any) -> None:
        for columns in rows:
            await self._connection.execute(self._insert, *columns)

    async def remove(self, given: Sequence[Letter]) -> None:
        for name in ("letters", "claims"):
            await self._connection.execute(f"DELETE FROM {name} WHERE id = ANY ($1)", [letter.id for letter in given])

    async def rest(self) -> None:
        await self._connection.execute("VACUUM (ANALYZE)")

    async def sizes(self) -> Sizes:
        await self.rest()
        sizes = Sizes(letters=0, indexes=0, texts=0, rest=0)
        sql = """
            SELECT c.relname, pg_total_relation_size(c.oid), pg_indexes_size(c.oid)
            FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
        """
        for name, total, indexes in await self._connection.fetch(sql):
            if name == "texts":
                sizes["texts"] += total
            else:
                sizes["indexes"] += indexes
                sizes["letters" if name == "letters" else "rest"] += total - indexes
        sizes["file"] = sum(sizes.values())
        return sizes


def _planned(batch: Sequence[Letter]) -> Iterator[Letter]:
    return (letter for letter in batch if letter.status == "pending" and letter.retry.next_retry_at is not None)


def _claim(letter: Letter) -> tuple[Any, ...]:
    assert letter.retry.next_retry_at is not None
    return letter.id.bytes, lane_of(letter).number, letter.priority, micros(letter.retry.next_retry_at)


@asynccontextmanager
async def sqlite_ground(place: Path) -> AsyncIterator[Ground]:
    with folder(Effort(place=place)) as here:
        path = here / "million.db"
        async with redrive.open(f"sqlite:{path}") as dlq:
            await dlq.letters.check()
            ground = SqliteGround(path, dlq)
            yield ground
            ground.close()


@asynccontextmanager
async def postgres_ground(place: Path) -> AsyncIterator[Ground]:
    import asyncpg

    from dev.engines.registry import ENGINES

    with ENGINES["postgres"].make(durable=True) as server:
        url = f"{server.url}?schema=million"
        async with redrive.open(url) as dlq:
            await dlq.letters.check()
            connection = await asyncpg.connect(server.url, server_settings={"search_path": "million"})
            yield PostgresGround(url, dlq, connection)
            await connection.close()


GROUNDS: dict[str, Callable[[Path], AbstractAsyncContextManager[Ground]]] = {
    "sqlite": sqlite_ground,
    "postgres": postgres_ground,
}


class Source:
    """One generator for the whole fill. What was looked at ahead comes first when more is taken."""

    def __init__(self, most: int, groups: int) -> None:
        self._made = letters(most, groups=groups)
        self._ahead: deque[Letter] = deque()

    def ahead(self, number: int) -> list[Letter]:
        """The letters that come next, which are not taken by that."""
        while len(self._ahead) < number:
            self._ahead.append(next(self._made))
        return list(islice(self._ahead, number))

    def take(self, number: int) -> list[Letter]:
        taken = self.ahead(number)
        for _ in taken:
            self._ahead.popleft()
        return taken


async def grown(engine: str, sizes: Sequence[int], options: argparse.Namespace, keep: Callable[[Growth], None]) -> Growth:
    """Fill a store, and measure at each stop. `keep` hears of every stop, so that nothing is lost should a later one fail."""
    async with GROUNDS[engine](options.place) as ground:
        source = Source(sizes[-1] + (PUT_ROUNDS + 1) * PUT, options.groups)
        bench = Bench(ground, source, purge_seconds=options.purge_seconds)
        growth = Growth(engine=ground.name, stops=())
        for size in sizes:
            await bench.fill(size)
            is_whole = options.index_all or size <= INDEX_ALL_UP_TO
            stop = Stop(size=size, costs=tuple([cost async for cost in bench.costs(size, growth.stops, is_whole=is_whole)]))
            growth = Growth(engine=ground.name, stops=(*growth.stops, stop))
            keep(growth)
        waits, space = await bench.beside_a_purge()
        growth = Growth(engine=ground.name, stops=growth.stops, waits=waits, space=space)
        keep(growth)
        return growth


class Bench:
    """Measures one store."""

    def __init__(self, ground: Ground, source: Source, *, purge_seconds: float) -> None:
        self._ground = ground
        self._purge_seconds = purge_seconds
        self._store = ground.dlq.letters
        self._source = source
        self._held = 0
        self._died = array("q")
        """When each letter died."""

    async def fill(self, size: int) -> None:
        """Up to so many letters."""
        with Watch() as watch:
            first = self._held
            while self._held < size:
                some = self._source.take(min(FILL_BATCH, size - self._held))
                await self._store.put(some)
                self._died.extend(micros(letter.dead_lettered_at) for letter in some)
                self._held += len(some)
                if self._held % 50_000 < FILL_BATCH and self._held < size:
                    self._say(f"{self._held:,} letters")
        self._say(f"{size:,} letters held, {watch.rate(size - first):,.0f} a second with making them")

    async def costs(self, size: int, before: Sequence[Stop], *, is_whole: bool) -> AsyncIterator[Cost]:
        """Everything that is measured at a stop."""
        parts = (
            self._indexing(is_whole=is_whole),
            self._space(),
            self._pages(),
            self._bodies(),
            self._groups(),
            self._statistics(),
            self._put(before),
        )
        for part in parts:
            async for cost in part:
                against = "" if cost.raw is None else f", raw {cost.raw:,.2f}"
                ours = "failed" if cost.ours is None else f"{cost.ours:,.2f}"
                self._say(f"{size:,}: {cost.name}: {ours}{against} {cost.unit} {cost.note}")
                yield cost

    @property
    def _now(self) -> datetime:
        """The instant that the letters end at."""
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=max(self._died))

    async def _indexing(self, *, is_whole: bool) -> AsyncIterator[Cost]:
        before = (await self._store.tidy(0)).texts
        wanted = max(0, before - INDEXED_FOR_THE_RATE)
        left = before
        with Watch() as watch:
            while left > wanted:
                left = (await self._store.tidy(TIDY)).texts
        yield Cost(
            key="index", name="bodies and tracebacks indexed by tidy", unit="letters/s", ours=watch.rate(max(1, before - left))
        )
        while is_whole and left:
            left = (await self._store.tidy(5 * TIDY)).texts
            if left % 50_000 < 5 * TIDY:
                self._say(f"{left:,} letters left to be indexed")
        yield Cost(key="lag", name="letters not indexed yet, when bodies are searched", unit="letters", ours=float(left))

    async def _space(self) -> AsyncIterator[Cost]:
        sizes = await self._ground.sizes()
        indexed = max(1, self._held - (await self._store.tidy(0)).texts)
        ((data,),) = await self._ground.fetch("SELECT avg(length(data)) FROM letters")
        texts = sizes["texts"] / indexed
        whole = (sizes["letters"] + sizes["indexes"] + sizes["rest"]) / self._held + texts
        note = f"file {sizes['file'] / 1e6:,.1f} MB"
        yield Cost(
            key="bytes", name="bytes a letter; raw: the letter alone", unit="bytes", ours=whole, raw=float(data), note=note
        )
        yield Cost(
            key="bytes-indexes",
            name="of these: indexes by fields and of messages",
            unit="bytes",
            ours=sizes["indexes"] / self._held,
        )
        yield Cost(key="bytes-texts", name="of these: index of bodies and tracebacks", unit="bytes", ours=texts)

    async def _pages(self) -> AsyncIterator[Cost]:
        await self._ground.rest()
        values, query = await self._filter()
        common, rare = await self._words(query)
        statement = await self._fastest(self._ground.pages(_PAGE), values)

        async def rows() -> list[Any]:
            return await self._ground.fetch(statement, *values)

        async def decoded() -> list[Letter]:
            return [restored(row[1]) for row in await rows()]

        note = " ".join(values)
        yield await self._beside_raw(
            "page", "page of 100: namespace, status, source, error", self._find(query), rows, goal=2, note=note
        )
        yield await self._beside_raw("page-decoded", "the same; raw: decoded too", self._find(query), decoded, note=note)
        statuses = await self._common(Field.STATUS)
        either = [
            f"SELECT l.id, l.data FROM letters l {way} WHERE l.status IN ($1, $2) {_NEWEST}" for way in ("", self._ground.by_age)
        ]
        yield await self._beside_raw(
            "page-either",
            "page of either of two statuses",
            self._find(Or(tuple(Is(Field.STATUS, status) for status in statuses))),
            self._fetch(await self._fastest(either, statuses), *statuses),
            goal=2,
            note=" ".join(statuses),
        )
        for key, word in (("common", common), ("rare", rare)):
            text = Text(word)
            source, has = self._ground.worded(word, Where.MESSAGE)
            filtered = f"SELECT l.id, l.data FROM {source} WHERE {has} AND {_prefixed(_PAGE)} {_NEWEST}"
            alone = f"SELECT l.id, l.data FROM {source} WHERE {has} "
            yield await self._beside_raw(
                f"page-{key}",
                f"page of 100: the four fields and a {key} word",
                self._find(And((query, text))),
                self._fetch(filtered, *values),
                goal=2,
                note=word,
            )
            yield await self._beside_raw(
                f"text-{key}", f"page of a {key} word, newest first", self._find(text), self._fetch(alone + _NEWEST), note=word
            )
            yield await self._beside_raw(
                f"nearest-{key}",
                f"page of a {key} word, nearest first",
                self._find(text, Order.NEAREST),
                self._fetch(alone + _NEAREST),
                note=word,
            )

    async def _bodies(self) -> AsyncIterator[Cost]:
        # The oldest are indexed first.
        page = await self._store.find(order=Order.OLDEST, limit=300)
        found = Counter(word for letter in page.letters for word in set(body_words(letter).split()) if word.isalpha())
        common = max((word for word in found if found[word] <= 0.6 * len(page.letters)), key=found.__getitem__)
        rare = max(found, key=lambda word: (-found[word], len(word), word))
        for key, word in (("common", common), ("rare", rare)):
            source, has = self._ground.worded(word, Where.BODY)
            yield await self._beside_raw(
                f"body-{key}",
                f"page of a {key} word in bodies, newest first",
                self._find(Text(word, Where.BODY)),
                self._fetch(f"SELECT l.id, l.data FROM {source} WHERE {has} {_NEWEST}"),
                note=word,
            )

    async def _groups(self) -> AsyncIterator[Cost]:
        now, within = self._now, Is(Field.NAMESPACE, NAMESPACE)
        hour = micros(now) // HOUR
        statements = {
            GroupOrder.LAST_SEEN: self._fetch(_GROUPS.format("max(dead_lettered_at)"), NAMESPACE),
            GroupOrder.COUNT: self._fetch(_GROUPS.format("count(*)"), NAMESPACE),
            GroupOrder.GROWTH: self._fetch(_GROWN, NAMESPACE, (hour - 3) * HOUR, (hour - 1) * HOUR),
        }
        for order, statement in statements.items():

            async def listed(order: GroupOrder = order) -> object:
                return (await self._store.groups(within, order=order, limit=PAGE, now=now)).groups

            yield await self._beside_raw(f"groups-{order}", f"100 groups by {order}", listed, statement, goal=5, is_absolute=True)

    async def _statistics(self) -> AsyncIterator[Cost]:
        now, within = self._now, Is(Field.NAMESPACE, NAMESPACE)
        for field in (Field.STATUS, Field.SOURCE, Field.CATEGORY):

            async def tallied(field: Field = field) -> object:
                return await self._store.tally(field, within, now=now)

            statement = self._fetch(f"SELECT {field}, count(*) FROM letters WHERE namespace = $1 GROUP BY 1", NAMESPACE)
            yield await self._beside_raw(f"tally-{field}", f"letters by {field}", tallied, statement, goal=5, is_absolute=True)

        async def hourly() -> object:
            return await self._store.hourly(now - timedelta(hours=23), now, within, now=now)

        since = (micros(now) // HOUR - 23) * HOUR
        statement = self._fetch(
            f"SELECT dead_lettered_at / {HOUR}, count(*) FROM letters WHERE namespace = $1 AND dead_lettered_at >= $2 GROUP BY 1",
            NAMESPACE,
            since,
        )
        yield await self._beside_raw("hourly", "letters of the last 24 hours", hourly, statement, goal=5, is_absolute=True)

    async def _put(self, before: Sequence[Stop]) -> AsyncIterator[Cost]:
        """New letters, which are taken out again after each round: so the size stays what it is said to be."""
        coming = self._source.ahead((PUT_ROUNDS + 1) * PUT)
        ours: list[float] = []
        bare: list[float] = []
        for turn in range(PUT_ROUNDS + 1):
            given = coming[turn * PUT : (turn + 1) * PUT]
            batches = [given[start : start + PUT_BATCH] for start in range(0, PUT, PUT_BATCH)]
            pair = [(ours, self._put_ours), (bare, self._put_bare)]
            for rates, measure in pair if turn % 2 else reversed(pair):
                gc.collect()
                rates.append(await measure(batches))
        first = next((cost.ours for stop in before if (cost := stop.cost("put")) and cost.ours), None)
        rate = _middle(ours[1:])
        yield Cost(
            key="put",
            name="put in batches of 100, one caller",
            unit="letters/s",
            ours=rate,
            raw=_middle(bare[1:]),
            spread=(min(ours[1:]), max(ours[1:])),
            figure=100 * rate / (first or rate),
            figure_unit="% of the first",
            goal=Goal("at least", 70),
        )

    async def _put_ours(self, batches: Sequence[Sequence[Letter]]) -> float:
        with Watch() as watch:
            for batch in batches:
                await self._store.put(batch)
        for batch in batches:
            gone = await self._store.purge(EVERYTHING, limit=len(batch), among=[letter.id for letter in batch])
            assert len(gone) == len(batch)
        await self._ground.rest()
        return watch.rate(PUT)

    async def _put_bare(self, batches: Sequence[Sequence[Letter]]) -> float:
        rows = self._ground.encoded(batches)
        with Watch() as watch:
            await self._ground.insert(rows)
        await self._ground.remove([letter for batch in batches for letter in batch])
        await self._ground.rest()
        return watch.rate(PUT)

    async def beside_a_purge(self) -> tuple[tuple[Waits, ...], Space]:
        """Captures and searches: first alone, then while letters are purged, here and by another process; and what space it frees."""
        shares = await self._shares()
        before = await self._ground.sizes()
        _, query = await self._filter()

        async def here(letters: Query) -> None:
            await self._ground.dlq.purge(letters)

        async def elsewhere(letters: Query) -> None:
            await _purged_by_another(self._ground.url, letters)

        waits = [await self._waits("nothing else", query, asyncio.sleep(QUIET_SECONDS))]
        for name, purge, share in (
            ("a purge in this process", here, shares[0]),
            ("a purge by another process", elsewhere, shares[1]),
        ):
            matched = await self._store.count(share)
            waits.append(await self._waits(name, query, purge(share), share, matched))
            await self._ground.rest()
        purged = await self._ground.sizes()
        with Watch() as watch:
            left = await self._tidied()
        tidied = await self._ground.sizes()
        space = Space(before=before["file"], purged=purged["file"], tidied=tidied["file"], left=left, seconds=watch.seconds)
        self._say(space.text)
        return tuple(waits), space

    async def _shares(self) -> list[Query]:
        """Two questions: about nearly half of the letters, and about a good part of the rest; both lie all over the store. What is
        captured meanwhile is younger, and not meant."""
        before = Is(Field.DEAD_LETTERED_AT, self._now + timedelta(seconds=1), Op.LT)
        return [And((Is(Field.STATUS, status), before)) for status in await self._common(Field.STATUS)]

    async def _common(self, field: Field) -> list[str]:
        """The two values that most letters have."""
        tally = await self._store.tally(field)
        return sorted(tally, key=lambda value: (-tally[value], value))[:2]

    async def _waits(
        self, meanwhile: str, query: Query, work: Awaitable[None], purged: Query | None = None, matched: int = 0
    ) -> Waits:
        """How long captures take until the work is done, or has taken too long."""
        self._say(f"captures beside {meanwhile}")
        is_over = asyncio.Event()
        captures = asyncio.create_task(_captures(self._ground.dlq, is_over))
        searches = asyncio.create_task(self._searches([query, EVERYTHING, And((query, Text("order")))], is_over))
        note = ""
        with Watch() as watch:
            try:
                async with asyncio.timeout(self._purge_seconds):
                    await work
            except TimeoutError:
                note = "cut short"
        is_over.set()
        waited, pages = sorted(await captures), await searches
        gone = matched - await self._store.count(purged) if purged is not None else 0
        waits = Waits(
            meanwhile=meanwhile,
            captures=len(waited),
            median_ms=percentile(waited, 0.5),
            most_of_them_ms=percentile(waited, 0.99),
            longest_ms=waited[-1],
            stalled=sum(one > STALL_MS for one in waited),
            pages=pages,
            seconds=watch.seconds,
            purged=gone,
            note=note,
        )
        self._say(
            f"captures beside {meanwhile}: median {waits.median_ms:.1f}, longest {waits.longest_ms:.1f} ms, {gone:,} purged"
        )
        return waits

    async def _searches(self, queries: Sequence[Query], is_over: asyncio.Event) -> int:
        pages = 0
        while not is_over.is_set():
            await self._store.find(queries[pages % len(queries)], limit=PAGE)
            pages += 1
        return pages

    async def _tidied(self) -> int:
        """Have space given back, for a while; how much is left."""
        until = perf_counter() + LONGEST_TIDY_SECONDS
        left = (await self._store.tidy(0)).space
        while left and perf_counter() < until:
            # Few texts: they are not what is measured here.
            left = (await self._store.tidy(1)).space
        return left

    async def _filter(self) -> tuple[list[str], Query]:
        """Common values of namespace, status, source and error, and the question that asks for them."""
        query: Query = Is(Field.NAMESPACE, NAMESPACE)
        values = [NAMESPACE]
        for field in (Field.STATUS, Field.SOURCE, Field.ERROR):
            tally = await self._store.tally(field, query)
            best = max(tally, key=lambda value: (tally[value], value))
            values.append(last_name(best) if field is Field.ERROR else best)
            query = And((*(query.parts if isinstance(query, And) else (query,)), Is(field, values[-1])))
        return values, query

    async def _words(self, query: Query) -> tuple[str, str]:
        """A word that many letters have, and one that few have; those of this question among them."""
        newest = (await self._store.find(limit=1000)).letters
        found = Counter(word for letter in newest for word in set(message_words(letter).split()))
        matching = [set(message_words(letter).split()) for letter in (await self._store.find(query, limit=PAGE)).letters]
        shared = Counter(word for words in matching for word in words)
        several = [word for word in shared if shared[word] * 10 >= len(matching) and len(word) > 3 and not word.isdigit()]
        # One that not all of them have, if there is one: else it would say nothing that the question does not say already.
        common = max(several, key=lambda word: (shared[word] < 0.95 * len(matching), found[word], word))
        # A number, as most words are that few messages have.
        rare = max(matching[-1], key=lambda word: (word.isdigit(), -found[word]))
        return common, rare

    def _find(self, query: Query, order: Order = Order.NEWEST) -> Side:
        async def found() -> object:
            return (await self._store.find(query, order=order, limit=PAGE)).letters

        return found

    def _fetch(self, sql: str, *arguments: Any) -> Side:
        async def fetched() -> object:
            return await self._ground.fetch(sql, *arguments)

        return fetched

    async def _fastest(self, statements: Sequence[str], values: Sequence[str]) -> str:
        """By whichever index is best here, as somebody would choose who knows the letters."""
        times = await _alternated(*(self._fetch(statement, *values) for statement in statements))
        return min(zip(times, statements, strict=True), key=lambda one: _middle(one[0]))[1]

    async def _beside_raw(
        self, key: str, name: str, ours: Side, raw: Side, *, goal: float | None = None, is_absolute: bool = False, note: str = ""
    ) -> Cost:
        """In milliseconds. The goal is about ours in relation to the bare statement, or about ours alone."""
        try:
            found = await ours()
            times, bare = await _alternated(ours, raw)
        except RedriveError as error:
            return Cost(key=key, name=name, unit="ms", ours=None, note=f"{type(error).__name__}: {error}")
        number = f"{len(found)} found" if isinstance(found, tuple) else ""
        ratio = _middle([one / two for one, two in zip(times, bare, strict=True)])
        return Cost(
            key=key,
            name=name,
            unit="ms",
            ours=_middle(times),
            raw=_middle(bare),
            spread=(min(times), max(times)),
            figure=_middle(times) if is_absolute else ratio,
            figure_unit="ms" if is_absolute else "× raw",
            goal=None if goal is None else Goal("at most", goal),
            note=", ".join(filter(None, (number, note))),
        )

    def _say(self, text: str) -> None:
        print(f"{datetime.now():%H:%M:%S} {self._ground.name}: {text}", file=sys.stderr, flush=True)  # noqa: DTZ005 - for whoever watches


async def _captures(dlq: DeadLetters, is_over: asyncio.Event) -> list[float]:
    """One letter every few milliseconds, whether or not those before are held: milliseconds, each from when it was due."""
    waited: list[float] = []

    async def capture(due: float) -> None:
        try:
            raise TimeoutError("no answer from stock.internal within 3000 ms")
        except TimeoutError as error:
            await dlq.capture(b'{"order": 4711, "note": "captured meanwhile"}', error, source="live")
        waited.append(1000 * (perf_counter() - due))

    due = perf_counter()
    async with asyncio.TaskGroup() as group:
        while not is_over.is_set():
            due += EVERY_SECONDS
            if (rest := due - perf_counter()) > 0:
                await asyncio.sleep(rest)
            group.create_task(capture(due))
    return waited


async def _purged_by_another(url: str, query: Query) -> None:
    """The command line, as somebody else would use it."""
    program = [sys.executable, "-m", "redrive", "purge", spelled(query), "--store", url, "--yes"]
    process = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.DEVNULL)
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(30):
                    await process.wait()


async def _alternated(*sides: Side) -> list[list[float]]:
    """Each side's milliseconds, a list of rounds; once to warm up. What is slow has fewer rounds, what is quick is repeated."""
    first = [await _milliseconds(side, 1) for side in sides]
    repeats = [max(1, min(50, round(100 / max(one, 0.1)))) for one in first]
    rounds = 7 if sum(first) < 1000 else 3 if sum(first) < 6000 else 1
    times: list[list[float]] = [[] for _ in sides]
    for turn in range(rounds):
        for number in range(len(sides)) if turn % 2 == 0 else reversed(range(len(sides))):
            gc.collect()
            times[number].append(await _milliseconds(sides[number], repeats[number]))
    return times


async def _milliseconds(side: Side, repeats: int) -> float:
    with Watch() as watch:
        for _ in range(repeats):
            await side()
    return 1000 * watch.seconds / repeats


def _middle(values: Sequence[float]) -> float:
    return statistics.median(values)


def _prefixed(condition: str) -> str:
    """The columns as those of `l`."""
    return " AND ".join(f"l.{part}" for part in condition.split(" AND "))


def main() -> None:
    options = _options()
    os.environ["REDRIVE_TELEMETRY"] = "false"
    options.place.mkdir(exist_ok=True, parents=True)
    OUT.mkdir(exist_ok=True)
    console = Console(width=None if Console().is_terminal else 180)
    sizes = sorted(options.sizes)
    setting = (
        f"redrive {__version__}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores"
    )
    setting += f", fsync {fsync_milliseconds(Effort(place=options.place)):.2f} ms"
    done: dict[str, Growth] = {}

    def keep(growth: Growth) -> None:
        done[growth.engine] = growth
        report = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "setting": setting, "engines": list(done.values())}
        (OUT / "million.json").write_bytes(json.format(json.encode(report)))

    for engine in GROUNDS if options.engine == "both" else [options.engine]:
        try:
            asyncio.run(grown(engine, sizes, options, keep))
        except Exception:
            # What was measured until then is told all the same, and the other engine has its turn.
            traceback.print_exc()
    for growth in done.values():
        console.print(table(growth, setting))
        console.print(waits_table(growth))
        if growth.space is not None:
            console.print(growth.space.text)
        if options.markdown:
            print(markdown(growth))
    for path in (OUT / "million.svg", *([CHART] if options.save else [])):
        path.write_text(chart(list(done.values()), setting))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.million", description=__doc__)
    parser.add_argument("--engine", choices=[*GROUNDS, "both"], default="both", help="default: %(default)s")
    parser.add_argument(
        "--sizes",
        type=lambda text: [int(size) for size in text.split(",")],
        default=[1_000, 10_000, 100_000, 1_000_000],
        metavar="N,N,…",
        help="where to stop and measure, default: 1000,10000,100000,1000000",
    )
    parser.add_argument("--groups", type=int, default=10_000, help="failures that the letters are of, default: %(default)s")
    parser.add_argument("--place", type=Path, default=OUT, help="the folder for SQLite's file, default: %(default)s")
    parser.add_argument("--index-all", action="store_true", help=f"index all bodies, beyond {INDEX_ALL_UP_TO:,} letters too")
    parser.add_argument(
        "--purge-seconds", type=float, default=300.0, metavar="N", help="how long each purge may take, default: %(default)s"
    )
    parser.add_argument("--markdown", action="store_true", help="print the tables in markdown too")
    parser.add_argument("--save", action="store_true", help="write the chart to docs/million.svg too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
