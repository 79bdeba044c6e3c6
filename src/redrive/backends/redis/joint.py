"""Puts to a shard that meet are written by one script."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TypeAlias
from uuid import UUID

from redrive.backends.redis.batch import Batch
from redrive.backends.redis.holdings import Kept
from redrive.backends.redis.server import Server
from redrive.backends.remote.joint import Joint, Load

Puts: TypeAlias = Joint[Batch, datetime]
"""Who went with others hears when all of it was written."""


def puts(server: Server) -> Puts:
    """Where puts to one shard of this server meet."""
    return Joint(partial(_together, server))


async def put(meeting: Puts, server: Server, batch: Batch, now: datetime | None) -> tuple[dict[UUID, Kept | None], datetime]:
    """As `Batch.send`, in a call with others where there are some."""
    async with meeting.turn(Load(batch, batch.ids, batch.size, now)) as written_at:
        return await batch.send(server, now) if written_at is None else ({}, written_at)


async def _together(server: Server, batches: Sequence[Batch], now: datetime | None) -> datetime | None:
    obstacles, moment = await Batch.joined(batches).send(server, now)
    return None if obstacles else moment
