"""Changes of counts are summed up behind those who write: it takes a while, and what was written is safe without it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from redrive.backends.postgres.database import Database
from redrive.model.errors import RedriveError

_EVERY = 1000
"""After so many letters were written, changes are summed up, should nobody else do so."""
_MOST = 2 * _EVERY


class Folding:
    """Sums up, once at a time."""

    def __init__(self, database: Database, statement: str) -> None:
        self._database = database
        self._statement = statement
        self._written = 0
        self._task: asyncio.Task[None] | None = None

    async def written(self, letters: int) -> None:
        """So many letters were changed. Who changes more while the last ones are being summed up waits for that, so that readers never
        have much to add up; nobody else waits."""
        self._written += letters
        if self._written >= _EVERY:
            self._written = 0
            await self.ended()
            self._task = asyncio.create_task(self._fold())

    async def ended(self) -> None:
        """Wait for what is under way on this event loop; that of another ends with it."""
        while (task := self._task) is not None and not task.done() and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([task])

    async def _fold(self) -> None:
        # Should it fail, another does it.
        with suppress(RedriveError):
            await self._database.write(self._statement, _MOST)
