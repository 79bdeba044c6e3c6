"""Pages of letters: by fields, by words of messages, by words of bodies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from bench.million.grounds import NEWEST, PAGE
from bench.million.growth import Cost
from bench.million.questions import common, four_fields, words_of_bodies, words_of_messages
from bench.million.rounds import Rounds
from bench.million.source import Filled
from redrive.model.letter import Letter
from redrive.model.query import And, Field, Is, Or, Order, Query, Text
from redrive.model.stored import restored
from redrive.model.texts import Where

_PAGE = "namespace = $1 AND status = $2 AND source = $3 AND error_name = $4"
_NEAREST = f"ORDER BY length(l.words), l.dead_lettered_at DESC, l.id DESC LIMIT {PAGE + 1}"


class Pages:
    """Measures how long a page takes."""

    def __init__(self, filled: Filled) -> None:
        self._ground = filled.ground
        self._store = filled.store
        self._rounds = Rounds(filled.ground)

    async def letters(self) -> AsyncIterator[Cost]:
        """By four fields, by one of two values, and by words of messages."""
        await self._ground.rest()
        values, query = await four_fields(self._store)
        words = await words_of_messages(self._store, query)
        async for cost in self._by_fields(values, query):
            yield cost
        yield await self._either()
        for key, word in zip(("common", "rare"), words, strict=True):
            async for cost in self._by_word(key, word, values, query):
                yield cost

    async def bodies(self) -> AsyncIterator[Cost]:
        """By words of bodies."""
        for key, word in zip(("common", "rare"), await words_of_bodies(self._store), strict=True):
            source, has = self._ground.worded(word, Where.BODY)
            yield await self._rounds.beside_raw(
                f"body-{key}",
                f"page of a {key} word in bodies, newest first",
                self._rounds.find(Text(word, Where.BODY)),
                self._rounds.fetch(f"SELECT {self._ground.whole} FROM {source} WHERE {has} {NEWEST}"),
                note=word,
            )

    async def _by_fields(self, values: Sequence[str], query: Query) -> AsyncIterator[Cost]:
        statement = await self._rounds.fastest(self._ground.pages(_PAGE), values)

        async def rows() -> list[Any]:
            return await self._ground.fetch(statement, *values)

        async def decoded() -> list[Letter]:
            return [restored(row[1]) for row in await rows()]

        ours, note = self._rounds.find(query), " ".join(values)
        yield await self._rounds.beside_raw(
            "page", "page of 100: namespace, status, source, error", ours, rows, goal=2, note=note
        )
        yield await self._rounds.beside_raw("page-decoded", "the same; raw: decoded too", ours, decoded, note=note)

    async def _either(self) -> Cost:
        statuses = await common(self._store, Field.STATUS)
        either = [
            f"SELECT {self._ground.whole} FROM letters l {way} WHERE l.status IN ($1, $2) {NEWEST}"
            for way in ("", self._ground.by_age)
        ]
        return await self._rounds.beside_raw(
            "page-either",
            "page of either of two statuses",
            self._rounds.find(Or(tuple(Is(Field.STATUS, status) for status in statuses))),
            self._rounds.fetch(await self._rounds.fastest(either, statuses), *statuses),
            goal=2,
            note=" ".join(statuses),
        )

    async def _by_word(self, key: str, word: str, values: Sequence[str], query: Query) -> AsyncIterator[Cost]:
        text = Text(word)
        source, has = self._ground.worded(word, Where.MESSAGE)
        filtered = f"SELECT {self._ground.whole} FROM {source} WHERE {has} AND {_prefixed(_PAGE)} {NEWEST}"
        alone = f"SELECT {self._ground.whole} FROM {source} WHERE {has} "
        yield await self._rounds.beside_raw(
            f"page-{key}",
            f"page of 100: the four fields and a {key} word",
            self._rounds.find(And((query, text))),
            self._rounds.fetch(filtered, *values),
            goal=2,
            note=word,
        )
        yield await self._rounds.beside_raw(
            f"text-{key}",
            f"page of a {key} word, newest first",
            self._rounds.find(text),
            self._rounds.fetch(alone + NEWEST),
            note=word,
        )
        yield await self._rounds.beside_raw(
            f"nearest-{key}",
            f"page of a {key} word, nearest first",
            self._rounds.find(text, Order.NEAREST),
            self._rounds.fetch(alone + _NEAREST),
            note=word,
        )


def _prefixed(condition: str) -> str:
    """The columns as those of `l`."""
    return " AND ".join(f"l.{part}" for part in condition.split(" AND "))
