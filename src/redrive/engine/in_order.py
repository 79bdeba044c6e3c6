"""In order: letters of one key go one after the other, and none follows one that failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from uuid import UUID

from redrive.engine.redrive import Ready
from redrive.model.lease import Claimed
from redrive.model.letter import Letter
from redrive.model.operation import Entry, LedgerRow
from redrive.ports.transport import Transport

Addressed = tuple[LedgerRow, Claimed, Transport]
"""A row of the ledger, the claim on its letter, and where that goes."""


class Keys:
    """Remembers the keys that have failed. Where no order is wanted, everything goes at once."""

    def __init__(self, *, is_kept: bool) -> None:
        self._is_kept = is_kept
        self._failed: dict[bytes, UUID] = {}
        self._lost: set[UUID] = set()

    def waves(self, ready: Sequence[Addressed]) -> list[list[Addressed]]:
        """What is sent at once: of each key one at a time."""
        if not self._is_kept:
            return [list(ready)] if ready else []
        waves: list[list[Addressed]] = []
        seen: Counter[bytes] = Counter()
        for one in sorted(ready, key=lambda one: one[0].number):
            key = one[1].letter.key
            place = 0 if key is None else seen[key]
            if key is not None:
                seen[key] += 1
            if place == len(waves):
                waves.append([])
            waves[place].append(one)
        return waves

    def why_not(self, letter: Letter) -> str:
        """Why a letter must stay behind; empty: it need not."""
        if self._lost and letter.id in self._lost:
            return "its claim ran out before its turn came"
        before = self._failed.get(letter.key) if self._failed and letter.key is not None else None
        return "" if before is None else f"it comes after letter {before} of the same key, which failed"

    def hold_back(self, letters: Iterable[Letter]) -> None:
        """These are not ours any more, and nothing of their keys may go before them."""
        for letter in letters:
            self._lost.add(letter.id)
            if letter.key is not None:
                self._failed.setdefault(letter.key, letter.id)

    def note(self, sent: Sequence[Ready], rows: Sequence[LedgerRow]) -> None:
        """Hear what became of letters."""
        if not self._is_kept:
            return
        for (_, one), row in zip(sent, rows, strict=True):
            if row.entry in (Entry.FAILED, Entry.UNKNOWN) and one.letter.key is not None:
                self._failed.setdefault(one.letter.key, one.letter.id)
