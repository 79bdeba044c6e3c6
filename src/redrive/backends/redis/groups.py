"""Letters that failed in the same way, in any order of groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import Struct, field

from redrive.backends.redis.counting import held, stored_groups
from redrive.backends.redis.holdings import read
from redrive.backends.redis.hours import between
from redrive.backends.redis.keys import group_index, instant_of, micros_of
from redrive.backends.redis.plan import everything
from redrive.backends.redis.scripts import script
from redrive.backends.redis.server import Server, all_of
from redrive.backends.redis.walk import Asked, walked
from redrive.model.hours import HOUR, SHOWN, growth
from redrive.model.letter import Letter
from redrive.model.paging import LastGroup, group, group_page, last_hour
from redrive.model.query import Group, GroupOrder, GroupPage, Query
from redrive.model.status import Status

_MOST_A_CALL = 500


class _Span(Struct):
    """A group's first and last letter, as the index by age has them."""

    first: bytes
    last: bytes

    def take_in(self, first: bytes, last: bytes) -> None:
        self.first = min(self.first, first)
        self.last = max(self.last, last)


class _Sum(Struct):
    """All that is shown of a group but its last letter."""

    span: _Span
    statuses: dict[str, int] = field(default_factory=Counter)
    hours: list[int] = field(default_factory=lambda: [0] * SHOWN)

    @property
    def count(self) -> int:
        return sum(self.statuses.values())


class _All:
    """The groups of all letters: told by counts that every write keeps, and by the index that each group has."""

    def __init__(self, server: Server, hour: int, statuses: dict[str, dict[str, int]]) -> None:
        self._server = server
        self._hour = hour
        self._statuses = statuses
        self._spans: dict[str, _Span] = {}

    async def values(self, order: GroupOrder) -> dict[str, int]:
        """What each group is listed by."""
        names = list(self._statuses)
        match order:
            case GroupOrder.LAST_SEEN:
                self._spans = await _spans(self._server, names)
                return {name: micros_of(span.last[:8]) for name, span in self._spans.items()}
            case GroupOrder.COUNT:
                return {name: sum(statuses.values()) for name, statuses in self._statuses.items()}
            case GroupOrder.GROWTH:
                edges = [self._hour - 3, self._hour - 1, self._hour + 1]
                counts = await between(self._server, list(map(group_index, names)), edges)
                return {name: recent - before for name, (before, recent) in zip(names, counts, strict=True)}

    async def sums(self, names: Sequence[str]) -> dict[str, _Sum]:
        """Those of these groups that are there."""
        spans = self._spans or await _spans(self._server, names)
        edges = range(self._hour - SHOWN + 1, self._hour + 2)
        hours = await between(self._server, list(map(group_index, names)), edges)
        return {
            name: _Sum(spans[name], self._statuses[name], shown)
            for name, shown in zip(names, hours, strict=True)
            if name in spans
        }


class _Walked:
    """The groups of letters that were looked at one by one."""

    def __init__(self, sums: dict[str, _Sum]) -> None:
        self._sums = sums

    async def values(self, order: GroupOrder) -> dict[str, int]:
        match order:
            case GroupOrder.LAST_SEEN:
                return {name: micros_of(one.span.last[:8]) for name, one in self._sums.items()}
            case GroupOrder.COUNT:
                return {name: one.count for name, one in self._sums.items()}
            case GroupOrder.GROWTH:
                return {name: growth(one.hours) for name, one in self._sums.items()}

    async def sums(self, names: Sequence[str]) -> dict[str, _Sum]:
        return {name: self._sums[name] for name in names}


async def listed(
    server: Server, query: Query, order: GroupOrder, limit: int, last: LastGroup | None, now: datetime | None
) -> GroupPage:
    """A page of the groups among the letters that match."""
    hour = last_hour(last, server.clock.now(now))
    if everything(query):
        whole: _All | _Walked = _All(server, hour, await _statuses(server, now))
    else:
        whole = _Walked(await _matching(server, query, hour, now))
    found = sorted(((value, name) for name, value in (await whole.values(order)).items()), reverse=True)
    if last is not None:
        found = [one for one in found if one < (last.value, last.fingerprint)]
    groups: list[Group] = []
    while found and len(groups) <= limit:
        missing = min(limit + 1 - len(groups), _MOST_A_CALL)
        names, found = [name for _, name in found[:missing]], found[missing:]
        sums = await whole.sums(names)
        latest = await _latest(server, [one.span.last[8:] for one in sums.values()])
        for name, one in sums.items():
            letter = latest.get(one.span.last[8:])
            # One that has left or failed otherwise meanwhile does not speak for its group any more.
            if letter is not None and letter.failure.fingerprint == name:
                first = instant_of(one.span.first[:8])
                groups.append(group(letter, one.count, first, one.statuses, one.hours))
    return group_page(groups, limit, order, hour)


async def _statuses(server: Server, now: datetime | None) -> dict[str, dict[str, int]]:
    """How many letters each group has of each status, as they are seen."""
    groups = await stored_groups(server)
    for letter in await held(server, now):
        statuses = groups.get(letter.failure.fingerprint)
        # One that has come or changed meanwhile is left where it was counted, or out.
        if statuses is not None and statuses.get(letter.status.value):
            statuses[letter.status.value] -= 1
            statuses[Status.RETRYING.value] = statuses.get(Status.RETRYING.value, 0) + 1
    return groups


async def _spans(server: Server, names: Sequence[str]) -> dict[str, _Span]:
    """Both ends of these groups' indexes."""
    spans: dict[str, _Span] = {}
    for start in range(0, len(names), _MOST_A_CALL):
        some = names[start : start + _MOST_A_CALL]
        suffixes = list(map(group_index, some))
        for answer in await all_of(server.run(script("spans"), list(map(shard.key, suffixes))) for shard in server.shards):
            for name, count, first, last in zip(some, answer[::3], answer[1::3], answer[2::3], strict=True):
                if count:
                    spans.setdefault(name, _Span(first, last)).take_in(first, last)
    return spans


async def _matching(server: Server, query: Query, hour: int, now: datetime | None) -> dict[str, _Sum]:
    """Of the letters that match, one by one."""
    sums: dict[str, _Sum] = {}
    walk = await walked(server, Asked(query=query, now=now))
    while page := await walk.more():
        for one in page:
            letter, member = one.kept.seen(one.now), one.member
            name = letter.failure.fingerprint
            if name not in sums:
                sums[name] = _Sum(_Span(member, member))
            of = sums[name]
            of.span.take_in(member, member)
            of.statuses[letter.status.value] += 1
            place = micros_of(member[:8]) // HOUR - hour + SHOWN - 1
            if 0 <= place < SHOWN:
                of.hours[place] += 1
    return sums


async def _latest(server: Server, ids: Iterable[bytes]) -> dict[bytes, Letter]:
    """The letters with these ids that are still there."""
    by_shard: dict[int, list[bytes]] = {}
    for id in ids:
        by_shard.setdefault(server.shard_of(id), []).append(id)
    calls = (read(server, server.shards[number], some, None) for number, some in by_shard.items())
    return {id.bytes: kept.letter for part, _ in await all_of(calls) for id, kept in part.items()}
