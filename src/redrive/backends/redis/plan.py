"""How a question is answered: along which indexes its letters can be found, and within which instants."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from redrive.backends.redis.keys import ENDS, bytes_of_micros, index
from redrive.backends.redis.scripts import script
from redrive.backends.redis.server import Server, all_of
from redrive.model.instant import micros
from redrive.model.query import And, Field, Is, Not, Op, Or, Query
from redrive.model.status import Status

_MOST_INDEXES = 32
"""More than so many are walked slower than everything is."""

WORTH_SORTING = 2000
"""Up to so many letters are read and sorted rather than looked for along another order."""


class Cover(Struct, frozen=True, kw_only=True):
    """Where all letters that match are to be found, perhaps among others."""

    indexes: tuple[bytes, ...] = ()
    ids: tuple[bytes, ...] = ()
    has_leased: bool = False
    """Those under a live lease too."""

    @property
    def is_listed(self) -> bool:
        """Is it read at once and sorted, since nothing has it in order?"""
        return bool(self.ids) or self.has_leased or not self.indexes


class Span(Struct, frozen=True, kw_only=True):
    """Instants between which all letters that match lie, both ends included."""

    first: int | None = None
    last: int | None = None


def everything(query: Query) -> bool:
    """Does it ask for all letters, whatever they are?"""
    return isinstance(query, And) and all(everything(part) for part in query.parts)


def exact_index(query: Query) -> bytes | None:
    """The index that has just the letters that match, and no others."""
    match query:
        case And(parts=(part,)):
            return exact_index(part)
        case Is(field=Field.STATUS):
            return None  # a leased letter is in the index of the status it is stored with
        case Is(field=Field.ERROR, value=value) if "." in value:
            return None  # indexed by its last name
        case Is(field=field, value=value, op=Op.EQ):
            return index(field, value)
        case _:
            return None


async def chosen(server: Server, query: Query, *, sized: bool) -> tuple[Cover | None, int]:
    """The cover with the fewest letters, and how many (0 if nobody wants to know); None: nothing beats looking at all."""
    covers = _covers(query)
    if len(covers) == 1 and not sized and not _is_mixed(covers[0]):
        return covers[0], 0
    sizes = await _sizes(server, covers)
    fitting = [
        (size, number)
        for number, (cover, size) in enumerate(zip(covers, sizes, strict=True))
        if size <= WORTH_SORTING or not _is_mixed(cover)
    ]
    if not fitting:
        return None, 0
    size, number = min(fitting)
    return covers[number], size


def _is_mixed(cover: Cover) -> bool:
    """Must whole indexes be read to put single letters between theirs?"""
    return cover.is_listed and bool(cover.indexes)


def span(query: Query, field: Field) -> Span:
    """Within which instants of this field the letters lie that match."""
    match query:
        case Is(field=known, value=value, op=op) if known is field and isinstance(value, datetime):
            at = micros(value)
            match op:
                case Op.EQ:
                    return Span(first=at, last=at)
                case Op.GE:
                    return Span(first=at)
                case Op.GT:
                    return Span(first=at + 1)
                case Op.LE:
                    return Span(last=at)
                case Op.LT:
                    return Span(last=at - 1)
        case And(parts=parts):
            whole = Span()
            for part in parts:
                narrower = span(part, field)
                firsts = [one for one in (whole.first, narrower.first) if one is not None]
                lasts = [one for one in (whole.last, narrower.last) if one is not None]
                whole = Span(first=max(firsts, default=None), last=min(lasts, default=None))
            return whole
    return Span()


def ends(within: Span) -> tuple[bytes, bytes]:
    """The span as the two ends of a walk."""
    first = b"-" if within.first is None else b"[" + bytes_of_micros(within.first)
    last = b"+" if within.last is None else b"[" + bytes_of_micros(within.last) + b"\xff" * 16
    return first, last


def _covers(query: Query) -> list[Cover]:
    """Every cover there is: any one of them will do."""
    match query:
        case Is(field=Field.ID, value=UUID() as id, op=Op.EQ):
            return [Cover(ids=(id.bytes,))]
        case Is(field=Field.STATUS, value=Status.RETRYING.value, op=Op.EQ):
            return [Cover(has_leased=True)]
        case Is(field=field, value=value, op=Op.EQ):
            suffix = index(field, value)
            return [] if suffix is None else [Cover(indexes=(suffix,))]
        case And(parts=parts):
            return [cover for part in parts for cover in _covers(part)]
        case Or(parts=parts):
            whole = Cover()
            for part in parts:
                covers = _covers(part)
                if not covers:
                    return []
                whole = _both(whole, covers[0])
            return [whole] if len(whole.indexes) <= _MOST_INDEXES else []
        case Not(part=Not(part=part)):
            return _covers(part)
        case _:
            return []


def _both(one: Cover, other: Cover) -> Cover:
    return replace(
        one,
        indexes=tuple(dict.fromkeys((*one.indexes, *other.indexes))),
        ids=tuple(dict.fromkeys((*one.ids, *other.ids))),
        has_leased=one.has_leased or other.has_leased,
    )


async def _sizes(server: Server, covers: list[Cover]) -> list[int]:
    """How many letters each of them has, roughly."""
    sets = [[*cover.indexes, *([ENDS] if cover.has_leased else [])] for cover in covers]
    flat = list(dict.fromkeys(suffix for some in sets for suffix in some))
    totals = dict.fromkeys(flat, 0)
    if flat:
        answers = await all_of(server.run(script("spans"), [shard.key(suffix) for suffix in flat]) for shard in server.shards)
        for answer in answers:
            for suffix, size in zip(flat, answer[::3], strict=True):
                totals[suffix] += size
    return [len(cover.ids) + sum(totals[suffix] for suffix in some) for cover, some in zip(covers, sets, strict=True)]
