"""What is asked of a queue, checked before anything is done: each refusal is one sentence, `<what>; <why>`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from operator import attrgetter

from redrive.model import ksuid
from redrive.model.errors import NoSuchItem, QueueRefused
from redrive.model.item import PRIORITIES, Fresh
from redrive.queues.go_time import written

MOST_ITEMS = 1000
"""In one request to produce, lease, complete or retry."""
_NAME_LENGTH = 512
_REFERENCE_LENGTH = 2000
_MOST = 65536
_SHORTEST = timedelta(milliseconds=10)
_LONGEST = timedelta(minutes=15)
_FOREVER = timedelta(days=3650)
_reference = attrgetter("reference")
_elsewhere = attrgetter("partition", "priority")
_NOWHERE = {(None, 0)}
_LENGTH = {ksuid.LENGTH}


def name(given: str) -> None:
    if not given:
        raise QueueRefused("queue name is invalid; queue name cannot be empty")
    if len(given) > _NAME_LENGTH:
        raise QueueRefused(f"queue name is invalid; cannot be greater than '{_NAME_LENGTH}' characters")
    if any(character.isspace() for character in given):
        raise QueueRefused(f"queue name is invalid; '{given}' cannot contain whitespace")
    if "~" in given:
        raise QueueRefused(f"queue name is invalid; '{given}' cannot contain '~' character")


def timeouts(lease: timedelta | None, expire: timedelta | None) -> tuple[timedelta, timedelta]:
    """Both, and the lease no longer than an item may wait."""
    if lease is None:
        raise QueueRefused("lease timeout is invalid; cannot be empty")
    if expire is None:
        raise QueueRefused("expire timeout is invalid; cannot be empty")
    for what, given in (("lease", lease), ("expire", expire)):
        if given <= timedelta():
            raise QueueRefused(f"{what} timeout is invalid; {written(given)} is not longer than nothing")
        if given > _FOREVER:
            raise QueueRefused(f"{what} timeout is too long; {written(given)} cannot be greater than {written(_FOREVER)}")
    if lease > expire:
        raise QueueRefused(
            f"lease timeout is too long; {written(lease)} cannot be greater than the expire timeout {written(expire)}"
        )
    return lease, expire


def partitions(count: int) -> None:
    if count < 1:
        raise QueueRefused("partitions is invalid; cannot be less than 1")
    if count > _MOST:
        raise QueueRefused(f"partitions is invalid; cannot be greater than {_MOST}")


def max_attempts(count: int) -> None:
    if count < 0:
        raise QueueRefused("max attempts is invalid; cannot be negative number")
    if count > _MOST:
        raise QueueRefused(f"max attempts is invalid; cannot be greater than {_MOST}")


def reference(given: str) -> None:
    if len(given) > _REFERENCE_LENGTH:
        raise QueueRefused(f"reference field is invalid; cannot be greater than '{_REFERENCE_LENGTH}' characters")


def rate(given: float) -> None:
    if not 0 <= given < float("inf"):
        raise QueueRefused(f"rate is invalid; {given:g} is no number of items a second")


def dedupe(given: timedelta) -> None:
    if not timedelta() <= given <= _FOREVER:
        raise QueueRefused(f"dedupe window is invalid; {written(given)} is not between nothing and {written(_FOREVER)}")


def request_timeout(given: timedelta | None, *, is_produce: bool = False) -> timedelta:
    if given is None:
        raise QueueRefused("request timeout is required; '5m' is recommended, 15m is the maximum")
    if given > _LONGEST or (is_produce and given == _LONGEST):
        raise QueueRefused(f"request timeout is invalid; maximum timeout is '15m' but '{written(given)}' was requested")
    if given <= _SHORTEST:
        raise QueueRefused(f"request timeout is invalid; minimum timeout is '10ms' but '{written(given)}' was requested")
    return given


def lease(given: timedelta) -> int:
    """A lease that a caller asks for, in microseconds."""
    if not timedelta() < given <= timedelta(days=1):
        raise QueueRefused(f"lease is invalid; {written(given)} is not between nothing and 24h0m0s")
    return given // timedelta(microseconds=1)


def produced(items: Sequence[Fresh], partitions: int) -> None:
    if not items:
        raise QueueRefused("items cannot be empty; at least one item is required")
    if len(items) > MOST_ITEMS:
        raise QueueRefused(f"items is invalid; max_produce_batch_size is {MOST_ITEMS} but received {len(items)}")
    if max(map(len, map(_reference, items))) > _REFERENCE_LENGTH:
        reference(max(map(_reference, items), key=len))
    for item in items if set(map(_elsewhere, items)) != _NOWHERE else ():
        if item.partition is not None:
            partition(item.partition, partitions)
        if item.priority and not 0 <= item.priority < PRIORITIES:
            raise QueueRefused(f"priority is invalid; {item.priority} is not from 0 to {PRIORITIES - 1}")


def leased(limit: int, client: str) -> None:
    if not client:
        raise QueueRefused("invalid client id; cannot be empty")
    if limit < 1:
        raise QueueRefused("invalid batch size; must be greater than zero")
    if limit > MOST_ITEMS:
        raise QueueRefused(f"invalid batch size; max_lease_batch_size is {MOST_ITEMS}, but {limit} was requested")


def ids(given: Sequence[str], what: str) -> None:
    """The ids of a request to `what`, e.g. complete, items."""
    if not given:
        raise QueueRefused("ids is invalid; list of ids cannot be empty")
    if len(given) > MOST_ITEMS:
        raise QueueRefused(f"ids is invalid; max_{what}_batch_size is {MOST_ITEMS} but received {len(given)}")
    each_id(given)


def each_id(given: Sequence[str]) -> None:
    joined = "".join(given)
    if set(map(len, given)) == _LENGTH and joined.isalnum() and joined.isascii() and max(given) <= ksuid.HIGHEST:
        return
    for id in given:
        if wrong := ksuid.what_is_wrong(id):
            raise NoSuchItem(id, f"invalid storage id; '{id}': {wrong}")


def partition(number: int, count: int) -> None:
    if not 0 <= number < count:
        raise QueueRefused(f"partition is invalid; '{number}' is not a valid partition")


def page(pivot: str, limit: int) -> int:
    """How many to list; 0 means what is usual."""
    if limit < 0:
        raise QueueRefused("limit is invalid; limit cannot be negative")
    if limit > _MOST:
        raise QueueRefused(f"limit is invalid; cannot be greater than {_MOST}")
    if "~" in pivot:
        raise QueueRefused(f"pivot is invalid; '{pivot}' cannot contain '~' character")
    return limit or 1000
