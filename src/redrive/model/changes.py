"""What a batch changes: put, settle and amend decided item by item over letters that are at hand.

Pure, so that every store decides alike: it brings the letters and their leases, and writes what came of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

from msgspec import Struct, field

from redrive.model.amendment import Amended, Amendment, amended
from redrive.model.arrival import Held, arrive
from redrive.model.letter import Letter
from redrive.model.settlement import Settled, Settlement, settled
from redrive.model.status import Status

Answer = TypeVar("Answer")


class Holding(Struct, frozen=True, gc=False):
    """A letter as it is stored, with the last lease on it."""

    letter: Letter
    token: int = 0
    """0: nobody has claimed it since it was last settled or opened."""
    until: datetime | None = None

    def is_held(self, now: datetime) -> bool:
        return self.until is not None and self.until > now


class Changes(Struct, Generic[Answer], frozen=True):
    """An answer for each item, and the letters that are to be written."""

    answers: list[Answer] = field(default_factory=list)
    letters: dict[UUID, Letter] = field(default_factory=dict)
    reopened: set[UUID] = field(default_factory=set)
    """Those of the letters on which every lease is void."""


def arrivals(known: Mapping[UUID, Letter], letters: Sequence[Letter], now: datetime) -> Changes[Held]:
    """What becomes of letters that arrive one after another; `known` holds those of them that are there already."""
    changes: Changes[Held] = Changes()
    for arriving in letters:
        id = arriving.id
        letter, held = arrive(changes.letters.get(id) or known.get(id), arriving, now)
        if held is not Held.DUPLICATE:
            changes.letters[id] = letter
        if held is Held.REOPENED:
            changes.reopened.add(id)
        changes.answers.append(held)
    return changes


def settlements(holdings: Mapping[UUID, Holding], items: Sequence[Settlement], now: datetime) -> Changes[Settled]:
    """What becomes of letters whose claims end. A lease that is over, another's, or of an older generation ends nothing."""
    changes: Changes[Settled] = Changes()
    for item in items:
        holding = holdings.get(item.id)
        if holding is None:
            changes.answers.append(Settled.MISSING)
        elif (
            item.id in changes.letters
            or holding.token != item.token
            or not holding.is_held(now)
            or holding.letter.generation != item.generation
        ):
            changes.answers.append(Settled.LEASE_LOST)
        else:
            changes.letters[item.id] = settled(holding.letter, item.outcome, now)
            changes.answers.append(Settled.DONE)
    return changes


def amendments(holdings: Mapping[UUID, Holding], items: Sequence[Amendment], now: datetime) -> Changes[Amended]:
    """What becomes of letters that people change. One that somebody holds stays as it is."""
    changes: Changes[Amended] = Changes()
    for item in items:
        holding = holdings.get(item.id)
        if holding is None:
            changes.answers.append(Amended.MISSING)
        elif holding.is_held(now):
            changes.answers.append(Amended.LEASED)
        else:
            letter, answer = amended(changes.letters.get(item.id, holding.letter), item, now)
            if answer is Amended.DONE:
                changes.letters[item.id] = letter
            changes.answers.append(answer)
    return changes


def claimable_at(letter: Letter, holding: Holding | None = None) -> datetime | None:
    """When a letter that nobody holds comes due: at its next retry, not before the lease that ran out on it had ended."""
    at = letter.retry.next_retry_at
    if letter.status is not Status.PENDING or at is None:
        return None
    return at if holding is None or holding.until is None else max(at, holding.until)
