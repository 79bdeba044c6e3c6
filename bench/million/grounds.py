"""The stores that are measured, each with bare statements on its tables over a connection of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import redrive
from bench import raw
from bench.harness import Effort, folder
from redrive.backends.sqlite.query import DATA, ON_EVERY_SHELF, shelved
from redrive.engine.dead_letters import DeadLetters
from redrive.model.instant import micros
from redrive.model.lane import lane_of
from redrive.model.letter import Letter
from redrive.model.texts import Where

PAGE = 100
NEWEST = f"ORDER BY l.dead_lettered_at DESC, l.id DESC LIMIT {PAGE + 1}"


class Sizes(dict[str, int]):
    """Bytes by what they are for: `letters`, `indexes`, `texts` (the index of bodies and tracebacks), `rest`; `file` is all."""


class Ground(Protocol):
    """A store of an engine, and bare statements on its tables. Statements are written as PostgreSQL takes them."""

    name: str
    by_age: str
    """What makes a statement go through the letters by their age, where that has to be said."""
    whole: str
    """What is selected: a letter's id, and its stored form."""
    stored_bytes: str
    """How many bytes the stored forms have on average."""
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
    """A file, with all statements on one connection."""

    name = "SQLite"
    by_age = "INDEXED BY letters_by_age"
    whole = f"l.id, {DATA}"
    stored_bytes = f"SELECT avg(length({DATA})) FROM letters l"

    def __init__(self, path: Path, dlq: DeadLetters) -> None:
        self.url = f"sqlite:{path}"
        self.dlq = dlq
        self._path = path
        self._connection = raw.connect(path)

    async def fetch(self, sql: str, *arguments: Any) -> list[Any]:
        return self._connection.execute(sql.replace("$", "?"), arguments).fetchall()

    def pages(self, condition: str) -> list[str]:
        ways = ["", *(f"INDEXED BY letters_by_{name}" for name in ("status", "source", "error"))]
        return [f"SELECT {self.whole} FROM letters l {way} WHERE {condition} {NEWEST}" for way in ways]

    def worded(self, word: str, where: Where) -> tuple[str, str]:
        if where is Where.MESSAGE:
            wanted = ON_EVERY_SHELF.replace("?", f"'{shelved([word])}'")
            return "letters l JOIN message_words ON message_words.rowid = l.seq", f"message_words MATCH {wanted}"
        return "letters l JOIN letter_texts ON letter_texts.rowid = l.seq", f"letter_texts MATCH 'body : \"{word}\"'"

    def encoded(self, batches: Sequence[Sequence[Letter]]) -> Any:
        return [
            (raw.encoded(batch), [(place, _claim(letter)) for place, letter in enumerate(batch) if _is_planned(letter)])
            for batch in batches
        ]

    async def insert(self, rows: Any) -> None:
        for written, claims in rows:
            self._connection.execute("BEGIN IMMEDIATE")
            first = raw.write(self._connection, written)
            due = [(first + place, *claim) for place, claim in claims]
            self._connection.executemany(
                "INSERT INTO claims (seq, id, lane, priority, at, is_due) VALUES (?, ?, ?, ?, ?, 1)", due
            )
            self._connection.execute("COMMIT")

    async def remove(self, given: Sequence[Letter]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        ids = [(letter.id.bytes,) for letter in given]
        for name in ("claims", "contents", "letters"):
            self._connection.executemany(f"DELETE FROM {name} WHERE seq = (SELECT seq FROM letters WHERE id = ?)", ids)
        self._connection.execute("COMMIT")

    async def rest(self) -> None:
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    async def sizes(self) -> Sizes:
        await self.rest()
        indexes = {name for (name,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
        sizes = Sizes(letters=0, indexes=0, texts=0, rest=0)
        (page,) = self._connection.execute("PRAGMA page_size").fetchone()
        # By pages: the sum of their sizes is an integer of 32 bits there.
        for name, pages in self._connection.execute("SELECT name, pageno FROM dbstat WHERE aggregate = 1"):
            if name.startswith(("letter_texts", "former_texts")):
                part = "texts"
            elif name in indexes or name.startswith("message_words"):
                part = "indexes"
            else:
                part = "letters" if name in ("letters", "contents") else "rest"
            sizes[part] += pages * page
        logs = self._path.with_name(f"{self._path.name}-wal")
        sizes["file"] = self._path.stat().st_size + (logs.stat().st_size if logs.exists() else 0)
        return sizes

    def close(self) -> None:
        self._connection.close()


class PostgresGround:
    """A schema of a server that is there for this run only."""

    name = "PostgreSQL"
    by_age = ""
    whole = "l.id, l.data"
    stored_bytes = "SELECT avg(length(data)) FROM letters"

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
        return [f"SELECT {self.whole} FROM letters l WHERE {condition}{way} {NEWEST}" for way in ways]

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
        # What that has written is made durable now, and not beside what is measured next.
        await self._connection.execute("CHECKPOINT")

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


def _is_planned(letter: Letter) -> bool:
    return letter.status == "pending" and letter.retry.next_retry_at is not None


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
