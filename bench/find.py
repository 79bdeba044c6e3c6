"""A page of a hundred letters among twenty thousand, newest first, beside the bare statement (which decodes nothing)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import redrive.blocking
from bench import raw
from bench.claim import fill
from bench.harness import Effort, Row, Watch, compared, folder
from bench.samples import letters
from redrive.model.query import Field, Is
from redrive.model.status import Status

_PAGE = (
    "SELECT l.id, t.data, l.standing FROM letters l JOIN contents t ON t.seq = l.seq"
    " WHERE l.status = 'pending' ORDER BY l.dead_lettered_at DESC, l.id DESC LIMIT 101"
)


def rows(effort: Effort) -> Iterator[Row]:
    pages = effort.of(200)
    with folder(effort) as place:
        path = place / "filled.db"
        asyncio.run(fill(path, letters(effort.of(20_000, step=100))))
        yield compared(
            "find a page of 100, by status",
            lambda: _find(path, pages),
            lambda: _select(path, pages),
            effort,
            against="raw statement",
            unit="pages/s",
        )


def _find(path: Path, pages: int) -> float:
    query = Is(Field.STATUS, Status.PENDING)
    with redrive.blocking.open(f"sqlite:{path}") as dlq:
        dlq.letters.check()
        with Watch() as watch:
            for _ in range(pages):
                assert len(dlq.letters.find(query, limit=100).letters) == 100
    return watch.rate(pages)


def _select(path: Path, pages: int) -> float:
    connection = raw.connect(path)
    with Watch() as watch:
        for _ in range(pages):
            assert len(connection.execute(_PAGE).fetchall()) == 101
    connection.close()
    return watch.rate(pages)
