"""Kill -9 while the store is down, and while the journal is drained: what was acknowledged reaches the store, once."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from redrive.engine.dead_letters import DeadLetters
from redrive.model.query import EVERYTHING
from redrive.testing import Harness, Kill, LawBroken, Outage
from redrive.testing.kill.journal import JOURNAL_POINTS, holds_the_journals_law, in_journals, journal_of, journaled_way
from redrive.testing.kill.law import look
from redrive.testing.kill.way import Consume, fill, letters_of
from redrive.wiring import store
from tests.chaos import mutants, shares
from tests.chaos.instants import Instants

MESSAGES = 6
DRAINING = [point for point in JOURNAL_POINTS if point.split()[1] in ("drain", "put", "removal")]


def harness(place: Path) -> Harness:
    fill(place, MESSAGES)
    return Harness(place, journaled_way, holds_the_journals_law)


@pytest.mark.parametrize("point", JOURNAL_POINTS)
def test_another_process_adopts_and_drains_what_a_killed_one_left(tmp_path: Path, point: str) -> None:
    killed = harness(tmp_path)
    assert killed.live(Kill(point)) is True
    assert killed.live() is False
    letters = look(tmp_path).letters
    assert len(letters) == MESSAGES
    if point in DRAINING:
        # All had been acknowledged before, so that none was captured a second time.
        assert [len({attempt.occurrence for attempt in letter.history}) for letter in letters] == [1] * MESSAGES
    assert killed.kills == shares.JOURNAL.kills


@pytest.mark.parametrize("seed", range(shares.JOURNAL_AT_RANDOM.cases))
def test_kills_at_any_instant_lose_no_journaled_letter(tmp_path: Path, seed: int) -> None:
    instants = Instants(seed)
    killed = harness(tmp_path)
    for _ in range(20 * shares.JOURNAL_AT_RANDOM.kills):
        if killed.kills == shares.JOURNAL_AT_RANDOM.kills:
            break
        if not instants.live(killed):
            fill(tmp_path, MESSAGES)
    assert killed.live() is False
    assert killed.kills == shares.JOURNAL_AT_RANDOM.kills


def test_a_new_process_drains_what_a_killed_one_left_without_journaling_anything_itself(tmp_path: Path) -> None:
    killed = harness(tmp_path)
    assert killed.live(Kill("before drain")) is True
    assert len(in_journals(tmp_path)) == MESSAGES

    async def go_on() -> int:
        opened = store(f"sqlite:{letters_of(tmp_path)}")
        async with DeadLetters(Outage(opened.letters), opened.desk, journal=journal_of(tmp_path)) as dlq:
            assert await dlq.drain() == MESSAGES
            return await dlq.letters.count(EVERYTHING)

    assert asyncio.run(go_on()) == MESSAGES


@pytest.mark.parametrize(
    ("mutant", "point", "complaint"),
    [
        (mutants.acknowledges_before_holding, "after acknowledge", "is lost"),
        (mutants.acknowledges_before_holding, "before append", "is lost"),
        (mutants.holds_nowhere, "after acknowledge", "is lost"),
        (mutants.counts_a_failure_twice, "before drain", "counted twice"),
    ],
)
def test_a_consumer_that_breaks_the_law_is_caught(tmp_path: Path, mutant: Consume, point: str, complaint: str) -> None:
    fill(tmp_path, MESSAGES)
    broken = Harness(tmp_path, partial(journaled_way, consume=mutant), holds_the_journals_law)
    with pytest.raises(LawBroken, match=complaint):
        broken.live(Kill(point))
