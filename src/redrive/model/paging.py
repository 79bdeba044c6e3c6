"""Pages: what a store found, cut to what was asked for, and where to go on. The same on every backend."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from redrive.model.cursor import cursor, key_of
from redrive.model.errors import BadCursor
from redrive.model.instant import micros
from redrive.model.letter import Letter
from redrive.model.query import Group, GroupPage, Order, Page

_GROUPS = "groups"


def listed_by(order: Order) -> str:
    """The field of a letter that a listing goes by."""
    return "updated_at" if order is Order.UPDATED else "dead_lettered_at"


def is_newest_first(order: Order) -> bool:
    return order is not Order.OLDEST


def page(found: Sequence[Letter], limit: int, order: Order) -> Page:
    """The page of letters that were found in this order; a store looks for one more than the limit."""
    letters = tuple(found[:limit])
    if not letters or len(found) <= limit:
        return Page(letters=letters)
    return Page(letters=letters, next=cursor((order, micros(getattr(letters[-1], listed_by(order))), letters[-1].id.bytes)))


def last_letter(after: str | None, order: Order) -> tuple[int, UUID] | None:
    """The instant and the id of the last letter of the page before; `BadCursor` when it is none of this listing's."""
    if (key := key_of(after, order)) is None:
        return None
    try:
        return key[0], UUID(bytes=key[1])
    except ValueError as error:
        raise BadCursor("this cursor is damaged; start again from the first page") from error


def group(latest: Letter, count: int, first_seen: datetime) -> Group:
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
    )


def group_page(found: Sequence[Group], limit: int) -> GroupPage:
    """The page of groups that were found, the last seen first; a store looks for one more than the limit."""
    groups = tuple(found[:limit])
    if not groups or len(found) <= limit:
        return GroupPage(groups=groups)
    return GroupPage(groups=groups, next=cursor((_GROUPS, micros(groups[-1].last_seen), groups[-1].fingerprint.encode())))


def last_group(after: str | None) -> tuple[int, str] | None:
    """When the last group of the page before was last seen, and its fingerprint."""
    if (key := key_of(after, _GROUPS)) is None:
        return None
    try:
        return key[0], key[1].decode()
    except UnicodeDecodeError as error:
        raise BadCursor("this cursor is damaged; start again from the first page") from error
