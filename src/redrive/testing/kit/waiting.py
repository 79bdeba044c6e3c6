"""Waiting for letters to come due, by the store's own clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from redrive.model.lane import Lane
from redrive.model.lease import Claim, Due
from redrive.testing.kit.clerk import Clerk, Kit, Run
from redrive.testing.kit.crowd import HOUR, PATIENCE_SECONDS
from redrive.testing.kit.samples import LANE, START, letter

_SOON = timedelta(milliseconds=200)


class Waiting(Kit):
    """Whoever claims what is due need not ask all the time."""

    def test_waiting_ends_at_once_when_a_letter_is_due(self, store: Clerk, run: Run) -> None:
        store.put(letter(due=START))
        run(asyncio.wait_for(store.store.wait([LANE], HOUR), PATIENCE_SECONDS))

    def test_waiting_ends_when_patience_is_over(self, store: Clerk, run: Run) -> None:
        run(asyncio.wait_for(store.store.wait([LANE], timedelta()), PATIENCE_SECONDS))
        store.put(letter("waits for a person"), letter("tomorrow", due=datetime.now(UTC) + timedelta(days=1)))
        run(asyncio.wait_for(store.store.wait([LANE], _SOON), PATIENCE_SECONDS))

    def test_what_is_due_in_another_lane_is_not_waited_for(self, store: Clerk, run: Run) -> None:
        store.put(letter(source="bills", due=START))

        async def scene() -> None:
            waiting = asyncio.ensure_future(store.store.wait([LANE, Lane("other", "bills")], HOUR))
            await asyncio.wait([waiting], timeout=_SOON.total_seconds())
            assert not waiting.done(), "nothing is due there"
            waiting.cancel()
            await asyncio.wait([waiting])
            await asyncio.wait_for(store.store.wait([LANE, Lane("default", "bills")], HOUR), PATIENCE_SECONDS)

        run(scene())

    def test_waiting_ends_when_a_retry_comes_due(self, store: Clerk, run: Run) -> None:
        store.put(letter("later", due=datetime.now(UTC) + HOUR), letter("soon", due=datetime.now(UTC) + _SOON, priority=-1))

        async def claimed() -> list[str]:
            while not (found := await store.store.claim(Claim(owner="ann", lease=HOUR, what=Due(LANE)))):
                await store.store.wait([LANE], HOUR)
            return [one.letter.source_id for one in found]

        assert run(asyncio.wait_for(claimed(), PATIENCE_SECONDS)) == ["soon"]

    def test_waiting_ends_when_somebody_puts_a_letter_that_is_due(self, store: Clerk, run: Run) -> None:
        async def scene() -> None:
            waiting = asyncio.ensure_future(store.store.wait([LANE], HOUR))
            await asyncio.wait([waiting], timeout=_SOON.total_seconds())
            assert not waiting.done(), "nothing was due yet"
            await store.store.put([letter(due=START)])
            await asyncio.wait_for(waiting, PATIENCE_SECONDS)

        run(scene())

    def test_a_letter_that_somebody_holds_is_not_waited_for(self, store: Clerk, run: Run) -> None:
        store.put(letter(due=START))

        async def scene() -> None:
            (claimed,) = await store.store.claim(Claim(owner="ann", lease=HOUR, what=Due(LANE)))
            waiting = asyncio.ensure_future(store.store.wait([LANE], HOUR))
            await asyncio.wait([waiting], timeout=_SOON.total_seconds())
            assert not waiting.done(), "it is not due while it is held"
            waiting.cancel()
            await asyncio.wait([waiting])
            assert claimed.lease.until > datetime.now(UTC)

        run(scene())
