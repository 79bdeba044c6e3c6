"""Retry: try letters that are held under leases, and say how each claim ends. Nothing is tried in vain."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from redrive.engine.depend import said, unmet
from redrive.engine.send import Sender, ending, later
from redrive.model.backoff import is_named
from redrive.model.breaker import DENIED, Breaker, BreakerState
from redrive.model.lane import Lane, lane_of
from redrive.model.lease import Claimed
from redrive.model.letter import Failure, Letter
from redrive.model.operation import Delivered, Delivery, Refused
from redrive.model.settlement import Failed, Outcome, Postponed, Released, Settled, settled
from redrive.model.status import Status
from redrive.ports.letters import LetterStore
from redrive.ports.transport import Transport

log = logging.getLogger("redrive.processor")


class Retried(Struct, frozen=True, kw_only=True):
    """One letter that was claimed to be retried, and what became of it."""

    claimed: Claimed
    outcome: Outcome
    delivery: Delivery | None = None
    """The target's answer; None: it was not tried."""
    answer: Settled | None = None
    """What the store said to the outcome; None: nothing yet."""

    @property
    def letter(self) -> Letter:
        """The letter as it was when it was claimed."""
        return self.claimed.letter

    @property
    def has_worked(self) -> bool:
        return isinstance(self.delivery, Delivered)

    @property
    def has_failed(self) -> bool:
        return isinstance(self.outcome, Failed)

    @property
    def is_exhausted(self) -> bool:
        """Was this its last automatic retry? One that a person tries after that was exhausted before."""
        plan = self.letter.retry
        was_used_up = plan.max_retries is not None and plan.retry_count >= plan.max_retries
        return self.has_failed and not was_used_up and self.letter_after.status is Status.EXHAUSTED

    @property
    def letter_after(self) -> Letter:
        """The letter as its outcome leaves it."""
        return settled(self.letter, self.outcome, self.letter.updated_at)


class Breakers:
    """A breaker for each lane, made when it is first needed. They belong to this process."""

    def __init__(self, make: Callable[[], Breaker] = Breaker, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._by_lane: dict[Lane, Breaker] = {}
        self.clock = clock

    def of(self, lane: Lane) -> Breaker:
        if lane not in self._by_lane:
            self._by_lane[lane] = self._make()
        return self._by_lane[lane]

    def state(self, lane: Lane) -> BreakerState | None:
        """How the breaker of a lane stands; None: this process has never used it, and none is made for the question."""
        breaker = self._by_lane.get(lane)
        return None if breaker is None else breaker.state(self.clock())


def released(claimed: Iterable[Claimed]) -> list[Retried]:
    """Claims that are given back as they were."""
    return [Retried(claimed=one, outcome=Released()) for one in claimed]


class Retrier:
    """Tries letters through the transports of their lanes."""

    def __init__(
        self,
        store: LetterStore,
        sender: Sender,
        targets: Mapping[Lane, Transport],
        *,
        breakers: Breakers,
        interval: timedelta,
    ) -> None:
        """A letter that is to be tried again at once, or that waits for another, comes back after the interval."""
        self._store = store
        self._sender = sender
        self._targets = targets
        self._breakers = breakers
        self._interval = interval
        self._skew = timedelta()

    def set_clock(self, now: datetime) -> None:
        """This is what the store's clock says; by it letters come due. The host's may be off."""
        self._skew = now - datetime.now(UTC)

    def now(self) -> datetime:
        """The store's time, as far as it is known."""
        return datetime.now(UTC) + self._skew

    async def hopeless(self, claimed: Sequence[Claimed]) -> list[Retried]:
        """Those that need not be tried now: they wait for others, nobody here knows their retry policy, or they go elsewhere."""
        waiting = await unmet(self._store, [one.letter for one in claimed])
        answers = []
        for one in claimed:
            policy = one.letter.retry.policy
            if (others := waiting.get(one.letter.id)) is not None:
                answers.append(Retried(claimed=one, outcome=self._postponed(said(others), self._interval)))
            elif not is_named(policy):
                why = f"the retry policy '{policy}', which this process does not know"
                answers.append(Retried(claimed=one, outcome=self._postponed(why, self._interval)))
            elif one.letter.target:
                why = f"somebody who sends it to {one.letter.target}, its own target"
                answers.append(Retried(claimed=one, outcome=self._postponed(why, self._interval)))
        return answers

    async def tried(self, claimed: Sequence[Claimed]) -> list[Retried]:
        """Try letters of one lane together, unless its breaker is open: then no attempt is spent."""
        lane = lane_of(claimed[0].letter)
        breaker, clock = self._breakers.of(lane), self._breakers.clock
        passing, number = 0, 0
        while passing < len(claimed) and (given := breaker.passes(clock())):
            passing, number = passing + 1, given
        if passing == len(claimed):
            return await self._sent(claimed, lane, breaker, number)
        # While another is the trial there is no rest left: these are due at once, and not claimed before it is over.
        rest = breaker.rest_left(clock())
        denied = [Retried(claimed=one, outcome=self._postponed(DENIED, rest)) for one in claimed[passing:]]
        return [*await self._sent(claimed[:passing], lane, breaker, number), *denied] if passing else denied

    def put_off(self, claimed: Sequence[Claimed], error: Exception) -> list[Retried]:
        """Letters that could not even be tried, because of this."""
        why = self._sender.refused(error).failure.message or type(error).__name__
        return [Retried(claimed=one, outcome=self._postponed(why, self._interval)) for one in claimed]

    async def _sent(self, claimed: Sequence[Claimed], lane: Lane, breaker: Breaker, number: int) -> list[Retried]:
        started = time.perf_counter()
        try:
            prepared = await self._sender.prepared(claimed)
            deliveries = await self._sender.sent(prepared, self._targets[lane])
        except Exception as error:
            # Nothing was sent: the target is gone, not the letters bad.
            log.exception("the target of '%s' cannot be sent to", lane.source)
            deliveries = [self._sender.refused(error)] * len(claimed)
            breaker.failed(number, self._breakers.clock())
        except BaseException:
            breaker.gave_up(number)
            raise
        now, took = self.now(), timedelta(seconds=time.perf_counter() - started)
        for delivery in deliveries:
            self._tell(breaker, number, delivery)
        return [
            Retried(claimed=one, outcome=self._ended(one.letter, delivery, now, took), delivery=delivery)
            for one, delivery in zip(claimed, deliveries, strict=True)
        ]

    def _tell(self, breaker: Breaker, number: int, delivery: Delivery) -> None:
        match delivery:
            case Delivered():
                breaker.succeeded(number)
            case Refused(was_reached=True):
                breaker.failed(number, self._breakers.clock())
            case _:
                breaker.gave_up(number)

    def _ended(self, letter: Letter, delivery: Delivery, now: datetime, took: timedelta) -> Outcome:
        match delivery:
            case Refused(failure=Failure(message=why, type=kind), was_reached=False):
                return self._postponed(why or kind, self._interval)
            case _:
                return ending(letter, delivery, now, took, at_once=self._interval)

    def _postponed(self, why: str, by: timedelta) -> Postponed:
        return Postponed(until=later(self.now(), by), why=why)
