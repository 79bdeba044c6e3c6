"""Changing and settling one letter by hand: what is in the way is said in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from redrive import BadSettings, IllegalTransition, LeaseLost, LetterLeased, Status, UnknownLetter, blocking
from redrive.model.amendment import Amendment
from redrive.model.lease import Claim
from redrive.model.settlement import Completed, Released
from redrive.model.status import Act


@pytest.fixture
def dlq(tmp_path: Path) -> Iterator[blocking.DeadLetters]:
    with blocking.open(f"sqlite:{tmp_path}/one.db") as opened:
        yield opened


@pytest.fixture
def id(dlq: blocking.DeadLetters) -> UUID:
    return dlq.capture({"n": 1}, ValueError("bad"), source="orders", id="1").letter.id


def claim(dlq: blocking.DeadLetters, id: UUID, lease: timedelta = timedelta(minutes=1)) -> Claim:
    return Claim(owner="test", lease=lease, what=(id,))


def test_a_letter_is_archived_and_restored(dlq: blocking.DeadLetters, id: UUID) -> None:
    assert dlq.amend(Amendment(id=id, act=Act.ARCHIVE, reason="known")).status is Status.ARCHIVED
    assert dlq.amend(Amendment(id=id, act=Act.RESTORE)).status is Status.PENDING


def test_an_illegal_act_says_from_where_it_is_allowed(dlq: blocking.DeadLetters, id: UUID) -> None:
    with pytest.raises(IllegalTransition, match=r"^cannot restore a letter that is pending; it must be archived, discarded$"):
        dlq.amend(Amendment(id=id, act=Act.RESTORE))
    assert dlq.get(id).status is Status.PENDING


def test_an_act_that_belongs_to_a_claim_is_refused(dlq: blocking.DeadLetters, id: UUID) -> None:
    with pytest.raises(IllegalTransition, match="cannot complete"):
        dlq.amend(Amendment(id=id, act=Act.COMPLETE))
    assert dlq.get(id).status is Status.PENDING


def test_a_whole_letter_is_not_put_in_by_hand(dlq: blocking.DeadLetters, id: UUID) -> None:
    with pytest.raises(BadSettings, match="by a copy or an import"):
        dlq.amend(Amendment(id=id, instead=dlq.get(id)))


def test_a_letter_that_somebody_holds_is_left_to_them(dlq: blocking.DeadLetters, id: UUID) -> None:
    (claimed,) = dlq.letters.claim(claim(dlq, id))
    with pytest.raises(LetterLeased, match="is held by somebody"):
        dlq.amend(Amendment(id=id, act=Act.ARCHIVE))
    dlq.settle(claimed, Released())
    assert dlq.amend(Amendment(id=id, act=Act.ARCHIVE)).status is Status.ARCHIVED


def test_a_letter_that_was_reopened_meanwhile_is_left_alone(dlq: blocking.DeadLetters, id: UUID) -> None:
    with pytest.raises(IllegalTransition, match="reopened meanwhile: it is at generation 1 now"):
        dlq.amend(Amendment(id=id, generation=7, act=Act.ARCHIVE))
    assert dlq.get(id).status is Status.PENDING


def test_a_letter_that_is_not_there_cannot_be_changed(dlq: blocking.DeadLetters) -> None:
    with pytest.raises(UnknownLetter, match="there is no letter 00000000-0000-0000-0000-000000000007"):
        dlq.amend(Amendment(id=UUID(int=7), act=Act.ARCHIVE))


def test_a_second_owner_is_told_that_the_lease_is_lost(dlq: blocking.DeadLetters, id: UUID) -> None:
    (claimed,) = dlq.letters.claim(claim(dlq, id))
    dlq.settle(claimed, Completed())
    with pytest.raises(LeaseLost, match="drop it"):
        dlq.settle(claimed, Released())
    assert dlq.get(id).status is Status.COMPLETED
