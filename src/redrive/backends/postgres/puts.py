"""Letters that are new, as most are that are put: one statement writes them, together with those of others who put at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from operator import itemgetter
from typing import Any, TypeAlias
from uuid import UUID
from weakref import WeakKeyDictionary

from redrive.backends.postgres.database import Database
from redrive.backends.postgres.errors import AlreadyThere, Blocked
from redrive.backends.postgres.rows import COLUMNS, arrays, row
from redrive.backends.postgres.statements import Statements
from redrive.backends.remote.joint import Joint, Load
from redrive.model.letter import Letter

_FEW = 32
"""Who puts more at once has no need of others, and would make them wait."""
_MOST = 200
"""Letters of one statement: so many take some ten milliseconds."""
_ID, _DATA = COLUMNS.index("id"), COLUMNS.index("data")

Rows: TypeAlias = Sequence[tuple[Any, ...]]
Known: TypeAlias = frozenset[UUID]
"""Letters that were there already; when there are any, nothing was written."""


class Puts:
    """Writes letters that are not there."""

    def __init__(self, database: Database, sql: Statements) -> None:
        self._database = database
        self._sql = sql
        self._joints: WeakKeyDictionary[asyncio.AbstractEventLoop, Joint[Rows, Known]] = WeakKeyDictionary()
        database.rehearse(sql.insert_new_soon, *columns([]))

    async def written(self, letters: Collection[Letter]) -> bool:
        """Write these letters if none of them is there, else nothing; which of both was it?"""
        rows = [row(letter) for letter in letters]
        try:
            known = await self._joined(rows) if len(rows) <= _FEW else None
            return not (await self._insert(rows) if known is None else known)
        except AlreadyThere:
            # Another put one of them in the same instant.
            return False

    async def _joined(self, rows: Rows) -> Known | None:
        """As `_insert`, together with those who put at the same time; None: another transaction is about to write one of these letters, and nobody
        else is to wait for that."""
        load = Load(rows, [one[_ID] for one in rows], sum(len(one[_DATA]) for one in rows))
        async with self._joint.turn(load) as known:
            if known is not None and not (known and known.isdisjoint(load.ids)):
                return known
            # Within the turn: it is no outage that others had to hear of.
            with suppress(Blocked):
                return await self._insert_soon(rows)
        return None

    async def _together(self, loads: Sequence[Rows], now: datetime | None) -> tuple[Known | None, Known]:
        try:
            known = await self._insert_soon(list(chain.from_iterable(loads)))
        except Blocked:
            return None, frozenset()
        return known, known

    async def _insert(self, rows: Rows) -> Known:
        """Write them all, unless some are there already: which?"""
        return frozenset(id for (id,) in await self._database.write(self._sql.insert_new, *turned(rows)))

    async def _insert_soon(self, rows: Rows) -> Known:
        """The same for those whom others wait for: `Blocked` when it would take long."""
        return frozenset(id for (id,) in await self._database.write(self._sql.insert_new_soon, *turned(rows)))

    @property
    def _joint(self) -> Joint[Rows, Known]:
        loop = asyncio.get_running_loop()
        if (joint := self._joints.get(loop)) is None:
            joint = self._joints[loop] = Joint(self._together, most_letters=_MOST)
        return joint


def columns(letters: Iterable[Letter]) -> list[list[object]]:
    """The letters by columns, as statements take them."""
    return turned([row(letter) for letter in letters])


def turned(rows: Rows) -> list[list[object]]:
    """Rows by columns, sorted: who writes the same letters waits for another in the same order."""
    return arrays(sorted(rows, key=itemgetter(_ID)), len(COLUMNS))
