"""Letters that are new, as most are that are put: one statement writes them, together with those of others who put at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import chain
from operator import itemgetter
from typing import Any, TypeAlias
from uuid import UUID
from weakref import WeakKeyDictionary

from redrive.backends.postgres.database import Database
from redrive.backends.postgres.errors import AlreadyThere
from redrive.backends.postgres.rows import COLUMNS, arrays, row
from redrive.backends.remote.joint import Joint, Load
from redrive.model.letter import Letter

_FEW = 32
"""Who puts more at once has no need of others, and would make them wait."""
_MOST = 200
"""Letters of one statement: so many take some ten milliseconds."""
_ID, _DATA = COLUMNS.index("id"), COLUMNS.index("data")

Rows: TypeAlias = Sequence[tuple[Any, ...]]


class Puts:
    """Writes letters that are not there."""

    def __init__(self, database: Database, insert_new: str) -> None:
        self._database = database
        self._insert_new = insert_new
        self._joints: WeakKeyDictionary[asyncio.AbstractEventLoop, Joint[Rows, set[UUID]]] = WeakKeyDictionary()
        database.rehearse(insert_new, *columns([]))

    async def written(self, letters: Collection[Letter]) -> bool:
        """Write these letters if none of them is there, else nothing; which of both was it?"""
        rows = [row(letter) for letter in letters]
        try:
            return not await (self._joined(rows) if len(rows) <= _FEW else self._known(rows))
        except AlreadyThere:
            # Another put one of them in the same instant.
            return False

    async def _joined(self, rows: Rows) -> set[UUID]:
        load = Load(rows, [one[_ID] for one in rows], sum(len(one[_DATA]) for one in rows))
        async with self._joint.turn(load) as known:
            if known is None or (known and known.isdisjoint(load.ids)):
                return await self._known(rows)
            return known

    async def _together(self, loads: Sequence[Rows], now: datetime | None) -> set[UUID]:
        return await self._known(list(chain.from_iterable(loads)))

    async def _known(self, rows: Rows) -> set[UUID]:
        """Those that are there already; when there are none, all were written."""
        return {id for (id,) in await self._database.write(self._insert_new, *turned(rows))}

    @property
    def _joint(self) -> Joint[Rows, set[UUID]]:
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
