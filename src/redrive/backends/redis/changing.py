"""`put`, `settle`, `amend` and `purge`: each brings what it knows, and the model decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from redrive.backends.redis.batch import FREE, Batch
from redrive.backends.redis.course import Decision, Part, by_shard, carried_out
from redrive.backends.redis.holdings import Kept, read
from redrive.backends.redis.keys import FOREVER, Shard
from redrive.backends.redis.server import Server, all_of
from redrive.backends.redis.walk import Asked, Found, walked
from redrive.backends.remote.claimed import Copies
from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.changes import Holding, amendments, arrivals, settlements
from redrive.model.letter import Letter
from redrive.model.query import Query, matches
from redrive.model.settlement import Settled, Settlement

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Decide = Callable[[dict[UUID, Kept], datetime], Decision[Answer]]


async def put(server: Server, letters: Sequence[Letter], now: datetime | None) -> list[Held]:
    """Taken to be new at first: when they are, which is the usual case, one call holds them."""
    moment = server.clock.now(now)

    def deciding(shard: Shard, some: Sequence[Letter]) -> Decide[Held]:
        def decide(known: dict[UUID, Kept], at: datetime) -> Decision[Held]:
            changes = arrivals({id: kept.letter for id, kept in known.items()}, some, at)
            batch = Batch(shard)
            for id, letter in changes.letters.items():
                batch.write(known.get(id), letter, void=id in changes.reopened)
            return changes.answers, batch

        return decide

    parts = [
        Part(places, {}, moment, deciding(shard, some), server.meetings[shard.tag])
        for shard, places, some in _shared_out(server, letters)
    ]
    return await carried_out(server, parts, now)


async def settle(server: Server, items: Sequence[Settlement], now: datetime | None, copies: Copies[bytes]) -> list[Settled]:
    """By what was remembered when the letters were claimed, where that is at hand."""

    def deciding(shard: Shard, some: Sequence[Settlement]) -> Decide[Settled]:
        def decide(known: dict[UUID, Kept], at: datetime) -> Decision[Settled]:
            changes = settlements(_holdings(known), some, at)
            batch = Batch(shard)
            for id, letter in changes.letters.items():
                before = known[id]
                batch.write(before, letter, guard=before.token.to_bytes(8, "big"), void=True)
            return changes.answers, batch

        return decide

    async def part(shard: Shard, places: list[int], some: Sequence[Settlement]) -> Part[Settled]:
        known, unknown = {}, []
        for item in some:
            if copy := copies.take(item.id, item.token):
                # Whether the lease is live is seen at the server.
                known[item.id] = Kept(copy.letter, copy.version, copy.token, FOREVER)
            elif item.id not in known:
                unknown.append(item)
        moment = server.clock.now(now)
        if unknown:
            found, moment = await read(server, shard, _ids(unknown), now)
            known = found | known
        return Part(places, known, moment, deciding(shard, some))

    return await carried_out(server, await all_of(part(*share) for share in _shared_out(server, items)), now)


async def amend(server: Server, items: Sequence[Amendment], now: datetime | None) -> list[Amended]:
    """On letters that are read first, and that nobody may hold when the change is written."""

    def deciding(shard: Shard, some: Sequence[Amendment]) -> Decide[Amended]:
        def decide(known: dict[UUID, Kept], at: datetime) -> Decision[Amended]:
            changes = amendments(_holdings(known), some, at)
            batch = Batch(shard)
            for id, letter in changes.letters.items():
                batch.write(known[id], letter, guard=FREE)
            return changes.answers, batch

        return decide

    async def part(shard: Shard, places: list[int], some: Sequence[Amendment]) -> Part[Amended]:
        known, moment = await read(server, shard, _ids(some), now)
        return Part(places, known, moment, deciding(shard, some))

    return await carried_out(server, await all_of(part(*share) for share in _shared_out(server, items)), now)


async def purge(server: Server, query: Query, limit: int, among: Sequence[UUID] | None, now: datetime | None) -> list[Letter]:
    """The oldest that match are found first, then removed in one call a shard; others make up for what could not be."""
    ids = None if among is None else tuple(id.bytes for id in among)
    walk = await walked(server, Asked(query=query, now=now, expected=max(limit, 1), among=ids))
    removed: list[tuple[bytes, Letter]] = []
    is_over = limit == 0
    while not is_over and len(removed) < limit:
        found: list[Found] = []
        while not is_over and len(found) < limit - len(removed):
            page = await walk.more()
            is_over = not page
            found += [one for one in page if not one.kept.is_held(one.now)]
        removed += await _removed(server, found[: limit - len(removed)], query, now)
    removed.sort(key=lambda one: one[0])
    return [letter for _, letter in removed]


async def _removed(server: Server, found: Sequence[Found], query: Query, now: datetime | None) -> list[tuple[bytes, Letter]]:
    """Those of the letters that still matched and that nobody held, each with its place in the order."""

    def deciding(shard: Shard, some: Sequence[UUID]) -> Decide[Letter | None]:
        def decide(known: dict[UUID, Kept], at: datetime) -> Decision[Letter | None]:
            batch = Batch(shard)
            answers: list[Letter | None] = []
            for id in some:
                kept = known.get(id)
                if kept is None or kept.is_held(at) or not matches(query, kept.letter):
                    answers.append(None)
                    continue
                batch.remove(kept)
                answers.append(kept.letter)
            return answers, batch

        return decide

    async def part(shard: Shard, places: list[int], some: Sequence[Found]) -> Part[Letter | None]:
        ids = [one.kept.letter.id for one in some]
        known, moment = await read(server, shard, [id.bytes for id in ids], now)
        return Part(places, known, moment, deciding(shard, ids))

    shares = _shared_out(server, found, lambda one: one.kept.letter.id)
    letters = await carried_out(server, await all_of(part(*share) for share in shares), now)
    return [(one.member, letter) for one, letter in zip(found, letters, strict=True) if letter is not None]


def _shared_out(
    server: Server, items: Sequence[Item], id_of: Callable[[Any], UUID] = lambda item: item.id
) -> list[tuple[Shard, list[int], Sequence[Item]]]:
    """Each shard's share of the items, with their places in the batch."""
    if len(server.shards) == 1:
        return [(server.shards[0], list(range(len(items))), items)] if items else []
    places = by_shard(server, [id_of(item) for item in items])
    return [(server.shards[number], some, [items[place] for place in some]) for number, some in places.items()]


def _holdings(known: dict[UUID, Kept]) -> dict[UUID, Holding]:
    return {id: kept.holding for id, kept in known.items()}


def _ids(items: Iterable[Any]) -> list[bytes]:
    return list(dict.fromkeys(item.id.bytes for item in items))
