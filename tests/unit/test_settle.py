"""A settlement whose answer was lost is found out by the letter's key."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive import EVERYTHING, AnswerLost, Letter
from redrive.backends.memory.letters import MemoryLetters
from redrive.engine.settle import settle
from redrive.model.lease import Claim, Due, Lease
from redrive.model.settlement import Completed, Failed, Outcome, Redriven, Released, Settled, Settlement
from redrive.ports.inline import drive
from redrive.testing import START, Faulty, Moment, attempt, letter, raising
from redrive.testing.kit.samples import LANE, occurrence

LOST = AnswerLost("the connection broke; it may have been done")
OPERATION = occurrence("operation")
OUTCOMES: list[Outcome] = [
    Completed(),
    Completed(operation=OPERATION),
    Redriven(operation=OPERATION),
    Failed(attempt=attempt("again"), next_retry_at=START),
]


def claimed_store() -> tuple[Faulty, Lease]:
    store = Faulty(MemoryLetters())
    drive(store.put([letter(due=START)]))
    (claimed,) = drive(store.claim(Claim(owner="ann", lease=timedelta(hours=1), what=Due(LANE))))
    return store, claimed.lease


def only(store: Faulty) -> Letter:
    (found,) = drive(store.get([letter().id]))
    assert found is not None
    return found


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("moment", Moment)
def test_a_settlement_whose_answer_was_lost_is_done_once_and_known_to_be(outcome: Outcome, moment: Moment) -> None:
    store, lease = claimed_store()
    store.lay("settle", moment, raising(LOST))
    assert drive(settle(store, [Settlement.of(lease, outcome)])) == [Settled.DONE]
    assert only(store).redrive.count == (0 if isinstance(outcome, Failed) else 1)
    assert only(store).attempts == (2 if isinstance(outcome, Failed) else 1)


@pytest.mark.parametrize("outcome", [*OUTCOMES, Released()])
def test_a_lease_that_another_took_over_is_lost_whatever_became_of_the_answer(outcome: Outcome) -> None:
    store, lease = claimed_store()
    drive(store.settle([Settlement.of(lease, Released())]))
    (taken,) = drive(store.claim(Claim(owner="bob", lease=timedelta(hours=1), what=Due(LANE))))
    store.lay("settle", Moment.AFTER, raising(LOST))
    assert drive(settle(store, [Settlement.of(lease, outcome)])) == [Settled.LEASE_LOST]
    assert drive(store.settle([Settlement.of(taken.lease, Completed())])) == [Settled.DONE]


def test_a_letter_that_is_gone_is_missing() -> None:
    store, lease = claimed_store()
    drive(store.settle([Settlement.of(lease, Completed())]))
    drive(store.purge(limit=1, query=EVERYTHING))
    store.lay("settle", Moment.AFTER, raising(LOST))
    assert drive(settle(store, [Settlement.of(lease, Completed())])) == [Settled.MISSING]


def test_a_store_that_cannot_be_asked_again_leaves_it_unknown() -> None:
    store, lease = claimed_store()
    store.lay("settle", Moment.AFTER, raising(LOST), times=2)
    with pytest.raises(AnswerLost):
        drive(settle(store, [Settlement.of(lease, Completed())]))
