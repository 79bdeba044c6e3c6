"""The kit for leases: `claim` and `extend`."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from redrive.model.lane import Lane
from redrive.model.lease import Due
from redrive.model.query import EVERYTHING, Field, Is, Not, Or
from redrive.model.settlement import Completed, Released, Settled
from redrive.model.status import OPEN, Status
from redrive.testing.kit.clerk import Clerk, Kit
from redrive.testing.kit.samples import LANE, OUTCOMES, START, STORED, letter

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_INSTANT = timedelta(microseconds=1)


class Claiming(Kit):
    """One owner at a time, and only while the lease is live."""

    def test_a_claim_gives_the_letter_as_retrying_and_a_lease_on_it(self, store: Clerk) -> None:
        store.put(letter(generation=4, due=START))
        (claimed,) = store.claim(owner="ann", lease=_HOUR)
        assert claimed.letter == replace(letter(generation=4, due=START), status=Status.RETRYING)
        lease = claimed.lease
        assert (lease.id, lease.generation, lease.owner, lease.until) == (letter().id, 4, "ann", START + _HOUR)

    def test_due_letters_come_by_priority_then_by_how_long_they_are_due(self, store: Clerk) -> None:
        dues = [(0, 3), (5, 2), (0, 1), (5, 9), (-1, 99), (2**40, 0), (0, 2)]
        store.put(
            *(letter(f"{priority}/{ago}", priority=priority, due=START - ago * _MINUTE, at=START) for priority, ago in dues)
        )
        expected = [f"{2**40}/0", "5/9", "5/2", "0/3", "0/2", "0/1", "-1/99"]
        first = store.claim(limit=3)
        assert [one.letter.source_id for one in first] == expected[:3]
        assert [one.letter.source_id for one in store.claim(limit=100)] == expected[3:]

    @pytest.mark.parametrize("limit", range(1, 7))
    def test_a_claim_over_several_priorities_takes_no_more_than_its_limit(self, store: Clerk, limit: int) -> None:
        store.put(*(letter(f"{priority}/{number}", priority=priority, due=START) for priority in range(3) for number in range(2)))
        assert len(store.claim(limit=limit)) == limit
        assert len(store.claim()) == 6 - limit

    def test_letters_due_at_the_same_instant_come_by_id(self, store: Clerk) -> None:
        letters = [letter(str(number), due=START) for number in range(9)]
        store.put(*letters)
        assert [one.letter.id for one in store.claim()] == sorted(one.id for one in letters)

    def test_letters_come_by_how_long_they_are_due_whatever_their_priority_when_that_is_asked_for(self, store: Clerk) -> None:
        dues = [(0, 3), (5, 2), (0, 1), (5, 9), (-1, 99), (2**40, 0), (0, 2), (7, -1)]
        store.put(*(letter(f"{priority}/{ago}", priority=priority, due=START - ago * _MINUTE) for priority, ago in dues))
        expected = ["-1/99", "5/9", "0/3", *sorted(["5/2", "0/2"], key=lambda name: letter(name).id), "0/1", f"{2**40}/0"]
        first = store.claim(limit=3, what=Due(LANE, longest=True))
        assert [one.letter.source_id for one in first] == expected[:3]
        assert [one.letter.source_id for one in store.claim(what=Due(LANE, longest=True))] == expected[3:]
        assert store.claim(what=Due(LANE, longest=True)) == []

    def test_a_lane_has_only_its_own_letters(self, store: Clerk) -> None:
        bills, other = Lane("default", "bills"), Lane("other", "orders")
        store.put(*(letter(name, due=START) for name in "ab"), letter(source="bills", due=START))
        store.put(letter(namespace="other", due=START, priority=9), letter(source="ordersx", due=START))
        assert [one.letter.source for one in store.claim(what=Due(bills))] == ["bills"]
        assert [one.letter.namespace for one in store.claim(what=Due(other, longest=True))] == ["other"]
        assert {one.letter.source_id for one in store.claim()} == {"a", "b"}
        assert store.claim() == store.claim(what=Due(Lane("orders", "default"))) == []

    def test_a_letter_is_due_from_its_instant_on_not_before(self, store: Clerk) -> None:
        store.put(letter(due=START + _INSTANT))
        assert store.claim() == []
        store.now += _INSTANT
        assert len(store.claim()) == 1

    def test_a_letter_without_a_next_retry_is_never_due(self, store: Clerk) -> None:
        store.put(letter())
        store.wait(days=10_000)
        assert store.claim() == []

    @pytest.mark.parametrize("status", STORED)
    def test_only_pending_letters_are_due_by_themselves(self, store: Clerk, status: Status) -> None:
        store.put(letter(status=status, due=START))
        assert len(store.claim()) == (status is Status.PENDING)

    @pytest.mark.parametrize("status", STORED)
    def test_only_open_letters_can_be_claimed_by_id_or_question(self, store: Clerk, status: Status) -> None:
        store.put(letter("1", status=status), letter("2", status=status))
        assert len(store.claim(what=(letter("1").id,))) == (status in OPEN)
        assert len(store.claim(what=Is(Field.SOURCE_ID, "2"))) == (status in OPEN)

    def test_letters_of_ids_come_in_the_order_given_and_each_once(self, store: Clerk) -> None:
        store.put(*(letter(name, at=START + ord(name) * _MINUTE) for name in "abcd"), letter("left", status=Status.ARCHIVED))
        wanted = [letter(name).id for name in ("c", "a", "left", "c", "d", "b")]
        claimed = store.claim(what=(wanted[0], UUID(int=0), *wanted[1:]), limit=3)
        assert [one.letter.source_id for one in claimed] == ["c", "a", "d"]
        assert [one.letter.source_id for one in store.claim(what=tuple(wanted))] == ["b"]
        assert store.claim(what=()) == []

    def test_letters_of_a_question_come_oldest_first(self, store: Clerk) -> None:
        for name, hours in (("new", 3), ("old", 1), ("middle", 2)):
            store.put(letter(name, at=START + hours * _HOUR))
        store.put(letter("other", source="bills", at=START))
        claimed = store.claim(what=Not(Is(Field.SOURCE, "bills")), limit=2)
        assert [one.letter.source_id for one in claimed] == ["old", "middle"]
        assert [one.letter.source_id for one in store.claim(what=EVERYTHING)] == ["other", "new"]
        assert store.claim(what=Or()) == []

    def test_a_claim_of_none_takes_none(self, store: Clerk) -> None:
        store.put(letter(due=START))
        assert store.claim(limit=0) == []
        assert store.claim(limit=0, what=(letter().id,)) == []
        assert store.claim(limit=0, what=EVERYTHING) == []
        assert store.one(letter().id).status is Status.PENDING

    def test_nobody_gets_a_letter_that_somebody_holds(self, store: Clerk) -> None:
        store.put(letter(due=START))
        assert len(store.claim(owner="ann", lease=_HOUR)) == 1
        store.now = START + _HOUR - _INSTANT
        for owner in ("ann", "bob"):
            assert store.claim(owner=owner) == []
            assert store.claim(owner=owner, what=(letter().id,)) == []
            assert store.claim(owner=owner, what=EVERYTHING) == []
            assert store.claim(owner=owner, what=Is(Field.STATUS, "retrying")) == []

    @pytest.mark.parametrize("how", ["due", "ids", "query"])
    def test_an_expired_lease_can_be_taken_over(self, store: Clerk, how: str) -> None:
        store.put(letter(due=START))
        stale = store.take(letter().id, owner="ann", lease=_HOUR)
        store.wait(hours=1)
        claims = {
            "due": lambda: store.claim(owner="bob"),
            "ids": lambda: store.claim(owner="bob", what=(letter().id,)),
            "query": lambda: store.claim(owner="bob", what=Is(Field.STATUS, "pending")),
        }
        (claimed,) = claims[how]()
        assert claimed.lease.owner == "bob"
        assert claimed.lease.token > stale.token
        assert store.extend(stale, by=_HOUR) == [None]
        for outcome in OUTCOMES:
            assert store.end(stale, outcome) is Settled.LEASE_LOST
        assert store.one(letter().id).status is Status.RETRYING
        assert store.end(claimed.lease, Completed()) is Settled.DONE

    def test_letters_come_by_how_long_they_could_have_been_claimed(self, store: Clerk) -> None:
        store.put(*(letter(name, due=START + ago * _HOUR) for name, ago in (("let go", -3), ("waits", -1), ("later", 2))))
        store.put(letter("extended", due=START - 9 * _HOUR), letter("given back", due=START - 2 * _HOUR))
        store.take(letter("let go").id, lease=_HOUR)
        store.extend(store.take(letter("extended").id, lease=_HOUR), by=3 * _HOUR)
        store.end(store.take(letter("given back").id, lease=_HOUR), Released())
        store.take(letter("later").id, lease=_HOUR)
        store.wait(hours=4)
        expected = ["given back", "waits", "let go", "later", "extended"]
        assert [one.letter.source_id for one in store.claim()] == expected

    def test_a_letter_claimed_before_it_was_due_is_due_when_its_time_comes(self, store: Clerk) -> None:
        store.put(letter(due=START + _HOUR))
        store.take(letter().id, lease=_MINUTE)
        store.wait(minutes=30)
        assert store.claim() == []
        store.wait(minutes=30)
        assert len(store.claim()) == 1

    def test_tokens_rise_with_every_claim_of_a_letter(self, store: Clerk) -> None:
        tokens = []
        for round in range(12):
            if round == 6:
                store.purge()
            store.put(letter(failed=round, due=START))
            if round % 3 == 2:
                store.put(letter(failed=f"reopen {round}", generation=100 + round, due=START))
            lease = store.take(letter().id, lease=_MINUTE)
            tokens.append(lease.token)
            if round % 2:
                store.end(lease, Released())
            else:
                store.wait(minutes=1)
        assert tokens == sorted(set(tokens))

    def test_tokens_rise_even_when_the_clock_goes_back(self, store: Clerk) -> None:
        store.put(letter())
        first = store.take(letter().id)
        store.end(first, Released())
        store.now -= timedelta(days=1)
        assert store.take(letter().id).token > first.token

    def test_a_lease_is_extended_from_now_on(self, store: Clerk) -> None:
        store.put(letter(due=START))
        lease = store.take(letter().id, lease=_HOUR)
        store.wait(minutes=40)
        (longer,) = store.extend(lease, by=_HOUR)
        assert longer == replace(lease, until=store.now + _HOUR)
        store.wait(minutes=59)
        assert store.claim(owner="bob") == []
        assert store.one(letter().id).status is Status.RETRYING
        assert store.end(lease, Completed()) is Settled.DONE

    def test_an_extended_lease_ends_when_it_says(self, store: Clerk) -> None:
        store.put(letter(due=START))
        lease = store.take(letter().id, lease=_HOUR)
        store.extend(lease, by=2 * _HOUR)
        store.wait(hours=2)
        assert store.end(lease, Completed()) is Settled.LEASE_LOST
        assert len(store.claim(owner="bob")) == 1

    def test_extending_never_shortens(self, store: Clerk) -> None:
        store.put(letter())
        lease = store.take(letter().id, lease=_HOUR)
        assert store.extend(lease, by=_MINUTE) == [lease]
        assert store.extend(lease, by=-_HOUR) == [lease]
        store.wait(minutes=59)
        assert store.one(letter().id).status is Status.RETRYING

    def test_only_a_live_lease_of_ones_own_is_extended(self, store: Clerk) -> None:
        store.put(*(letter(name) for name in "abcde"))
        fine, expires, ends, other = (store.take(letter(name).id, lease=_HOUR) for name in "abcd")
        store.end(ends, Released())
        leases = [
            fine,
            replace(other, token=other.token + 1),
            replace(other, generation=2),
            replace(other, id=letter("e").id),
            replace(other, id=UUID(int=0)),
            ends,
            fine,
        ]
        answers = store.extend(*leases, by=2 * _HOUR)
        longer = replace(fine, until=START + 2 * _HOUR)
        assert answers == [longer, None, None, None, None, None, longer]
        store.wait(hours=1)
        assert store.extend(expires, by=_HOUR) == [None]
        assert store.extend(by=_HOUR) == []
        assert store.one(letter("d").id).status is Status.PENDING

    def test_extending_leaves_the_letter_alone(self, store: Clerk) -> None:
        store.put(letter())
        store.extend(store.take(letter().id), by=_HOUR)
        store.wait(hours=2)
        assert store.one(letter().id) == letter()
