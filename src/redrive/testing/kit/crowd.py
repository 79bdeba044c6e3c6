"""What a crowd is made of: owners that settle what they get, threads that begin together, a register of who holds what."""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID

from redrive.model.lease import Claim, Claimed, Due
from redrive.model.query import Field, Is
from redrive.model.settlement import Completed, Failed, Outcome, Released, Settled, Settlement
from redrive.ports.letters import LetterStore
from redrive.testing.kit.clerk import Capable, Run, running
from redrive.testing.kit.samples import LANE, START, attempt, is_chaos, letter

LETTERS = 5000 if is_chaos() else 500
THREADS = 4
HOUR = timedelta(hours=1)
PATIENCE_SECONDS = 300.0 if is_chaos() else 60.0


class Register:
    """Who holds what, as the owners themselves know it. A letter that is handed to two at once is a defect."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: set[UUID] = set()
        self.completed: Counter[UUID] = Counter()

    def take(self, ids: list[UUID]) -> None:
        with self._lock:
            twice = self._held.intersection(ids)
            assert not twice, f"held by two at the same time: {twice}"
            assert not self.completed.keys() & set(ids), "claimed after it was completed"
            self._held.update(ids)

    def give_back(self, ids: list[UUID]) -> None:
        """Call before settling: from then on another may hold it."""
        with self._lock:
            self._held.difference_update(ids)

    def complete(self, ids: list[UUID]) -> None:
        with self._lock:
            self.completed.update(ids)


async def settle_all(store: LetterStore, owner: str, register: Register) -> None:
    """Claim and settle until nothing is left: some are given back, some fail and are due again, the rest completes."""
    dice = random.Random(owner)
    claims = [
        Claim(owner=owner, lease=HOUR, limit=7, what=Due(LANE)),
        Claim(owner=owner, lease=HOUR, limit=5, what=Is(Field.STATUS, "pending")),
        Claim(owner=owner, lease=HOUR, limit=9, what=tuple(dice.sample(letter_ids(), 40))),
    ]
    empty = 0
    while empty < len(claims):
        claimed = await store.claim(claims[dice.randrange(len(claims))] if not empty else claims[empty - 1], now=START)
        if not claimed:
            empty += 1
            continue
        empty = 0
        register.take([one.letter.id for one in claimed])
        outcomes = [_outcome(dice, one) for one in claimed]
        register.give_back([one.letter.id for one in claimed])
        done = [one.letter.id for one, outcome in zip(claimed, outcomes, strict=True) if isinstance(outcome, Completed)]
        ends = [Settlement.of(one.lease, outcome) for one, outcome in zip(claimed, outcomes, strict=True)]
        answers = await store.settle(ends, now=START)
        assert answers == [Settled.DONE] * len(ends)
        register.complete(done)


def _outcome(dice: random.Random, claimed: Claimed) -> Outcome:
    roll = dice.random()
    if roll < 0.1:
        return Released()
    if roll < 0.2:
        return Failed(attempt=attempt(f"{claimed.lease.token}/{claimed.letter.id}"), next_retry_at=START)
    return Completed()


def letter_ids() -> list[UUID]:
    """Of the letters that a crowd settles."""
    return [letter(str(number)).id for number in range(LETTERS)]


@contextmanager
def _hasty_threads() -> Iterator[None]:
    """Threads that are switched as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def in_threads(store: Capable, count: int, work: Callable[[int, Run], None]) -> None:
    """Run `work` in so many threads, which begin together; raise what any of them raised.

    Each is given its number and what runs the store's verbs there: by hand, or on an event loop of the thread's own.
    """
    together = threading.Barrier(count)
    errors: list[BaseException] = []

    def begin(number: int) -> None:
        try:
            with running(store) as run:
                together.wait(PATIENCE_SECONDS)
                work(number, run)
        except BaseException as error:
            errors.append(error)

    # Daemons, so that a store that hangs fails one test and not the whole run.
    threads = [threading.Thread(target=begin, args=(number,), daemon=True) for number in range(count)]
    with _hasty_threads():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a verb did not come to its end"
