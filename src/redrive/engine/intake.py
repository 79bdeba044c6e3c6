"""Intake: which due letters a processor claims next, and when it is worth looking again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from itertools import count

from redrive.engine.retry import Breakers
from redrive.model.breaker import BreakerState
from redrive.model.lane import Lane
from redrive.model.lease import Claim, Claimed, Due
from redrive.model.pace import Pace
from redrive.ports.letters import LetterStore

log = logging.getLogger("redrive.processor")

_FAIR_TURN = 4
"""Every so manieth claim takes those that have waited longest, whatever their priority: none waits for ever."""
_TRIAL = timedelta(seconds=0.25)
"""How soon to look again whether a half-open breaker's trial is over."""


class Intake:
    """Lanes take turns; one whose breaker is open is left alone, and of one that is half open a single letter is taken."""

    def __init__(self, store: LetterStore, lanes: Sequence[Lane], *, owner: str, pace: Pace, breakers: Breakers) -> None:
        self._store = store
        self._lanes = list(lanes)
        self._owner = owner
        self._pace = pace
        self._breakers = breakers
        self._turns = count()

    async def claimed(self, wanted: int) -> list[Claimed]:
        """Due letters, of each lane its share."""
        turn = next(self._turns)
        first = turn % len(self._lanes)
        lanes = self._lanes[first:] + self._lanes[:first]
        is_fair_turn = turn // len(self._lanes) % _FAIR_TURN == _FAIR_TURN - 1
        found: list[Claimed] = []
        for place, lane in enumerate(lanes):
            share = self._share(lane, -(-(wanted - len(found)) // (len(lanes) - place)))
            if share > 0:
                what = Due(lane, longest=is_fair_turn)
                claim = Claim(owner=self._owner, lease=self._pace.lease, what=what, limit=share)
                try:
                    found += await self._store.claim(claim)
                except Exception:
                    if not found:
                        raise
                    # What was claimed before is worked on; if this is no accident, the next claim meets it too.
                    log.exception("letters of '%s' could not be claimed", lane.source)
                    break
        return found

    def _share(self, lane: Lane, wanted: int) -> int:
        breaker, now = self._breakers.of(lane), self._breakers.clock()
        match breaker.state(now):
            case BreakerState.CLOSED:
                return wanted
            case BreakerState.HALF_OPEN:
                return min(wanted, 1) if breaker.can_pass(now) else 0
            case BreakerState.OPEN:
                return 0

    async def quiet(self) -> None:
        """Return when there may be something to claim."""
        now = self._breakers.clock()
        breakers = {lane: self._breakers.of(lane) for lane in self._lanes}
        passing = [lane for lane, breaker in breakers.items() if breaker.can_pass(now)]
        rests = [breaker.rest_left(now) or _TRIAL for breaker in breakers.values() if not breaker.can_pass(now)]
        patience = min([self._pace.interval, *rests])
        if passing:
            await self._store.wait(passing, patience)
        else:
            await asyncio.sleep(patience.total_seconds())
