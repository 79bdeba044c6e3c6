"""The dispatcher: begins operations when their time has come."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import UTC, datetime, timedelta

from redrive.engine.background import Background
from redrive.engine.operations import Operations
from redrive.model.errors import RedriveError
from redrive.model.operation import Operation

log = logging.getLogger("redrive.dispatcher")

INTERVAL = timedelta(seconds=5)
"""How often it looks whether something is due."""


class Dispatcher(Background):
    """Made by `DeadLetters.dispatcher`. `async with` starts and stops it.

    One operation runs after another. What is under way when it stops is paused, and gone on with by whoever resumes it. Several
    may look after one desk: letters are claimed, so that two who begin the same operation do no harm.
    """

    def __init__(self, operations: Operations, *, interval: timedelta = INTERVAL, by: str = "") -> None:
        super().__init__("redrive-dispatcher")
        self._operations = operations
        self._interval = interval
        self._by = by

    async def _run(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            try:
                for operation in await self._operations.due(datetime.now(UTC)):
                    await self._begin(operation, stopping)
            except RedriveError as error:
                log.error("the dispatcher could not look for operations; it goes on trying: %s", error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), self._interval.total_seconds())

    async def _begin(self, operation: Operation, stopping: asyncio.Event) -> None:
        """Run one to its end, or until this is to stop."""
        if stopping.is_set():
            return
        short = str(operation.id)[:8]
        log.info("operation %s begins: %d letters to %s", short, operation.total, operation.target)
        running = asyncio.ensure_future(self._operations.run(operation.id, by=self._by or None))
        stopped = asyncio.ensure_future(stopping.wait())
        await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not running.done():
            running.cancel()
            await asyncio.wait([running])
            return
        if (error := running.exception()) is not None:
            log.error("operation %s could not be run: %s", short, error, exc_info=not isinstance(error, RedriveError))
            with contextlib.suppress(RedriveError):
                await self._operations.cancel(operation.id, why=f"it could not be begun: {error}")
            return
        report = running.result()
        told = ", ".join(f"{count:,} {entry}" for entry, count in report.entries.items()) or "nothing was sent"
        log.info("operation %s: %s%s", short, told, f"; stopped: {report.stopped}" if report.stopped else "")
