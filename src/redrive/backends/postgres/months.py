"""Partitions by month, where letters lie in them: made before the first letter of a month is written, removed when none is left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence

from redrive.backends.postgres.database import Database
from redrive.backends.postgres.rows import arrays
from redrive.backends.postgres.statements import Statements
from redrive.backends.postgres.tables import Month, coming, months
from redrive.model.letter import Letter

_TRIES = 20
_BETWEEN_SECONDS = 0.1
"""Whoever goes through all letters may keep a month from being made. The first letter of that month waits for two seconds, and nobody else."""
_LOOK_SECONDS = 10.0
"""How often it is looked for months of which no letter is left."""


class Months:
    """Sees to the partitions of one database; where there are none, does nothing."""

    def __init__(self, database: Database, sql: Statements) -> None:
        self._database = database
        self._sql = sql
        self._known: set[Month] = set()
        """Those that are there, or cannot be made: their letters go to the others."""
        self._looked = -_LOOK_SECONDS

    async def make_room(self, letters: Collection[Letter]) -> None:
        """See to it that the months of these letters are there."""
        if not self._database.tables.is_parted or not (wanted := months(letters) - self._known):
            return
        tries, lacking = 1, await self._make(sorted(wanted))
        while lacking and tries < _TRIES:
            await asyncio.sleep(_BETWEEN_SECONDS)
            tries, lacking = tries + 1, await self._make(lacking)
        self._known |= wanted

    async def tidy(self) -> None:
        """Make this month and the next one, so that no letter waits for them; remove those that are past and empty."""
        if not self._database.tables.is_parted:
            return
        if wanted := coming(await self._database.now(None)) - self._known:
            self._known |= wanted - set(await self._make(sorted(wanted)))
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._looked = time.monotonic()
            while await self._dropped():
                pass

    async def _make(self, wanted: Sequence[Month]) -> list[Month]:
        """Make these months; which could not be made just now?"""
        rows = [(month.table, month.begins, month.ends) for month in wanted]
        ((names,),) = await self._database.read(self._sql.make_months, *arrays(rows, 3))
        return [month for month in wanted if month.table in names]

    async def _dropped(self) -> bool:
        """One at a time: whoever writes waits for each."""
        ((is_dropped,),) = await self._database.read(self._sql.drop_month)
        return bool(is_dropped)
