"""Letters that failed in the same way, the last seen first."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from redrive.backends.redis.counting import counted_by
from redrive.backends.redis.holdings import read
from redrive.backends.redis.keys import index, instant_of, micros_of
from redrive.backends.redis.plan import everything
from redrive.backends.redis.server import Server, all_of
from redrive.backends.redis.walk import Asked, walked
from redrive.model.letter import Letter
from redrive.model.paging import group, group_page
from redrive.model.query import Field, Group, GroupPage, Query

_MOST_A_CALL = 500


class _Span(Struct):
    """How many letters a group has, and its first and last one as the index by age has them."""

    count: int
    first: bytes
    last: bytes

    def take_in(self, count: int, first: bytes, last: bytes) -> None:
        self.count += count
        self.first = min(self.first, first)
        self.last = max(self.last, last)


async def listed(server: Server, query: Query, limit: int, after: tuple[int, str] | None, now: datetime | None) -> GroupPage:
    """A page of the groups among the letters that match."""
    spans = await _all(server) if everything(query) else await _matching(server, query, now)
    found = sorted(((micros_of(span.last[:8]), name) for name, span in spans.items()), reverse=True)
    if after is not None:
        found = [one for one in found if one < after]
    groups: list[Group] = []
    while found and len(groups) <= limit:
        missing = limit + 1 - len(groups)
        names, found = [name for _, name in found[:missing]], found[missing:]
        latest = await _latest(server, [spans[name].last[8:] for name in names])
        for name in names:
            letter = latest.get(spans[name].last[8:])
            # One that has left or failed otherwise meanwhile does not speak for its group any more.
            if letter is not None and letter.failure.fingerprint == name:
                groups.append(group(letter, spans[name].count, instant_of(spans[name].first[:8])))
    return group_page(groups, limit)


async def _all(server: Server) -> dict[str, _Span]:
    """Of all letters: the index of each group has both ends of it."""
    names = list((await counted_by(server, Field.GROUP)).keys())
    spans: dict[str, _Span] = {}
    for start in range(0, len(names), _MOST_A_CALL):
        some = names[start : start + _MOST_A_CALL]
        answers = await all_of(
            server.run("spans", [shard.key(index(Field.GROUP, name) or b"") for name in some]) for shard in server.shards
        )
        for answer in answers:
            for name, count, first, last in zip(some, answer[::3], answer[1::3], answer[2::3], strict=True):
                if count:
                    _take_in(spans, name, count, first, last)
    return spans


async def _matching(server: Server, query: Query, now: datetime | None) -> dict[str, _Span]:
    """Of the letters that match, one by one."""
    spans: dict[str, _Span] = {}
    walk = await walked(server, Asked(query=query, now=now))
    while page := await walk.more():
        for one in page:
            _take_in(spans, one.kept.letter.failure.fingerprint, 1, one.member, one.member)
    return spans


def _take_in(spans: dict[str, _Span], name: str, count: int, first: bytes, last: bytes) -> None:
    if name in spans:
        spans[name].take_in(count, first, last)
    else:
        spans[name] = _Span(count, first, last)


async def _latest(server: Server, ids: Iterable[bytes]) -> dict[bytes, Letter]:
    """The letters with these ids that are still there."""
    by_shard: dict[int, list[bytes]] = {}
    for id in ids:
        by_shard.setdefault(server.shard_of(id), []).append(id)
    calls = (read(server, server.shards[number], some, None) for number, some in by_shard.items())
    return {id.bytes: kept.letter for part, _ in await all_of(calls) for id, kept in part.items()}
