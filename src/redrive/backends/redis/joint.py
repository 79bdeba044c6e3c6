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
from redrive.backends.remote.joint import InTheWay, Joint, Load

Meeting: TypeAlias = Joint[Batch, datetime]
"""Where puts to one shard of a server meet. Who went with others hears when all of it was written."""


def meeting(server: Server) -> Meeting:
    return Joint(partial(_together, server))


async def put(place: Meeting, server: Server, batch: Batch, now: datetime | None) -> tuple[dict[UUID, Kept | None], datetime]:
    """As `Batch.send`, in a call with others where there are some."""
    async with place.turn(Load(batch, batch.ids, batch.size, now)) as written_at:
        return await batch.send(server, now) if written_at is None else ({}, written_at)


async def _together(server: Server, batches: Sequence[Batch], now: datetime | None) -> tuple[datetime | None, InTheWay]:
    obstacles, moment = await Batch.joined(batches).send(server, now)
    return (None, [id.bytes for id in obstacles]) if obstacles else (moment, ())
