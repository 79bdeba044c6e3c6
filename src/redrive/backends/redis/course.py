"""The course of a change: decided here on what is known, written there if that still holds, else learned and decided again."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

from msgspec import Struct

from redrive.backends.redis.batch import Batch
from redrive.backends.redis.holdings import Kept
from redrive.backends.redis.joint import Meeting, put
from redrive.backends.redis.server import Server, all_written
from redrive.model.errors import StoreUnavailable

Answer = TypeVar("Answer")
Decision = tuple[list[Answer], Batch]

_MOST_ROUNDS = 500
_PATIENT_ROUNDS = 3


class Part(Struct, Generic[Answer]):
    """One shard's share of a batch."""

    places: Sequence[int]
    """Of its items in the batch."""
    known: dict[UUID, Kept]
    moment: datetime
    decide: Callable[[dict[UUID, Kept], datetime], Decision[Answer]]
    """An answer for each item and what is to be written, by the letters as they are known at an instant."""
    meeting: Meeting | None = None
    """With it, the first try may share a call with others."""


async def carried_out(server: Server, parts: Sequence[Part[Answer]], now: datetime | None) -> list[Answer]:
    """The answers to a batch, all shards' together. What is written on a shard is written whole or not at all."""
    # Every letter is encoded before anything is sent: one that cannot be stored changes nothing on any shard.
    decided = [part.decide(part.known, part.moment) for part in parts]
    calls = (_carried_out(server, part, decision, now) for part, decision in zip(parts, decided, strict=True))
    placed: dict[int, Answer] = {}
    for part, answers in zip(parts, await all_written(calls, server.name), strict=True):
        placed |= zip(part.places, answers, strict=True)
    return [placed[place] for place in sorted(placed)]


async def _carried_out(server: Server, part: Part[Answer], decision: Decision[Answer], now: datetime | None) -> list[Answer]:
    for round in itertools.count():
        answers, batch = decision
        if not batch:
            return answers
        obstacles, moment = await (
            put(part.meeting, server, batch, now) if part.meeting and round == 0 else batch.send(server, now)
        )
        if not obstacles:
            return answers
        if round == _MOST_ROUNDS:
            raise StoreUnavailable(f"others keep changing the same letters at {server.name}; try again")
        if round > _PATIENT_ROUNDS:
            # One of those who meet always gets through; this parts the rest.
            await asyncio.sleep(random.uniform(0, 0.001 * min(round, 50)))  # noqa: S311  # no secret
        for id, kept in obstacles.items():
            if kept is None:
                part.known.pop(id, None)
            else:
                part.known[id] = kept
        decision = part.decide(part.known, moment)
    raise AssertionError


def by_shard(server: Server, ids: Sequence[UUID]) -> dict[int, list[int]]:
    """The places of the ids in their batch, for each shard that has some."""
    if len(server.shards) == 1:
        return {0: list(range(len(ids)))} if ids else {}
    parts: dict[int, list[int]] = {}
    for place, id in enumerate(ids):
        parts.setdefault(server.shard_of(id.bytes), []).append(place)
    return parts
