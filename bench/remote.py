"""What is measured of every store across a network: the same five rows, beside its raw driver."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial

from bench.harness import Effort, Goal, Row, Watch, compared
from bench.samples import LANE, letters
from redrive.model.arrival import Held
from redrive.model.lease import Claim, Due
from redrive.model.letter import Letter
from redrive.model.settlement import Completed, Settled, Settlement
from redrive.ports import LetterStore

LEASE = timedelta(minutes=5)

CALLERS = 100

Verb = Callable[[LetterStore, Sequence[Letter]], Awaitable[float]]
"""What is done to the letters in a store → letters a second."""
Ours = Callable[[Sequence[Letter], Verb], float]
"""The same in a store that is made for it."""
Raw = Callable[[Sequence[Letter], int, bool], float]
"""Letters, batch, and whether they are put or (put, and then) claimed and settled → letters a second."""


def rows(engine: str, effort: Effort, *, ours: Ours, raw: Raw) -> Iterator[Row]:
    """Put, and claim with settle, one by one and in batches of a hundred; one caller. And a letter each from many callers at once."""
    for batch, number in ((100, 10_000), (1, 500)):
        for verb, is_put in (("put", True), ("claim + settle", False)):
            given = letters(effort.of(number, step=batch), is_due=not is_put)
            work = partial(put if is_put else claim_and_settle, batch=batch)
            yield compared(
                f"{engine}: {verb}, batch {batch}",
                lambda given=given, work=work: ours(given, work),
                lambda given=given, batch=batch, is_put=is_put: raw(given, batch, is_put),
                effort,
                against="raw driver",
                goal=Goal("at least", 60) if batch == 100 else None,
            )
    given = letters(effort.of(10_000, step=CALLERS))
    yield compared(
        f"{engine}: put, {CALLERS} async callers",
        lambda: ours(given, crowd),
        lambda: raw(given, CALLERS, True),
        effort,
        against=f"raw driver, batches of {CALLERS}",
    )


async def put(store: LetterStore, given: Sequence[Letter], batch: int) -> float:
    """Letters a second, held in batches."""
    with Watch() as watch:
        for start in range(0, len(given), batch):
            held = await store.put(given[start : start + batch])
            assert set(held) == {Held.NEW}
    return watch.rate(len(given))


async def crowd(store: LetterStore, given: Sequence[Letter]) -> float:
    """Letters a second, held one by one by many at once."""
    left = iter(given)

    async def caller() -> None:
        for letter in left:
            assert await store.put([letter]) == [Held.NEW]

    with Watch() as watch:
        await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return watch.rate(len(given))


async def claim_and_settle(store: LetterStore, given: Sequence[Letter], batch: int) -> float:
    """Letters a second, claimed and completed until none is due."""
    await put(store, given, 100)
    claim, done = Claim(owner="bench", lease=LEASE, limit=batch, what=Due(LANE)), 0
    with Watch() as watch:
        while claimed := await store.claim(claim):
            answers = await store.settle([Settlement.of(one.lease, Completed()) for one in claimed])
            done += answers.count(Settled.DONE)
    assert done == len(given), done
    return watch.rate(done)
