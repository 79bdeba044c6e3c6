"""Settle: end claims, and find out by the letter's key what became of those whose answer was lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from redrive.model.errors import AnswerLost
from redrive.model.letter import Letter, occurrences
from redrive.model.settlement import Completed, Failed, Postponed, Redriven, Released, Settled, Settlement
from redrive.model.status import Status
from redrive.ports.letters import LetterStore


async def settle(store: LetterStore, settlements: Sequence[Settlement]) -> list[Settled]:
    """End claims and say what became of each; `AnswerLost` only when the store cannot be asked a second time either."""
    try:
        return await store.settle(settlements)
    except AnswerLost:
        # The token lets each be settled once: what was done before is answered with lease_lost now.
        answers = await store.settle(settlements)
    letters = await store.get([settlement.id for settlement in settlements])
    return [
        Settled.DONE if answer is Settled.LEASE_LOST and _is_seen(settlement, letter) else answer
        for settlement, answer, letter in zip(settlements, answers, letters, strict=True)
    ]


def _is_seen(settlement: Settlement, letter: Letter | None) -> bool:
    """Does the letter show that its claim ended in this way?"""
    if letter is None:
        return False
    match settlement.outcome:
        case Completed(operation=operation):
            is_latest = letter.generation == settlement.generation and letter.status is Status.COMPLETED
            return is_latest and letter.redrive.operation == (operation or letter.redrive.operation)
        case Redriven(operation=operation):
            return operation is not None and letter.redrive.operation == operation
        case Failed(attempt=attempt):
            return attempt.occurrence.bytes in occurrences(letter)
        case Released() | Postponed():
            # Given back or taken over meanwhile: it is not this owner's either way.
            return False
        case _:
            assert_never(settlement.outcome)
