"""Puts that meet share a call: while one is under way, the others gather and go together, so that they share its fsync too."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from redrive.backends.redis.batch import Batch
from redrive.backends.redis.holdings import Kept
from redrive.backends.redis.server import Server
from redrive.model.errors import StoreUnavailable

_MOST_LETTERS = 1000
_MOST_BYTES = 8 * 1024 * 1024
"""A call takes the server's whole attention, so it must not become too large."""


class _Passenger(Struct, frozen=True, eq=False):
    batch: Batch
    now: datetime | None
    written_at: asyncio.Future[datetime | None]
    """None: nothing was written; it has to go alone."""


class Joint:
    """The puts of one event loop to one shard."""

    def __init__(self) -> None:
        self._is_under_way = False
        self._waiting: list[_Passenger] = []
        self._driver: asyncio.Task[None] | None = None

    async def send(self, server: Server, batch: Batch, now: datetime | None) -> tuple[dict[UUID, Kept | None], datetime]:
        """As `Batch.send`. Each batch is still written whole or not at all, and nobody is refused for another's letters."""
        if not self._is_under_way:
            self._is_under_way = True
            try:
                return await batch.send(server, now)
            finally:
                self._drive(server)
        passenger = _Passenger(batch, now, asyncio.get_running_loop().create_future())
        self._waiting.append(passenger)
        written_at = await passenger.written_at
        return await batch.send(server, now) if written_at is None else ({}, written_at)

    def _drive(self, server: Server) -> None:
        if self._waiting:
            self._driver = asyncio.get_running_loop().create_task(self._driven(server))
        else:
            self._is_under_way = False

    async def _driven(self, server: Server) -> None:
        try:
            while self._waiting:
                # Those who were just answered may have more: they get on before it leaves.
                await asyncio.sleep(0)
                await _carried(server, self._boarded())
        finally:
            self._is_under_way = False
            for passenger in self._waiting:
                passenger.written_at.cancel()

    def _boarded(self) -> list[_Passenger]:
        """Who goes next: letters of one instant, each once, and not too many."""
        boarded: list[_Passenger] = []
        left: list[_Passenger] = []
        ids: set[bytes] = set()
        size = 0
        for passenger in self._waiting:
            batch = passenger.batch
            size += batch.size
            is_fitting = not boarded or (
                passenger.now == boarded[0].now and len(ids) + len(batch) <= _MOST_LETTERS and size <= _MOST_BYTES
            )
            if is_fitting and ids.isdisjoint(batch.ids):
                boarded.append(passenger)
                ids.update(batch.ids)
            else:
                left.append(passenger)
        self._waiting = left
        return boarded


async def _carried(server: Server, boarded: Sequence[_Passenger]) -> None:
    try:
        obstacles, moment = await Batch.joined([passenger.batch for passenger in boarded]).send(server, boarded[0].now)
    except StoreUnavailable as error:
        for passenger in boarded:
            if not passenger.written_at.done():
                passenger.written_at.set_exception(_alike(error))
    except Exception:
        # Nothing was done. Alone, each is refused for its own letters or not at all.
        _answer(boarded, None)
    except BaseException:
        for passenger in boarded:
            passenger.written_at.cancel()
        raise
    else:
        _answer(boarded, None if obstacles else moment)


def _answer(boarded: Sequence[_Passenger], written_at: datetime | None) -> None:
    for passenger in boarded:
        if not passenger.written_at.done():
            passenger.written_at.set_result(written_at)


def _alike(error: StoreUnavailable) -> StoreUnavailable:
    """Everyone's own copy: a traceback grows with each raising."""
    copy = type(error)(*error.args)
    copy.__cause__ = error
    return copy
