"""Changes of counts are summed up behind those who write: it takes a while, and what was written is safe without it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from redrive.backends.postgres.database import Database
from redrive.model.errors import RedriveError

_EVERY = 1000
"""After so many letters were written, changes are summed up, should nobody else do so."""
_MOST = 2 * _EVERY
_MANY = 5 * _EVERY
"""So many that wait to be summed up are much for readers to add up: then whoever writes waits."""
_FEW = 16
"""Who writes no more letters than these at once waits for nobody else's."""


class Folding:
    """Sums up, once at a time."""

    def __init__(self, database: Database, statement: str) -> None:
        self._database = database
        self._statement = statement
        self._written = 0
        self._task: asyncio.Task[None] | None = None

    async def written(self, letters: int) -> None:
        """So many letters were changed. Who changes many while the last ones are being summed up waits for that, so that readers never
        have much to add up; who captures one beside a purge does not."""
        self._written += letters
        if self._written < _EVERY or (self._is_folding and letters <= _FEW and self._written < _MANY):
            return
        self._written = max(0, self._written - _MOST)
        await self.ended()
        self._task = asyncio.create_task(self._fold())

    @property
    def _is_folding(self) -> bool:
        """Is something under way on this event loop? That of another ends with it."""
        return (task := self._task) is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()

    async def ended(self) -> None:
        """Wait for what is under way."""
        while self._task is not None and self._is_folding:
            await asyncio.wait([self._task])

    async def _fold(self) -> None:
        # Should it fail, another does it.
        with suppress(RedriveError):
            await self._database.write(self._statement, _MOST)
