"""How many kills each test owes. Every case asserts its own share; one test asserts that they add up to enough."""

from __future__ import annotations

from msgspec import Struct

from redrive.testing.kill.journal import JOURNAL_POINTS
from redrive.testing.kill.points import POINTS
from redrive.testing.kit.samples import is_chaos


class Share(Struct, frozen=True):
    """So many cases, of so many kills each."""

    cases: int
    kills: int

    @property
    def total(self) -> int:
        return self.cases * self.kills


EVERY_POINT = Share(2 * len(POINTS), 1)
"""At least: under `REDRIVE_CHAOS` every visit of every point is one."""
OWN_CLOCK = Share(4, 1)
IN_A_ROW = Share(20, 50) if is_chaos() else Share(2, 6)
AT_RANDOM = Share(20, 50) if is_chaos() else Share(2, 6)
JOURNAL = Share(len(JOURNAL_POINTS), 1)
JOURNAL_AT_RANDOM = Share(4, 50) if is_chaos() else Share(1, 6)

OWED = 2000 if is_chaos() else 50
ALL = (EVERY_POINT, OWN_CLOCK, IN_A_ROW, AT_RANDOM, JOURNAL, JOURNAL_AT_RANDOM)
