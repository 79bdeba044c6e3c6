"""Going through letters in order, page by page, over all shards."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from redrive.backends.redis import keys
from redrive.backends.redis.cards import on_card
from redrive.backends.redis.holdings import MOST_CARDS, MOST_LETTERS, Kept, given, kept, read, read_many
from redrive.backends.redis.keys import Shard, bytes_of, bytes_of_micros, instant_of
from redrive.backends.redis.plan import WORTH_SORTING, Cover, chosen, ends, everything, exact_index, span
from redrive.backends.redis.scripts import script
from redrive.backends.redis.server import Server, all_of
from redrive.model.letter import Letter
from redrive.model.paging import is_newest_first, listed_by
from redrive.model.query import Field, Order, Query, is_deep, matches
from redrive.model.stored import restored

_FIRST_PAGE = 250


class Found(Struct, frozen=True, gc=False):
    """A letter that matches, where it stands in its order, and when that was."""

    member: bytes
    kept: Kept
    now: datetime


class Asked(Struct, frozen=True, kw_only=True):
    """What is looked for."""

    query: Query
    order: Order = Order.OLDEST
    after: tuple[int, UUID] | None = None
    now: datetime | None = None
    expected: int = MOST_CARDS
    """About so many are wanted."""
    among: tuple[bytes, ...] | None = None
    """Only letters with these ids."""
    bodies: bool = False
    """Are the letters themselves wanted? Else their cards will do."""


class Walk:
    """Letters that match, in order. A walk reads no further than it is asked to go."""

    def __init__(self, asked: Asked, streams: Sequence[_Stream], listed: list[Found], *, whole: bool, repeats: bool) -> None:
        self._asked = asked
        self._streams = streams
        self._listed = listed
        self.whole = whole
        """Are these the letters themselves, or their cards?"""
        self._repeats = repeats

    async def more(self) -> list[Found]:
        """The next ones; none: that was all."""
        while True:
            page = await self._page()
            if not page:
                return []
            if self._repeats:
                # One that is in several indexes comes from all of them at once, for it stands at the same place in each.
                page = list({one.member: one for one in page}.values())
            found = [one for one in page if matches(self._asked.query, one.kept.seen(one.now))]
            if found:
                return found

    async def _page(self) -> list[Found]:
        if self._listed:
            page, self._listed = self._listed, []
            return page
        await all_of(stream.fill() for stream in self._streams if not stream.page and not stream.is_over)
        going = [stream.page[-1].member for stream in self._streams if not stream.is_over]
        is_up = not is_newest_first(self._asked.order)
        bound = (min if is_up else max)(going, default=None)
        page = []
        for stream in self._streams:
            page += stream.taken(bound)
        if len(self._streams) > 1:
            page.sort(key=_member, reverse=not is_up)
        return page


class _Stream:
    """One sorted set of one shard."""

    def __init__(self, server: Server, shard: Shard, suffix: bytes, asked: Asked, *, whole: bool, size: int, most: int) -> None:
        self._server = server
        self._keys = [shard.letters if whole else shard.cards, shard.cards, shard.leases, shard.key(suffix)]
        self._whole = whole
        self._now = asked.now
        self._is_up = not is_newest_first(asked.order)
        self._size, self._most = size, most
        self.page: list[Found] = []
        self.is_over = False
        first, last = ends(span(asked.query, Field(listed_by(asked.order))))
        if asked.after is not None:
            beyond = b"(" + bytes_of_micros(asked.after[0]) + asked.after[1].bytes
            if self._is_up:
                first = max(first, beyond, key=_low)
            else:
                last = min(last, beyond, key=_high)
        self._first, self._last = first, last

    async def fill(self) -> None:
        verb, here, there = (
            ("ZRANGEBYLEX", self._first, self._last) if self._is_up else ("ZREVRANGEBYLEX", self._last, self._first)
        )
        moment, *rest = await self._server.run(script("walk"), self._keys, given(self._now), verb, here, there, self._size)
        if self._now is None:
            self._server.heard(moment)
        now = instant_of(moment)
        for start in range(0, len(rest), 4):
            member, value, version, lease = rest[start : start + 4]
            letter = restored(value) if self._whole else on_card(member[-16:], value)
            self.page.append(Found(member, kept(letter, version, lease), now))
        self.is_over = len(rest) < 4 * self._size
        if rest:
            beyond = b"(" + self.page[-1].member
            if self._is_up:
                self._first = beyond
            else:
                self._last = beyond
        self._size = min(2 * self._size, self._most)

    def taken(self, bound: bytes | None) -> list[Found]:
        """What lies before the bound: no stream can still bring something that comes earlier."""
        if bound is None:
            page, self.page = self.page, []
            return page
        count = 0
        for one in self.page:
            if one.member > bound if self._is_up else one.member < bound:
                break
            count += 1
        page, self.page = self.page[:count], self.page[count:]
        return page


async def walked(server: Server, asked: Asked) -> Walk:
    """A walk along whatever is the shortest way."""
    if asked.among is not None:
        listed = await _listed(server, Cover(ids=asked.among), asked)
        return Walk(asked, (), listed, whole=is_deep(asked.query), repeats=False)
    is_all = everything(asked.query) or exact_index(asked.query) is not None
    cover, size = await chosen(server, asked.query, sized=asked.order is Order.UPDATED)
    if cover is not None and (cover.is_listed or (asked.order is Order.UPDATED and size <= WORTH_SORTING)):
        return Walk(asked, (), await _listed(server, cover, asked), whole=is_deep(asked.query), repeats=False)
    if cover is None or asked.order is Order.UPDATED:
        suffixes: tuple[bytes, ...] = (keys.UPDATED if asked.order is Order.UPDATED else keys.AGE,)
    else:
        suffixes = cover.indexes
    # What is asked about texts and documents is not on the cards.
    whole = is_deep(asked.query) or (is_all and asked.bodies)
    most = MOST_LETTERS if whole else MOST_CARDS
    share = min(asked.expected // len(server.shards) + 8 if is_all else _FIRST_PAGE, most)
    streams = [
        _Stream(server, shard, suffix, asked, whole=whole, size=share, most=most)
        for shard in server.shards
        for suffix in suffixes
    ]
    return Walk(asked, streams, [], whole=whole, repeats=len(suffixes) > 1)


async def _listed(server: Server, cover: Cover, asked: Asked) -> list[Found]:
    """All that the cover has, read and sorted."""
    parts = await all_of(_covered(server, number, cover, asked) for number in range(len(server.shards)))
    found = [Found(_place(one.letter, asked.order), one, now) for part in parts for one, now in part]
    if asked.after is not None:
        beyond = bytes_of_micros(asked.after[0]) + asked.after[1].bytes
        found = [one for one in found if (one.member < beyond if is_newest_first(asked.order) else one.member > beyond)]
    found.sort(key=_member, reverse=is_newest_first(asked.order))
    return found


async def _covered(server: Server, number: int, cover: Cover, asked: Asked) -> list[tuple[Kept, datetime]]:
    shard, now = server.shards[number], asked.now
    ids = [id for id in cover.ids if server.shard_of(id) == number]
    if cover.has_leased:
        ids += await leased(server, shard, now)
    for suffix in cover.indexes:
        ids += [member[-16:] for member in await server.command(shard.tag, "ZRANGE", shard.key(suffix), 0, -1)]
    return await read_many(server, shard, list(dict.fromkeys(ids)), now, cards=not is_deep(asked.query))


async def leased(server: Server, shard: Shard, now: datetime | None) -> list[bytes]:
    """The ids of the letters whose lease has not ended."""
    moment = bytes_of(server.clock.now(now))
    members = await server.command(shard.tag, "ZRANGEBYLEX", shard.ends, b"(" + moment + b"\xff" * 16, b"+")
    return [member[8:] for member in members]


def _member(found: Found) -> bytes:
    return found.member


def _place(letter: Letter, order: Order) -> bytes:
    """Where the letter stands in this order."""
    at: datetime = getattr(letter, listed_by(order))
    return bytes_of(at) + letter.id.bytes


def _low(end: bytes) -> tuple[int, bytes, bool]:
    """Sorts lower ends of walks: the later one leaves less."""
    return (0, b"", False) if end == b"-" else (1, end[1:], end[:1] == b"(")


def _high(end: bytes) -> tuple[int, bytes, bool]:
    """Sorts upper ends of walks: the earlier one leaves less."""
    return (1, b"", False) if end == b"+" else (0, end[1:], end[:1] != b"(")


async def loaded(server: Server, found: Sequence[Found], asked: Asked, *, whole: bool) -> list[Letter]:
    """The letters themselves as readers see them, those that are still where they were found and match."""
    if whole:
        return [one.kept.seen(one.now) for one in found]
    by_shard: dict[int, list[bytes]] = {}
    for one in found:
        by_shard.setdefault(server.shard_of(one.member[-16:]), []).append(one.member[-16:])
    letters: dict[bytes, Letter] = {}
    while by_shard:
        calls = (read(server, server.shards[number], ids[:MOST_LETTERS], asked.now) for number, ids in by_shard.items())
        for part, moment in await all_of(calls):
            seen = [kept.seen(moment) for kept in part.values()]
            letters |= {_place(letter, asked.order): letter for letter in seen}
        by_shard = {number: ids[MOST_LETTERS:] for number, ids in by_shard.items() if len(ids) > MOST_LETTERS}
    return [letter for one in found if (letter := letters.get(one.member)) and matches(asked.query, letter)]
