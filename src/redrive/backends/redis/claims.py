"""Giving leases out: what is due, what is named, what is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from redrive.backends.redis.cards import generation_bytes
from redrive.backends.redis.holdings import given
from redrive.backends.redis.keys import ABSENT, Shard, bytes_of, instant_of, lane_bytes
from redrive.backends.redis.scripts import script
from redrive.backends.redis.server import Server, all_of, all_written
from redrive.backends.redis.walk import Asked, walked
from redrive.backends.remote.claimed import Copies, Copy
from redrive.model.lane import Lane
from redrive.model.lease import Claim, Claimed, Due, Lease
from redrive.model.letter import Letter
from redrive.model.query import Query, bounded
from redrive.model.status import OPEN, Status
from redrive.model.stored import restored

_LONGEST = timedelta(days=36_500)
_LEAST = -_LONGEST


class Wish(Struct, frozen=True):
    """A letter somebody wants, at the version at which it was seen to be free."""

    order: tuple[Any, ...]
    id: bytes
    version: bytes = ABSENT


async def claim(server: Server, claim: Claim, now: datetime | None, copies: Copies[bytes]) -> list[Claimed]:
    """Lease what can be had of what is wanted."""
    limit = bounded(claim.limit)
    if limit == 0:
        return []
    match claim.what:
        case Due() as due:
            return await _claim_due(server, claim, due, now, copies)
        case tuple() as ids:
            return await _claim_ids(server, claim, tuple(dict.fromkeys(ids)), now, copies)
        case query:
            return await _claim_query(server, claim, query, now, copies)


async def due_in(server: Server, lanes: Sequence[Lane]) -> timedelta | None:
    """How long until a letter of these lanes may be claimed as due; None: none waits for a retry."""
    wanted = b"".join(map(lane_bytes, lanes))
    answers = await all_of(server.run(script("next"), [shard.due], wanted) for shard in server.shards)
    waits = [instant_of(at) - instant_of(now) for now, at in answers if at is not None]
    return min(waits, default=None)


async def extend(server: Server, leases: Sequence[Lease], by: timedelta, now: datetime | None) -> list[Lease | None]:
    """Move the ends of live leases; None for each that is lost."""
    by_shard: dict[int, list[int]] = {}
    for number, lease in enumerate(leases):
        by_shard.setdefault(server.shard_of(lease.id.bytes), []).append(number)
    answers: list[Lease | None] = [None] * len(leases)

    async def extend_some(shard: Shard, numbers: list[int]) -> None:
        some = [leases[number] for number in numbers]
        ends = await server.run(
            script("extend"),
            [shard.cards, shard.leases, shard.due, shard.ends],
            given(now),
            _end(by, now),
            b"".join(lease.id.bytes for lease in some),
            b"".join(_token(lease.token) for lease in some),
            b"".join(generation_bytes(lease.generation) for lease in some),
        )
        for number, end in zip(numbers, ends, strict=True):
            if end is not None:
                answers[number] = replace(leases[number], until=instant_of(end))

    await all_written((extend_some(server.shards[shard], numbers) for shard, numbers in by_shard.items()), server.name)
    return answers


async def _claim_ids(
    server: Server, claim: Claim, ids: Sequence[UUID], now: datetime | None, copies: Copies[bytes]
) -> list[Claimed]:
    limit = bounded(claim.limit)
    if len(server.shards) == 1 or len(ids) <= limit:
        return await _taken(server, claim, [Wish((number,), id.bytes) for number, id in enumerate(ids)], limit, now, copies)
    # In slices of what is still wanted, so that no shard takes what comes later in the order given.
    found: list[Claimed] = []
    start = 0
    while start < len(ids) and len(found) < limit:
        some = ids[start : start + limit - len(found)]
        start += len(some)
        wishes = [Wish((number,), id.bytes) for number, id in enumerate(some)]
        found += await _taken(server, claim, wishes, limit, now, copies)
    return found


async def _claim_query(server: Server, claim: Claim, query: Query, now: datetime | None, copies: Copies[bytes]) -> list[Claimed]:
    limit = bounded(claim.limit)
    walk = await walked(server, Asked(query=query, now=now, expected=limit))
    found: list[Claimed] = []
    while len(found) < limit and (page := await walk.more()):
        wishes = [
            Wish((one.member,), one.member[-16:], one.kept.version)
            for one in page
            if one.kept.letter.status in OPEN and not one.kept.is_held(one.now)
        ]
        while wishes and len(found) < limit:
            some, wishes = wishes[: limit - len(found)], wishes[limit - len(found) :]
            found += await _taken(server, claim, some, limit, now, copies)
    return found


async def _claim_due(server: Server, claim: Claim, due: Due, now: datetime | None, copies: Copies[bytes]) -> list[Claimed]:
    limit, how = bounded(claim.limit), (lane_bytes(due.lane), int(due.longest))
    if len(server.shards) == 1:
        shard = server.shards[0]
        answer = await server.run(script("claim"), shard.claiming, given(now), _end(claim.lease, now), _owner(claim), limit, *how)
        return _claimed(server, claim, answer, now, copies)
    # The first of all shards. What another took meanwhile is made up for by what comes next.
    found: list[Claimed] = []
    while len(found) < limit:
        missing = limit - len(found)
        heads = await all_of(
            server.run(script("peek"), [shard.cards, shard.due], given(now), missing, *how) for shard in server.shards
        )
        wishes = [
            Wish((member[16:] if due.longest else member,), member[24:], version)
            for _, *rest in heads
            for member, version in zip(rest[::2], rest[1::2], strict=True)
        ]
        if not wishes:
            break
        wishes.sort(key=_order)
        found += await _taken(server, claim, wishes[:missing], missing, now, copies)
    return found


async def _taken(
    server: Server, claim: Claim, wishes: Sequence[Wish], limit: int, now: datetime | None, copies: Copies[bytes]
) -> list[Claimed]:
    """Lease those of the letters that are still free, and answer in the order wished for."""
    by_shard: dict[int, list[Wish]] = {}
    for wish in wishes:
        by_shard.setdefault(server.shard_of(wish.id), []).append(wish)

    async def take_some(shard: Shard, some: list[Wish]) -> list[Claimed]:
        ids, versions = b"".join(wish.id for wish in some), b"".join(wish.version for wish in some)
        answer = await server.run(
            script("take"), shard.claiming, given(now), _end(claim.lease, now), _owner(claim), limit, ids, versions
        )
        return _claimed(server, claim, answer, now, copies)

    calls = (take_some(server.shards[shard], some) for shard, some in by_shard.items())
    claimed = {one.letter.id.bytes: one for part in await all_written(calls, server.name) for one in part}
    return [claimed[wish.id] for wish in wishes if wish.id in claimed]


def _claimed(server: Server, claim: Claim, answer: Sequence[bytes], now: datetime | None, copies: Copies[bytes]) -> list[Claimed]:
    if now is None:
        server.heard(answer[0])
    until, token = instant_of(answer[1]), int.from_bytes(answer[2], "big")
    letters = [restored(data) for data in answer[3::2]]
    copies.remember(Copy(letter, version, token) for letter, version in zip(letters, answer[4::2], strict=True))
    return [_one(letter, claim.owner, token, until) for letter in letters]


def _one(letter: Letter, owner: str, token: int, until: datetime) -> Claimed:
    return Claimed(
        letter=replace(letter, status=Status.RETRYING),
        lease=Lease(id=letter.id, token=token, generation=letter.generation, owner=owner, until=until),
    )


def _end(lease: timedelta, now: datetime | None) -> bytes | int:
    """When it ends as scripts take it: an instant when the caller owns the time, else for how long."""
    lease = max(_LEAST, min(lease, _LONGEST))
    return lease // timedelta(microseconds=1) if now is None else bytes_of(now + lease)


def _owner(claim: Claim) -> bytes:
    return claim.owner.encode("utf-8", "surrogatepass")


def _token(token: int) -> bytes:
    """As a lease has it; a number that no token can be equals none."""
    return token.to_bytes(8, "big") if 0 <= token < 2**63 else b"\xff" * 8


def _order(wish: Wish) -> tuple[Any, ...]:
    return wish.order
