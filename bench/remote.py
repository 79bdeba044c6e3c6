"""What is measured of every store across a network: the same four rows, beside its raw driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from bench.harness import Effort, Goal, Row, Watch, compared
from bench.samples import LANE, letters
from redrive.model.arrival import Held
from redrive.model.lease import Claim, Due
from redrive.model.letter import Letter
from redrive.model.settlement import Completed, Settled, Settlement
from redrive.ports import LetterStore

LEASE = timedelta(minutes=5)

Rate = Callable[[Sequence[Letter], int, bool], float]
"""Letters, batch, and whether they are put or (put, and then) claimed and settled → letters a second."""


def rows(engine: str, effort: Effort, *, ours: Rate, raw: Rate) -> Iterator[Row]:
    """Put, and claim with settle, one by one and in batches of a hundred; one caller."""
    for batch, number in ((100, 10_000), (1, 500)):
        for verb, is_put in (("put", True), ("claim + settle", False)):
            given = letters(effort.of(number, step=batch), is_due=not is_put)
            yield compared(
                f"{engine}: {verb}, batch {batch}",
                lambda given=given, batch=batch, is_put=is_put: ours(given, batch, is_put),
                lambda given=given, batch=batch, is_put=is_put: raw(given, batch, is_put),
                effort,
                against="raw driver",
                goal=Goal("at least", 60) if batch == 100 else None,
            )


async def put(store: LetterStore, given: Sequence[Letter], batch: int) -> float:
    """Letters a second, held in batches."""
    with Watch() as watch:
        for start in range(0, len(given), batch):
            held = await store.put(given[start : start + batch])
            assert set(held) == {Held.NEW}
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
