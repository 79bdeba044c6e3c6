"""The kit for counts: by hour, by group, and those that a store keeps."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from redrive.model.amendment import Amendment
from redrive.model.errors import BadCursor, Unsupported
from redrive.model.hours import SHOWN
from redrive.model.query import EVERYTHING, And, Field, GroupOrder, Is, Not, Or
from redrive.model.settlement import Completed, Failed
from redrive.model.status import Act, Status
from redrive.testing.kit.clerk import Clerk, Kit, needs
from redrive.testing.kit.samples import START, attempt, failure, letter

_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)


def _spread(store: Clerk, hours: dict[str, list[int]]) -> None:
    """For each group, letters so many hours before now."""
    for group, agos in hours.items():
        store.put(
            *(
                letter(f"{group}/{number}", at=store.now - ago * _HOUR, failure=failure(fingerprint=group))
                for number, ago in enumerate(agos)
            )
        )


class Counting(Kit):
    """Counts are those of the letters that are there, whatever became of others."""

    def test_hours_are_those_of_the_clock(self, store: Clerk) -> None:
        ends = [START, START + _HOUR - timedelta(microseconds=1), START + _HOUR, START + 5 * _HOUR, START - 3 * _HOUR]
        store.put(*(letter(str(number), at=at) for number, at in enumerate(ends)))
        all_hours = {START - 3 * _HOUR: 1, START: 2, START + _HOUR: 1, START + 5 * _HOUR: 1}
        assert store.hourly(START - 9 * _HOUR, START + 9 * _HOUR) == all_hours
        assert store.hourly(START + 59 * _MINUTE, START + _HOUR) == {START: 2, START + _HOUR: 1}
        assert store.hourly(START + _HOUR, START) == {}

    def test_hours_before_1970_are_hours_too(self, store: Clerk) -> None:
        moon = datetime.fromisoformat("1969-07-20T20:17:40.000001+00:00")
        store.put(letter("a", at=moon), letter("b", at=moon.replace(minute=0, second=0, microsecond=0)))
        assert store.hourly(moon, moon) == {moon.replace(minute=0, second=0, microsecond=0): 2}

    def test_hours_keep_to_the_question(self, store: Clerk) -> None:
        store.put(letter("a"), letter("b", source="bills"), letter("c", status=Status.EXHAUSTED), letter("d", namespace="other"))
        store.claim(what=(letter("a").id,), lease=_HOUR)

        def counted(*parts: Is) -> int:
            return sum(store.hourly(START, START, And(parts)).values())

        assert counted() == 4
        assert counted(Is(Field.SOURCE, "bills")) == 1
        assert counted(Is(Field.NAMESPACE, "default")) == 3
        assert counted(Is(Field.STATUS, "pending")) == 2
        assert counted(Is(Field.STATUS, "retrying")) == 1
        assert counted(Is(Field.STATUS, "exhausted"), Is(Field.NAMESPACE, "default")) == 1
        assert sum(store.hourly(START, START, Not(Is(Field.SOURCE, "orders"))).values()) == 1

    def test_of_one_of_several_values_all_are_counted_and_none_twice(self, store: Clerk) -> None:
        store.put(
            letter("a"),
            letter("b", source="bills"),
            letter("c", status=Status.EXHAUSTED, failure=failure(fingerprint="other")),
            letter("d", source="mail", status=Status.EXHAUSTED, at=START - _HOUR),
            letter("e", source="mail", status=Status.ARCHIVED, namespace="other"),
        )
        store.claim(what=(letter("a").id,), lease=_HOUR)
        statuses = Or((Is(Field.STATUS, "pending"), Is(Field.STATUS, "exhausted"), Is(Field.STATUS, "pending")))
        seen = Or((Is(Field.STATUS, "retrying"), Is(Field.STATUS, "archived")))
        sources = Or((Is(Field.SOURCE, "orders"), Is(Field.SOURCE, "mail")))
        for _ in range(2):
            assert store.count(statuses) == 3
            assert store.count(seen) == 2
            assert store.count(sources) == 4
            assert store.count(And((statuses, sources))) == 2
            assert store.count(And((Is(Field.STATUS, "pending"), seen))) == 0
            assert store.count(And((seen, Is(Field.NAMESPACE, "default")))) == 1
            assert store.tally(Field.STATUS, statuses) == {"pending": 1, "exhausted": 2}
            assert store.tally(Field.SOURCE, sources) == {"orders": 2, "mail": 2}
            assert store.tally(Field.STATUS, sources) == {"retrying": 1, "exhausted": 2, "archived": 1}
            assert store.tally(Field.NAMESPACE, seen) == {"default": 1, "other": 1}
            assert store.tally(Field.GROUP, And((statuses, sources))).get("other") == 1
            assert store.hourly(START - _HOUR, START, statuses) == {START - _HOUR: 1, START: 2}
            assert store.hourly(START - _HOUR, START, sources) == {START - _HOUR: 1, START: 3}
            groups = Or((Is(Field.GROUP, "other"), Is(Field.GROUP, failure().fingerprint)))
            assert store.hourly(START - _HOUR, START, groups) == {START - _HOUR: 1, START: 4}
            store.tidy_all()

    def test_a_group_tells_what_became_of_its_letters(self, store: Clerk) -> None:
        needs(store, "groups")
        store.put(*(letter(str(number), due=START) for number in range(5)), letter("5"))
        for claimed in store.claim(limit=2, lease=_HOUR):
            store.end(claimed.lease, Completed())
        store.claim(limit=1, lease=_HOUR)
        store.amend(Amendment(id=letter("5").id, act=Act.ARCHIVE))
        (group,) = store.groups().groups
        assert (group.count, group.statuses) == (6, {"completed": 2, "retrying": 1, "pending": 2, "archived": 1})
        # The same, looked for in the letters.
        among = Or((Is(Field.SOURCE_ID, "5"), *(Is(Field.STATUS, status) for status in ("retrying", "pending", "completed"))))
        assert store.groups(among).groups == (group,)
        (held,) = store.groups(Is(Field.STATUS, "retrying")).groups
        assert (held.count, held.statuses) == (1, {"retrying": 1})
        store.wait(hours=2)
        (group,) = store.groups().groups
        assert group.statuses == {"completed": 2, "pending": 3, "archived": 1}

    @pytest.mark.parametrize("message", ["", "no answer\0 from \1 stock: ключ", "long " * 2000], ids=["none", "odd", "long"])
    def test_a_group_tells_all_that_its_latest_letter_failed_with(self, store: Clerk, message: str) -> None:
        needs(store, "groups")
        first, second = failure(message=message), failure("x.Other", f"then {message}", fingerprint=failure().fingerprint)
        store.put(letter(due=START, failure=first))
        for is_first in (True, False):
            for query in (EVERYTHING, Is(Field.SOURCE, "orders")):
                (group,) = store.groups(query).groups
                now = first if is_first else second
                assert (group.error, group.message, group.category) == (now.type, now.message, now.category)
            for claimed in store.claim():
                store.end(claimed.lease, Failed(attempt=attempt("again"), failure=second))

    def test_a_group_tells_when_its_letters_came(self, store: Clerk) -> None:
        needs(store, "groups")
        store.wait(minutes=30)
        _spread(store, {"a": [0, 0, 1, SHOWN - 1, SHOWN, 1000]})
        (group,) = store.groups().groups
        assert group.count == 6
        assert group.hours == (1, *[0] * (SHOWN - 3), 1, 2)
        store.wait(hours=1)
        assert store.groups().groups[0].hours == (*[0] * (SHOWN - 3), 1, 2, 0)

    def test_a_group_tells_of_hours_long_before_its_latest(self, store: Clerk) -> None:
        needs(store, "groups")
        _spread(store, {"a": [0, 1, 1, 3, -60], "b": [0, 2, 2, 2], "c": [-60]})

        def told(order: GroupOrder) -> list[tuple[str, tuple[int, ...]]]:
            return [(group.fingerprint, group.hours[-4:]) for group in store.groups(order=order).groups]

        grown = [("a", (1, 0, 2, 1)), ("c", (0, 0, 0, 0)), ("b", (0, 3, 0, 1))]
        assert told(GroupOrder.GROWTH) == grown
        store.tidy_all()
        assert told(GroupOrder.GROWTH) == grown
        # Some of it is summed up then, and some is noted.
        store.put(letter("one more", at=store.now, failure=failure(fingerprint="a")))
        store.purge(Is(Field.ID, letter("b/1").id))
        changed = [("a", (1, 0, 2, 2)), ("c", (0, 0, 0, 0)), ("b", (0, 2, 0, 1))]
        assert told(GroupOrder.GROWTH) == changed
        assert sorted(told(GroupOrder.COUNT)) == sorted(changed)

    @pytest.mark.parametrize("limit", [1, 2, 7])
    @pytest.mark.parametrize(
        ("order", "expected"),
        [
            (GroupOrder.LAST_SEEN, ["steady", "new", "swells", "fades", "many"]),
            (GroupOrder.COUNT, ["many", "steady", "fades", "swells", "new"]),
            # Four more than in the two hours before, one more, as many, as many, four fewer.
            (GroupOrder.GROWTH, ["swells", "new", "steady", "many", "fades"]),
        ],
    )
    def test_groups_are_listed_in_every_order(self, store: Clerk, order: GroupOrder, expected: list[str], limit: int) -> None:
        needs(store, "groups")
        hours = {"new": [0], "swells": [1] * 4, "fades": [2, 2, 3, 3, 9], "many": [9] * 9, "steady": [0, 1, 2, 3, 9, 9]}
        _spread(store, hours)
        assert [group.fingerprint for group in store.all_groups(order=order, limit=limit)] == expected

    @pytest.mark.parametrize("limit", [1, 2, 7])
    @pytest.mark.parametrize(
        ("order", "expected"),
        [(GroupOrder.LAST_SEEN, ["top", "mid", "still"])]
        + [(order, ["mid", "top", "still"]) for order in (GroupOrder.COUNT, GroupOrder.GROWTH)],
    )
    def test_groups_that_shrank_just_now_take_nobodys_place(
        self, store: Clerk, order: GroupOrder, expected: list[str], limit: int
    ) -> None:
        needs(store, "groups")
        ranks = {"top": [0] * 6, "mid": [0] * 3, "still": [99]}
        _spread(store, {f"{name} {number}": hours for number in range(3) for name, hours in ranks.items()})
        store.tidy_all()
        for number in range(3):
            store.purge(Is(Field.GROUP, f"top {number}"), limit=5)
        names = [f"{name} {number}" for name in expected for number in (2, 1, 0)]
        assert [group.fingerprint for group in store.all_groups(order=order, limit=limit)] == names

    @pytest.mark.parametrize("order", list(GroupOrder))
    def test_a_group_that_stays_is_seen_once_whatever_arrives_or_leaves(self, store: Clerk, order: GroupOrder) -> None:
        needs(store, "groups")
        _spread(store, {f"stays {number}": [number] * (number + 1) for number in range(6)})
        _spread(store, {f"leaves {number}": [number] * (number + 1) for number in range(6)})
        seen: list[str] = []
        page = store.groups(order=order, limit=2)
        for number in range(20):
            seen += [group.fingerprint for group in page.groups]
            if page.next is None:
                break
            store.purge(Is(Field.GROUP, f"leaves {number}"))
            store.purge(Is(Field.GROUP, f"leaves {5 - number}"))
            _spread(store, {f"comes {number}": [number]})
            store.wait(minutes=20)
            page = store.groups(order=order, limit=2, after=page.next)
        assert page.next is None
        assert len(seen) == len(set(seen))
        assert set(seen) >= {f"stays {number}" for number in range(6)}

    @pytest.mark.parametrize("is_summed", [True, False])
    @pytest.mark.parametrize("order", list(GroupOrder))
    def test_one_group_alone_is_told_as_the_list_tells_it(self, store: Clerk, order: GroupOrder, is_summed: bool) -> None:
        needs(store, "groups")
        _spread(store, {"a": [0, 1, 1, 3, 60], "b": [0, 2, 2, 2], "c": [60]})
        store.put(letter("elsewhere", namespace="blue", at=store.now, failure=failure(fingerprint="a")))
        if is_summed:
            store.tidy_all()
        store.claim(limit=1)
        store.purge(Is(Field.ID, letter("b/1").id))
        for within in (EVERYTHING, Is(Field.NAMESPACE, "default"), Is(Field.NAMESPACE, "blue")):
            known = {group.fingerprint: group for group in store.groups(within, order=order).groups}
            for name in ("a", "b", "c", "nobody"):
                page = store.groups(And((within, Is(Field.GROUP, name))), order=order, limit=1)
                assert page.next is None
                assert page.groups == ((known[name],) if name in known else ())

    def test_a_cursor_of_another_listing_of_groups_is_refused(self, store: Clerk) -> None:
        needs(store, "groups")
        _spread(store, {"a": [0], "b": [0]})
        for order in GroupOrder:
            after = store.groups(order=order, limit=1).next
            assert after is not None
            for other in set(GroupOrder) - {order}:
                with pytest.raises(BadCursor):
                    store.groups(order=other, after=after)
            with pytest.raises(BadCursor):
                store.find(after=after)

    def test_a_group_ends_with_its_last_letter(self, store: Clerk) -> None:
        needs(store, "groups")
        _spread(store, {"a": [0, 1, 2], "b": [0]})
        store.purge(Is(Field.SOURCE_ID, "a/0"))
        group = store.groups(Is(Field.GROUP, "a")).groups[0]
        assert (group.count, group.last_seen, group.first_seen) == (2, START - _HOUR, START - 2 * _HOUR)
        assert store.all_groups()[1] == group
        store.purge(Is(Field.GROUP, "a"))
        assert [one.fingerprint for one in store.all_groups()] == ["b"]
        assert store.tally(Field.GROUP) == {"b": 1}

    def test_one_group_may_lie_in_several_namespaces(self, store: Clerk) -> None:
        needs(store, "groups")
        store.put(letter("a", at=START - _HOUR), letter("a", namespace="other", at=START), letter("b", namespace="other"))
        (both,) = store.groups().groups
        assert (both.count, both.first_seen, both.last_seen) == (3, START - _HOUR, START)
        store.tidy_all()
        assert store.groups().groups == (both,)
        assert both.hours[-2:] == (1, 2)
        (one,) = store.groups(Is(Field.NAMESPACE, "default")).groups
        assert (one.count, one.last_seen) == (1, START - _HOUR)
        assert store.tally(Field.NAMESPACE) == {"default": 1, "other": 2}

    def test_what_is_put_off_changes_no_count(self, store: Clerk) -> None:
        store.put(*(letter(str(number), at=START - number * _HOUR) for number in range(5)))
        before = store.tally(Field.STATUS), store.hourly(START - 9 * _HOUR, START)
        store.tidy_all()
        assert (store.tally(Field.STATUS), store.hourly(START - 9 * _HOUR, START)) == before
        assert not store.tidy(0)

    def test_counts_can_be_proven_or_it_is_said_that_there_are_none(self, store: Clerk) -> None:
        if not store.capabilities.counters:
            with pytest.raises(Unsupported):
                store.recount()
            return
        assert store.recount() == []
        store.put(*(letter(str(number), due=START, failure=failure(fingerprint=str(number % 3))) for number in range(9)))
        taken = store.claim(limit=3)
        store.end(taken[0].lease, Completed())
        store.end(taken[1].lease, Failed(attempt=attempt("again"), failure=failure("OSError", "otherwise")))
        store.put(letter("1", failed=2, failure=failure("OSError", "once more")))
        store.purge(Is(Field.GROUP, "0"), limit=2)
        store.amend(Amendment(id=letter("8").id, act=Act.DISCARD, reason="of no use"))
        assert store.recount() == []
        store.tidy_all()
        assert store.recount() == store.recount(repair=True) == []
        assert store.count(EVERYTHING) == len(store.all())
