"""How the letters stand, and their groups: from a store's counts, of this namespace alone, alike on both faces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace

import redrive
from redrive import Claim, Redaction, Status, UnknownLetter, blocking
from redrive.backends.memory.letters import MemoryLetters
from redrive.engine.statistics import Hour, Rates, Statistics, rates, statistics
from redrive.model.category import Category
from redrive.model.census import Backlog
from redrive.model.query import Field, GroupOrder, Is
from redrive.testing import failure, letter

NOW = datetime(2026, 1, 10, 12, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def dlq() -> Iterator[blocking.DeadLetters]:
    with blocking.open("memory:") as opened:
        yield opened


def filled(dlq: blocking.DeadLetters) -> None:
    """Seven letters: five of this namespace, in three groups."""
    key = failure("builtins.KeyError", "'id'", category=Category.PERMANENT)
    slow = failure("builtins.TimeoutError", "slow", category=Category.NETWORK)
    dlq.hold(
        [
            letter("1", at=NOW - timedelta(minutes=40), failure=slow),
            letter("2", at=NOW - timedelta(minutes=10), failure=slow, status=Status.EXHAUSTED),
            letter("3", at=NOW - 23 * HOUR, failure=slow, source="mails"),
            letter("4", at=NOW - 24 * HOUR, failure=key),
            letter("5", at=NOW, failure=failure("httpx.Timeout", "slow", category=Category.NETWORK), status=Status.COMPLETED),
            letter("6", at=NOW, namespace="other", failure=key),
            letter("7", at=NOW, namespace="other", failure=slow, source="faxes"),
        ]
    )


def test_all_counts_are_of_this_namespace_with_the_most_frequent_first(dlq: blocking.DeadLetters) -> None:
    filled(dlq)
    seen = dlq.statistics(now=NOW)
    assert (seen.namespace, seen.at, seen.total) == ("default", NOW, 5)
    assert list(seen.statuses.items()) == [("pending", 3), ("completed", 1), ("exhausted", 1)]
    assert list(seen.sources.items()) == [("orders", {"pending": 2, "completed": 1, "exhausted": 1}), ("mails", {"pending": 1})]
    assert list(seen.categories.items()) == [("network", 4), ("permanent", 1)]
    assert list(seen.errors.items()) == [("builtins.TimeoutError", 3), ("builtins.KeyError", 1), ("httpx.Timeout", 1)]
    assert seen.backlog == Backlog()


def test_the_last_24_clock_hours_come_without_a_gap(dlq: blocking.DeadLetters) -> None:
    filled(dlq)
    seen = dlq.statistics(now=NOW)
    assert [hour.start for hour in seen.hours] == [NOW.replace(minute=0) - number * HOUR for number in range(23, -1, -1)]
    assert [hour.count for hour in seen.hours] == [1, *[0] * 21, 1, 2]
    assert (seen.this_hour, seen.hour_before) == (2, 1)


def test_an_empty_store_has_every_figure_at_nothing(dlq: blocking.DeadLetters) -> None:
    seen = dlq.statistics()
    assert (seen.total, seen.statuses, seen.sources, seen.categories, seen.errors) == (0, {}, {}, {}, {})
    assert {hour.count for hour in seen.hours} == {0}


def test_a_letter_that_somebody_holds_is_retrying(dlq: blocking.DeadLetters) -> None:
    filled(dlq)
    dlq.letters.claim(Claim(owner="ann", lease=HOUR, what=Is(Field.SOURCE, "mails")), now=NOW)
    assert dlq.statistics(now=NOW).sources["mails"] == {"retrying": 1}


def test_statistics_are_a_plain_value(dlq: blocking.DeadLetters) -> None:
    filled(dlq)
    seen = dlq.statistics(now=NOW)
    assert json.decode(json.encode(seen), type=Statistics) == seen


def test_both_faces_see_the_same() -> None:
    async def asynchronous() -> tuple[Statistics, list[str]]:
        async with redrive.open("memory:") as dlq:
            await dlq.hold([letter("1"), letter("2", failure=failure("x.Y"))])
            return await dlq.statistics(now=NOW), [group.fingerprint async for group in dlq.groups(page=1)]

    with blocking.open("memory:") as dlq:
        dlq.hold([letter("1"), letter("2", failure=failure("x.Y"))])
        assert (dlq.statistics(now=NOW), [group.fingerprint for group in dlq.groups(page=1)]) == asyncio.run(asynchronous())


def test_counts_are_asked_and_no_letter_is_read() -> None:
    class Asked:
        """A store that remembers what it was asked."""

        def __init__(self) -> None:
            self.store, self.verbs = MemoryLetters(), set[str]()

        def __getattr__(self, verb: str) -> Any:
            self.verbs.add(verb)
            return getattr(self.store, verb)

    store = Asked()
    asyncio.run(store.store.put([letter(str(number), source=f"source {number}") for number in range(50)]))
    seen = asyncio.run(statistics(store, "default", now=NOW))
    assert len(seen.sources) == 50
    assert store.verbs == {"tally", "hourly", "tidy"}


def seen_at(second: int, statuses: dict[str, int], sources: dict[str, dict[str, int]]) -> Statistics:
    return Statistics(
        namespace="default",
        at=NOW + timedelta(seconds=second),
        total=sum(statuses.values()),
        statuses=statuses,
        sources=sources,
        categories={},
        errors={},
        hours=(Hour(NOW, 0),),
        this_hour=0,
        hour_before=0,
        backlog=Backlog(),
    )


def test_rates_say_what_came_and_what_went_a_second() -> None:
    before = seen_at(0, {"pending": 10, "exhausted": 4}, {"orders": {"pending": 10}, "mails": {"exhausted": 4}})
    after = seen_at(2, {"pending": 30, "completed": 3}, {"orders": {"pending": 30, "completed": 1}, "new": {"completed": 2}})
    assert rates(before, after, timedelta(seconds=2)) == Rates(
        total=9.5,
        statuses={"pending": 10.0, "completed": 1.5, "exhausted": -2.0},
        sources={"orders": 10.5, "new": 1.0, "mails": -2.0},
    )
    assert rates(after, replace(after, at=NOW), timedelta()).total == 0.0


@pytest.mark.parametrize("page", [1, 2, 100])
@pytest.mark.parametrize(
    ("order", "names"),
    [
        (GroupOrder.LAST_SEEN, ["httpx.Timeout", "builtins.TimeoutError", "builtins.KeyError"]),
        (GroupOrder.COUNT, ["builtins.TimeoutError", "httpx.Timeout", "builtins.KeyError"]),
    ],
)
def test_groups_come_a_page_at_a_time_and_each_once(
    order: GroupOrder, names: list[str], page: int, dlq: blocking.DeadLetters
) -> None:
    filled(dlq)
    assert [group.fingerprint for group in dlq.groups(order=order, page=page)] == names


def test_groups_are_of_the_letters_of_this_namespace_that_match(dlq: blocking.DeadLetters) -> None:
    filled(dlq)
    (group,) = dlq.groups(Is(Field.STATUS, "exhausted"))
    assert (group.fingerprint, group.count) == ("builtins.TimeoutError", 1)
    assert {group.fingerprint: group.count for group in dlq.groups()} == {
        "builtins.TimeoutError": 3,
        "builtins.KeyError": 1,
        "httpx.Timeout": 1,
    }


def test_a_group_is_found_by_the_beginning_of_its_fingerprint(dlq: blocking.DeadLetters) -> None:
    names = ("abc", "abcd", "b")
    dlq.hold([letter(name, failure=failure(fingerprint=name)) for name in names])
    dlq.hold([letter("z", namespace="other", failure=failure(fingerprint="zz"))])
    assert [dlq.group(given).fingerprint for given in ("abc", "abcd", "b")] == ["abc", "abcd", "b"]
    with pytest.raises(UnknownLetter, match="more than one group begins with ab; give more of the fingerprint"):
        dlq.group("ab")
    for given in ("x", "z", "", "abcde", "%"):
        with pytest.raises(UnknownLetter, match="there is no group"):
            dlq.group(given)


def test_a_group_is_shown_by_todays_rules() -> None:
    rules = Redaction(presets=("emails",), key="k")
    with blocking.open("memory:", redact=rules) as dlq:
        dlq.letters.put(
            [letter("1", failure=failure(message="ann@example.com is unknown", fingerprint_reason="by its message: *"))]
        )
        (group,) = dlq.groups()
        shown = dlq.shown_group(group)
    assert "ann@example.com" in group.message
    assert "ann@example.com" not in shown.message
    assert (shown.fingerprint, shown.count, shown.error) == (group.fingerprint, 1, "builtins.TimeoutError")
