"""The kit for the end of claims: `settle`."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from redrive.model.arrival import Held
from redrive.model.lease import Claimed
from redrive.model.letter import HISTORY_LIMIT, Letter, RedriveMark, RetryPlan
from redrive.model.query import Field, Is
from redrive.model.settlement import Completed, Failed, Outcome, Postponed, Redriven, Released, Settled, Settlement, settled
from redrive.model.status import OPEN, Status
from redrive.testing.kit.clerk import Clerk, Kit
from redrive.testing.kit.samples import OPERATION, OUTCOMES, START, attempt, failure, letter

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)


class Settling(Kit):
    """A claim ends once, as its outcome says, and only while its lease is live."""

    @pytest.mark.parametrize("outcome", OUTCOMES)
    @pytest.mark.parametrize("status", sorted(OPEN))
    def test_a_claim_ends_as_its_outcome_says(self, store: Clerk, status: Status, outcome: Outcome) -> None:
        before = letter(
            status=status, due=START, failure=failure("first.Error"), redrive=RedriveMark(count=1, last_at=START - _HOUR)
        )
        store.put(before)
        lease = store.take(before.id)
        store.wait(minutes=1)
        assert store.end(lease, outcome) is Settled.DONE
        expected = settled(before, outcome, store.now)
        assert store.one(before.id) == expected
        _is_found_as(store, expected)

    @pytest.mark.parametrize("outcome", OUTCOMES)
    def test_a_lease_settles_once(self, store: Clerk, outcome: Outcome) -> None:
        store.put(letter("1"), letter("2"))
        one, two = store.take(letter("1").id), store.take(letter("2").id)
        assert store.end(one, outcome) is Settled.DONE
        assert store.end(one, outcome) is Settled.LEASE_LOST
        twice = Settlement.of(two, outcome)
        assert store.settle(twice, twice) == [Settled.DONE, Settled.LEASE_LOST]
        assert store.extend(one, two, by=_HOUR) == [None, None]

    def test_a_completed_letter_is_marked_with_its_operation(self, store: Clerk) -> None:
        store.put(letter())
        store.end(store.take(letter().id), Completed(operation=OPERATION))
        held = store.one(letter().id)
        assert held.status is Status.COMPLETED
        assert held.redrive == RedriveMark(count=1, last_at=START, operation=OPERATION)

    def test_a_lost_answer_is_kept_as_unknown(self, store: Clerk) -> None:
        store.put(letter())
        lost = attempt("lost", outcome_unknown=True)
        store.end(store.take(letter().id), Redriven(unknown=lost))
        held = store.one(letter().id)
        assert held.status is Status.REDRIVEN
        assert held.history[-1] == lost

    def test_a_failed_letter_is_due_again_when_the_outcome_says(self, store: Clerk) -> None:
        store.put(letter(due=START))
        (claimed,) = store.claim()
        store.end(claimed.lease, Failed(attempt=attempt("2"), next_retry_at=START + _HOUR))
        assert store.claim() == []
        store.wait(hours=1)
        assert len(store.claim()) == 1

    def test_a_letter_that_used_up_its_retries_is_exhausted_and_no_longer_due(self, store: Clerk) -> None:
        store.put(letter(retry=RetryPlan(max_retries=2, next_retry_at=START)))
        for number in range(2):
            (claimed,) = store.claim()
            store.end(claimed.lease, Failed(attempt=attempt(f"{number}"), next_retry_at=START))
        held = store.one(letter().id)
        assert (held.status, held.retry.retry_count, held.retry.next_retry_at) == (Status.EXHAUSTED, 2, None)
        store.wait(days=1)
        assert store.claim() == []
        assert len(store.claim(what=(letter().id,))) == 1

    def test_failures_of_retries_are_trimmed_to_the_history_too(self, store: Clerk) -> None:
        full = tuple(attempt(f"try {number}") for number in range(HISTORY_LIMIT))
        store.put(letter(history=full))
        store.end(store.take(letter().id), Failed(attempt=attempt("one more")))
        held = store.one(letter().id)
        assert held.history == (full[0], *full[2:], attempt("one more"))
        assert held.attempts == HISTORY_LIMIT + 1

    def test_a_released_letter_is_due_as_before(self, store: Clerk) -> None:
        store.put(letter("1", due=START - _HOUR), letter("2", due=START - _MINUTE))
        (claimed,) = store.claim(limit=1)
        store.end(claimed.lease, Released())
        assert [one.letter.source_id for one in store.claim()] == ["1", "2"]

    def test_a_postponed_letter_says_what_it_waits_for_and_is_due_then_with_no_attempt_spent(self, store: Clerk) -> None:
        store.put(letter(due=START, retry=RetryPlan(policy="linear", max_retries=3, retry_count=1, next_retry_at=START)))
        (claimed,) = store.claim()
        assert store.end(claimed.lease, Postponed(until=START + _HOUR, why="wf_a")) is Settled.DONE
        (found,) = store.get(letter().id)
        assert found is not None
        assert found.retry == RetryPlan(
            policy="linear", max_retries=3, retry_count=1, next_retry_at=START + _HOUR, waits_for="wf_a"
        )
        assert (found.status, found.attempts) == (Status.PENDING, 1)
        store.wait(minutes=59)
        assert store.claim() == []
        store.wait(minutes=1)
        (again,) = store.claim()
        store.end(again.lease, Failed(attempt=attempt("again")))
        (found,) = store.get(letter().id)
        assert found is not None
        assert found.retry.waits_for == ""

    def test_what_does_not_hold_settles_nothing(self, store: Clerk) -> None:
        store.put(*(letter(name) for name in "abcd"))
        lease = store.take(letter("a").id, lease=_HOUR)
        end = Settlement.of(lease, Completed())
        answers = store.settle(
            replace(end, token=lease.token + 1),
            replace(end, token=lease.token - 1),
            replace(end, token=0),
            replace(end, generation=2),
            replace(end, generation=0),
            replace(end, id=letter("b").id),
            replace(end, id=letter("b").id, token=0),
            replace(end, id=UUID(int=0)),
            end,
        )
        assert answers == [Settled.LEASE_LOST] * 7 + [Settled.MISSING, Settled.DONE]
        assert store.tally(Field.STATUS) == {"completed": 1, "pending": 3}
        assert store.settle() == []

    @pytest.mark.parametrize("outcome", OUTCOMES)
    def test_a_lease_that_ran_out_settles_nothing_even_when_nobody_took_over(self, store: Clerk, outcome: Outcome) -> None:
        store.put(letter(due=START))
        lease = store.take(letter().id, lease=_HOUR)
        store.wait(hours=1)
        assert store.end(lease, outcome) is Settled.LEASE_LOST
        assert store.one(letter().id) == letter(due=START)
        assert len(store.claim()) == 1

    def test_a_late_settle_of_an_older_generation_changes_nothing(self, store: Clerk) -> None:
        store.put(letter())
        lease = store.take(letter().id)
        assert store.put(letter(failed=2, generation=2)) == [Held.REOPENED]
        newer = store.take(letter().id)
        assert store.end(replace(lease, token=newer.token), Completed()) is Settled.LEASE_LOST
        assert store.end(replace(newer, token=lease.token), Completed()) is Settled.LEASE_LOST
        assert store.end(newer, Released()) is Settled.DONE

    def test_several_leases_end_in_one_call_each_in_its_own_way(self, store: Clerk) -> None:
        names = [str(number) for number in range(len(OUTCOMES))]
        store.put(*(letter(name) for name in names))
        leases = [store.take(letter(name).id) for name in names]
        ends = [Settlement.of(lease, outcome) for lease, outcome in zip(leases, OUTCOMES, strict=True)]
        assert store.settle(*ends) == [Settled.DONE] * len(ends)
        for name, outcome in zip(names, OUTCOMES, strict=True):
            assert store.one(letter(name).id) == settled(letter(name), outcome, START)

    @pytest.mark.parametrize("outcome", OUTCOMES)
    def test_it_makes_no_difference_whether_the_claim_is_at_hand_or_only_its_lease(self, store: Clerk, outcome: Outcome) -> None:
        store.put(letter("lease", due=START), letter("claim", due=START))
        by_lease, by_claim = _both(store)
        assert store.settle(Settlement.of(by_lease.lease, outcome)) == [Settled.DONE]
        assert store.settle(Settlement.ending(by_claim, outcome)) == [Settled.DONE]
        assert store.one(by_claim.letter.id) == settled(letter("claim", due=START), outcome, START)
        _are_alike(store)
        assert store.settle(Settlement.ending(by_claim, outcome)) == [Settled.LEASE_LOST]
        _are_alike(store)

    @pytest.mark.parametrize("outcome", OUTCOMES)
    @pytest.mark.parametrize("meanwhile", ["attempt", "reopened", "taken over", "ran out", "nothing, and it ends twice"])
    def test_a_claim_at_hand_undoes_nothing_that_came_meanwhile(self, store: Clerk, meanwhile: str, outcome: Outcome) -> None:
        store.put(*(letter(name, due=START) for name in ("lease", "claim", "other")))
        by_lease, by_claim = _both(store)
        (other,) = store.claim(what=(letter("other").id,))
        ends = 1
        match meanwhile:
            case "attempt":
                assert set(store.put(letter("lease", failed=2), letter("claim", failed=2))) == {Held.ATTEMPT}
            case "reopened":
                again = [letter(name, failed=2, generation=2) for name in ("lease", "claim")]
                assert set(store.put(*again)) == {Held.REOPENED}
            case "taken over":
                store.wait(minutes=5)
                (other,) = store.claim(what=(letter("other").id,))
                assert len(store.claim(owner="bob", what=(letter("lease").id, letter("claim").id))) == 2
            case "ran out":
                store.wait(minutes=5)
                (other,) = store.claim(what=(letter("other").id,))
            case _:
                ends = 2
        first = store.settle(*[Settlement.of(by_lease.lease, outcome)] * ends)
        # In one call with another, whose claim is as it was.
        second = store.settle(*[Settlement.ending(by_claim, outcome)] * ends, Settlement.ending(other, Completed()))
        assert second == [*first, Settled.DONE]
        assert store.one(letter("other").id).status is Status.COMPLETED
        _are_alike(store)


def _both(store: Clerk) -> list[Claimed]:
    return store.claim(what=(letter("lease").id, letter("claim").id))


def _are_alike(store: Clerk) -> None:
    """The two letters differ in nothing but what tells one message from the other."""
    by_lease, by_claim = store.one(letter("lease").id), store.one(letter("claim").id)
    for part in ("status", "generation", "updated_at", "failure", "retry", "redrive", "attempts"):
        assert getattr(by_lease, part) == getattr(by_claim, part)
    assert [one.at for one in by_lease.history] == [one.at for one in by_claim.history]


def _is_found_as(store: Clerk, expected: Letter) -> None:
    """What was changed is also what questions are answered from."""
    assert store.tally(Field.STATUS) == {expected.status.value: 1}
    assert store.count(Is(Field.ATTEMPTS, expected.attempts)) == 1
    assert store.count(Is(Field.UPDATED_AT, expected.updated_at)) == 1
    assert store.count(Is(Field.GROUP, expected.failure.fingerprint)) == 1
    due = expected.retry.next_retry_at
    assert due is None or store.count(Is(Field.NEXT_RETRY_AT, due)) == 1
