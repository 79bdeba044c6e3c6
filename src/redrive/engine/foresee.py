"""Foresee: what a repair would do to letters, and how what becomes of them is counted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import assert_never
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from redrive.engine.alter import Mending
from redrive.engine.verdict import Material, No, Same, Verdict, after_of
from redrive.model.amendment import Amendment
from redrive.model.letter import Letter, Original
from redrive.model.query import Query

_REASONS = 10
_OTHERS = "for other reasons"


class Refusal(Struct, frozen=True, kw_only=True):
    """Why letters are left as they are."""

    reason: str
    number: int
    example: UUID
    """One of them."""
    is_fault: bool = True
    """The repair does not suit them; otherwise they are held, or not open."""


class Repaired(Struct, frozen=True, kw_only=True):
    """What became of the letters that matched; in a plan: what would."""

    matched: int = 0
    done: int = 0
    unchanged: int = 0
    """The repair leaves them as they are."""
    already: int = 0
    """They are as this very repair left them before."""
    changed: int = 0
    """They were reopened, changed or removed by somebody else meanwhile: they were left alone."""
    refusals: tuple[Refusal, ...] = ()

    @property
    def refused(self) -> int:
        return sum(refusal.number for refusal in self.refusals)

    @property
    def seen(self) -> int:
        return self.done + self.unchanged + self.already + self.changed + self.refused


class Sample(Struct, frozen=True, kw_only=True):
    """One letter as it is, with what its content would be."""

    letter: Letter
    before: Original
    after: Original


class RepairPlan(Struct, frozen=True, kw_only=True):
    """What a repair is about to do. Making one changes nothing."""

    mending: Mending
    query: Query | None
    ids: tuple[UUID, ...]
    until: datetime | None
    """When the newest of them was dead-lettered: what died later is not touched."""
    again: bool
    foreseen: Repaired
    samples: tuple[Sample, ...]


Repairing = Callable[[Repaired], None]
"""Hears how far a repair is."""


class Tally:
    """Counts what becomes of letters, and tells whoever listens."""

    def __init__(self, matched: int, progress: Repairing | None) -> None:
        self.repaired = Repaired(matched=matched)
        self._progress = progress

    def count(self, id: UUID, verdict: Verdict) -> None:
        now = self.repaired
        match verdict:
            case Amendment():
                self.repaired = replace(now, done=now.done + 1)
            case Same.UNCHANGED:
                self.repaired = replace(now, unchanged=now.unchanged + 1)
            case Same.ALREADY:
                self.repaired = replace(now, already=now.already + 1)
            case Same.CHANGED:
                self.repaired = replace(now, changed=now.changed + 1)
            case No():
                self.repaired = replace(now, refusals=_with(now.refusals, verdict, id))
            case _:
                assert_never(verdict)

    def tell(self) -> None:
        if self._progress is not None:
            self._progress(self.repaired)


def _with(refusals: tuple[Refusal, ...], no: No, id: UUID) -> tuple[Refusal, ...]:
    """One more refusal; of reasons that are many, only the first are told apart."""
    reason = no.reason
    known = {refusal.reason for refusal in refusals}
    if reason not in known and len(refusals) >= _REASONS:
        reason = _OTHERS
    if reason not in known:
        return (*refusals, Refusal(reason=reason, number=1, example=id, is_fault=no.is_fault))
    return tuple(replace(one, number=one.number + 1) if one.reason == reason else one for one in refusals)


def told(repaired: Repaired) -> str:
    """`1,200 changed, 4 as they were, 2 refused`."""
    parts = [f"{repaired.done:,} changed"]
    parts += [f"{repaired.unchanged + repaired.already:,} as they were"] if repaired.unchanged + repaired.already else []
    parts += [f"{repaired.refused:,} refused"] if repaired.refused else []
    parts += [f"{repaired.changed:,} changed by others meanwhile"] if repaired.changed else []
    return ", ".join(parts)


def sample_of(one: Material, amendment: Amendment) -> Sample:
    """The letter to look at before it is so amended."""
    return Sample(letter=one.letter, before=one.content, after=after_of(one, amendment))
