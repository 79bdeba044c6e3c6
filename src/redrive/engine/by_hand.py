"""Retry by hand: one letter that a person wants tried now. A lease keeps it apart from every processor."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from msgspec.structs import replace

from redrive.engine.depend import said, unmet
from redrive.engine.heartbeat import Heartbeat
from redrive.engine.retry import Breakers, Retried, Retrier
from redrive.engine.send import Sender
from redrive.engine.settle import settle
from redrive.model.errors import IllegalTransition, LetterLeased
from redrive.model.lane import lane_of
from redrive.model.lease import Claim, Claimed
from redrive.model.letter import Letter
from redrive.model.settlement import Released, Settlement
from redrive.model.status import Act, Status, ensure_legal
from redrive.ports.letters import LetterStore
from redrive.ports.transport import Transport


class ByHand:
    """Tries one letter at a time through a target."""

    def __init__(self, store: LetterStore, sender: Sender, breakers: Breakers, *, lease: timedelta) -> None:
        self._store = store
        self._sender = sender
        self._breakers = breakers
        self._lease = lease

    async def retried(self, letter: Letter, target: Transport, owner: str) -> Retried:
        """Try a letter, whatever its time, and settle it; raises what is in the way, and then no attempt was spent."""
        if others := (await unmet(self._store, [letter])).get(letter.id):
            raise IllegalTransition(f"letter {letter.id} waits for {said(others)}; retry that first")
        claimed = await self._claimed(letter, owner)
        retrier = Retrier(self._store, self._sender, {lane_of(letter): target}, breakers=self._breakers, interval=timedelta())
        retried = Retried(claimed=claimed, outcome=Released())
        try:
            async with Heartbeat(self._store, [claimed.lease], self._lease):
                (retried,) = await retrier.tried([claimed])
        finally:
            (answer,) = await asyncio.shield(settle(self._store, [Settlement.ending(claimed, retried.outcome)]))
        return replace(retried, answer=answer)

    async def _claimed(self, letter: Letter, owner: str) -> Claimed:
        for claimed in await self._store.claim(Claim(owner=owner, lease=self._lease, what=(letter.id,))):
            return claimed
        if letter.status is not Status.RETRYING:
            ensure_legal(Act.CLAIM, letter.status)
        raise leased(letter)


def leased(letter: Letter) -> LetterLeased:
    return LetterLeased(f"letter {letter.id} is held by somebody; try again when they are done, or when their lease ends")
