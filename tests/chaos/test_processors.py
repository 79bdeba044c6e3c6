"""Processors in processes of their own: five share a store, and three are killed again and again."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from redrive import Letter, Pace, RetryPlan, Status
from redrive.backends.memory import MemoryDesk
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.observed import ObservedLetters
from redrive.model.lease import Claim, Due
from redrive.model.query import Field, Is, Not
from redrive.testing import START, Opener, letter
from redrive.testing.kill.children import children
from redrive.testing.kit.samples import LANE, is_chaos
from tests.contract.backends import LETTERS, opensearch_letters

STORES = [one for one in LETTERS if one.id in {"sqlite", "postgres", "redis", "opensearch"}]
"""Any store of the contract kit that processes share: a name each."""

MANY = 10_000
PROCESSES = 5
KILLS = 60 if is_chaos() else 8
KILLED = 3
PATIENCE_SECONDS = 240.0 if is_chaos() else 100.0
LEASE = timedelta(seconds=1)
LONG_SECONDS = 0.3
"""A handler may take so long where it is to be killed at its work: so every kill finds somebody at it."""


def due(name: str) -> Letter:
    plan = RetryPlan(policy="exponential", max_retries=3, next_retry_at=START)
    return letter(name, body=f'"{name}"'.encode(), content_type="application/json", retry=plan)


def open_letters(opener: Opener, place: Path) -> DeadLetters:
    return DeadLetters(ObservedLetters(opener(place)), MemoryDesk())


def work(opener: Opener, place: Path, log: Path, pace: Pace, most_seconds: float, pipe: Connection) -> None:
    """What each process does: retry until it is told to stop, or killed. Every run of a handler is a line in its log."""
    lines = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    dice = random.Random(str(log))

    async def handler(name: str) -> None:
        os.write(lines, f"{name}\n".encode())
        if most_seconds:
            await asyncio.sleep(dice.uniform(0, most_seconds))

    async def main() -> None:
        async with open_letters(opener, place) as dlq:
            await dlq.letters.check()
            pipe.send("ready")
            pipe.recv()
            async with dlq.processor({"orders": handler}, pace=pace):
                await asyncio.to_thread(pipe.recv)
            pipe.send("stopped")

    asyncio.run(main())


class Child:
    """A process at work."""

    def __init__(self, *args: Any) -> None:
        context = children()
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(*args, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._heard("ready")

    def go(self) -> None:
        self._pipe.send("go")

    def stop(self) -> None:
        self._pipe.send("stop")
        self._heard("stopped")

    def kill(self) -> None:
        """As `kill -9` does. What is dead already stays so."""
        if not self._pipe.closed:
            self._process.kill()
            self._process.join(PATIENCE_SECONDS)
            self._process.close()
            self._pipe.close()

    def _heard(self, word: str) -> None:
        assert self._pipe.poll(PATIENCE_SECONDS), "a process did not answer"
        assert self._pipe.recv() == word


def _kill(workers: list[Child]) -> None:
    for child in workers:
        child.kill()


@contextmanager
def at_work(count: int, *args: Any, logs: Path) -> Iterator[list[Child]]:
    """So many processes, which begin together; none is left behind."""
    opener, place, pace, most_seconds = args
    with ExitStack() as stack:
        workers: list[Child] = []
        # Whoever is in the list at the end, for some take others' places.
        stack.callback(lambda: _kill(workers))
        for number in range(count):
            workers.append(Child(opener, place, logs / f"{number}.log", pace, most_seconds))
        for child in workers:
            child.go()
        yield workers


def runs(logs: Path) -> Counter[str]:
    """How often each letter's handler was begun."""
    return Counter(name for log in logs.glob("*.log") for name in log.read_text().splitlines())


async def completed(dlq: DeadLetters, count: int) -> None:
    """Return when so many letters are completed, which must be soon."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await dlq.count(Is(Field.STATUS, Status.COMPLETED.value)) < count:  # noqa: ASYNC110 - asks a store
                await asyncio.sleep(0.02)
    except TimeoutError:
        left = await dlq.letters.find(Not(Is(Field.STATUS, Status.COMPLETED.value)), limit=5)
        next_due = await dlq.letters.claim(Claim(owner="nobody", lease=timedelta(seconds=1), what=Due(LANE)))
        told = f"{await dlq.letters.tally(Field.STATUS)}, {len(next_due)} of them due, such as {left.letters}"
        raise AssertionError(f"not all are completed: {told}") from None


async def put(dlq: DeadLetters, letters: Sequence[Letter]) -> None:
    for start in range(0, len(letters), 1000):
        await dlq.letters.put(letters[start : start + 1000])


@pytest.mark.parametrize("opener", STORES)
def test_five_processes_run_each_of_ten_thousand_letters_exactly_once(opener: Opener, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()

    async def story() -> None:
        async with open_letters(opener, tmp_path) as dlq:
            await put(dlq, [due(str(number)) for number in range(MANY)])
            # A lease that no run outlives: whoever runs a letter twice has done so under two leases.
            pace = Pace(lease=timedelta(hours=1), interval=timedelta(seconds=1))
            with at_work(PROCESSES, opener, tmp_path, pace, 0.0, logs=logs) as workers:
                await completed(dlq, MANY)
                for child in workers:
                    child.stop()
            assert await dlq.count() == MANY

    asyncio.run(story())
    assert runs(logs) == {str(number): 1 for number in range(MANY)}
    # Not all five: SQLite's lock is not fair, and in these few seconds one may never get it.
    assert sum(log.stat().st_size > 0 for log in logs.glob("*.log")) > 1, "one of them did it all"


@pytest.mark.parametrize("opener", STORES)
def test_processes_that_are_killed_at_any_instant_lose_nothing(opener: Opener, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    dice = random.Random(7)
    # On a machine that is busy, what an engine of documents answers may take longer than the usual lease: nobody would ever keep one.
    lease = 4 * LEASE if opener is opensearch_letters else LEASE
    pace = Pace(lease=lease, interval=timedelta(milliseconds=200))
    letters: list[Letter] = []

    async def story() -> None:
        async with open_letters(opener, tmp_path) as dlq:

            async def bring(count: int) -> None:
                more = [due(str(len(letters) + number)) for number in range(count)]
                letters.extend(more)
                await dlq.letters.put(more)

            await bring(100)
            with at_work(KILLED, opener, tmp_path, pace, LONG_SECONDS, logs=logs) as workers:
                for turn in range(KILLS):
                    await bring(60)
                    await asyncio.sleep(dice.uniform(0.01, 0.25))  # the instant of the kill is what is tested
                    victim = dice.randrange(KILLED)
                    workers[victim].kill()
                    workers[victim] = Child(opener, tmp_path, logs / f"again-{turn}.log", pace, LONG_SECONDS)
                    workers[victim].go()
                started = monotonic()
                await completed(dlq, len(letters))
                assert monotonic() - started < PATIENCE_SECONDS
                for child in workers:
                    child.stop()
            found = await dlq.letters.get([one.id for one in letters])
            # Whoever dies has not failed: no attempt is counted.
            assert {(one.status, one.retry.retry_count, one.attempts) for one in found if one is not None} == {
                (Status.COMPLETED, 0, 1)
            }
            assert None not in found

    asyncio.run(story())
    assert runs(logs).keys() == {one.source_id for one in letters}
    assert sum(runs(logs).values()) > len(letters), "no kill hit anybody at work"


@pytest.mark.parametrize("opener", STORES)
def test_what_a_killed_process_held_comes_free_with_its_lease_and_another_finishes_it(opener: Opener, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()

    async def story() -> None:
        async with open_letters(opener, tmp_path) as dlq:
            letters = [due(str(number)) for number in range(5)]
            await dlq.letters.put(letters)
            # It holds as many as it can: should its heart beat too late on a busy machine, it cannot take one of them once more.
            holding = Pace(lease=LEASE, concurrency=len(letters))
            with at_work(1, opener, tmp_path, holding, 1e6, logs=logs) as (doomed,):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while len(runs(logs)) < 5:  # noqa: ASYNC110 - another process's doing
                        await asyncio.sleep(0.01)
                doomed.kill()
                assert await dlq.count(Is(Field.STATUS, Status.COMPLETED.value)) == 0
                with at_work(1, opener, tmp_path, Pace(lease=timedelta(hours=1)), 0.0, logs=_other(logs)) as (heir,):
                    await completed(dlq, 5)
                    heir.stop()

    asyncio.run(story())
    assert runs(logs) == runs(logs / "other") == {str(number): 1 for number in range(5)}


def _other(logs: Path) -> Path:
    (logs / "other").mkdir()
    return logs / "other"
