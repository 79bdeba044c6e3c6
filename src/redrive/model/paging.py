"""Pages: what a store found, cut to what was asked for, and where to go on. The same on every backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from redrive.model.cursor import cursor, key_of
from redrive.model.errors import BadCursor
from redrive.model.hours import SHOWN, hour_of, start_of
from redrive.model.instant import micros
from redrive.model.letter import Letter
from redrive.model.query import Group, GroupOrder, GroupPage, Order, Page
from redrive.model.stored import Headline

_LISTING = {order: f"groups by {order}" for order in GroupOrder}


def listed_by(order: Order) -> str:
    """The field of a letter that a listing goes by; the nearest are listed by their distance before it."""
    return "updated_at" if order is Order.UPDATED else "dead_lettered_at"


def is_newest_first(order: Order) -> bool:
    return order is not Order.OLDEST


def page(
    found: Sequence[Letter], limit: int, order: Order, *, far: Callable[[Letter], int] | None = None, unsearched: int = 0
) -> Page:
    """The page of letters that were found in this order; a store looks for one more than the limit. Of a listing of the nearest it has to tell how
    `far` a letter is by what it searched, for the letter itself may say more."""
    letters = tuple(found[:limit])
    if not letters or len(found) <= limit:
        return Page(letters=letters, unsearched=unsearched)
    last = letters[-1]
    at = micros(getattr(last, listed_by(order)))
    if far is not None:
        where = cursor((order, far(last), at.to_bytes(8, signed=True) + last.id.bytes))
    else:
        where = cursor((order, at, last.id.bytes))
    return Page(letters=letters, next=where, unsearched=unsearched)


def last_letter(after: str | None, order: Order) -> tuple[int, UUID] | None:
    """The instant and the id of the last letter of the page before; `BadCursor` when it is none of this listing's."""
    if (key := key_of(after, order)) is None:
        return None
    return key[0], _id(key[1])


def last_nearest(after: str | None) -> tuple[int, int, UUID] | None:
    """The distance, the instant and the id of the last letter of the page before, in a listing of the nearest."""
    if (key := key_of(after, Order.NEAREST)) is None:
        return None
    return key[0], int.from_bytes(key[1][:8], signed=True), _id(key[1][8:])


def _id(raw: bytes) -> UUID:
    try:
        return UUID(bytes=raw)
    except ValueError as error:
        raise BadCursor("this cursor is damaged; start again from the first page") from error


def group(
    latest: Letter | Headline, count: int, first_seen: datetime, statuses: Mapping[str, int], hours: Sequence[int]
) -> Group:
    """The group of letters whose latest is this one."""
    failure = latest.failure
    return Group(
        fingerprint=failure.fingerprint,
        error=failure.type,
        message=failure.message,
        category=failure.category,
        count=count,
        first_seen=first_seen,
        last_seen=latest.dead_lettered_at,
        statuses={status: number for status, number in statuses.items() if number},
        hours=tuple(hours),
    )


class LastGroup(NamedTuple):
    """Where a listing of groups goes on."""

    value: int
    """What the last group of the page before is listed by: when it was last seen in microseconds, its count or its growth."""
    fingerprint: str
    hour: int
    """The last hour of the listing, which all its pages share, so that nothing grows while they are turned."""


def listed_at(group: Group, order: GroupOrder) -> int:
    """What a group is listed by."""
    match order:
        case GroupOrder.LAST_SEEN:
            return micros(group.last_seen)
        case GroupOrder.COUNT:
            return group.count
        case GroupOrder.GROWTH:
            return group.growth


def group_page(found: Sequence[Group], limit: int, order: GroupOrder, hour: int) -> GroupPage:
    """The page of groups that were found in this order; a store looks for one more than the limit."""
    groups = tuple(found[:limit])
    if not groups or len(found) <= limit:
        return GroupPage(groups=groups)
    last = groups[-1]
    where = hour.to_bytes(8, signed=True) + last.fingerprint.encode("utf-8", "surrogatepass")
    return GroupPage(groups=groups, next=cursor((_LISTING[order], listed_at(last, order), where)))


def last_group(after: str | None, order: GroupOrder) -> LastGroup | None:
    """Where the listing goes on; `BadCursor` when the cursor is none of this listing's."""
    if (key := key_of(after, _LISTING[order])) is None:
        return None
    try:
        last = LastGroup(key[0], key[1][8:].decode("utf-8", "surrogatepass"), int.from_bytes(key[1][:8], signed=True))
        start_of(last.hour - SHOWN), start_of(last.hour + 1)
    except (UnicodeDecodeError, OverflowError) as error:
        raise BadCursor("this cursor is damaged; start again from the first page") from error
    return last


def last_hour(last: LastGroup | None, now: datetime) -> int:
    """The last hour that a listing of groups shows: that of its first page."""
    return hour_of(now) if last is None else last.hour
