"""Kill -9 at every step of the whole way: nothing is lost, nothing doubled, nothing claimed that is not so."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from redrive.testing import Harness, Kill, LawBroken
from redrive.testing.kill.law import holds_the_law
from redrive.testing.kill.points import POINTS
from redrive.testing.kill.way import Consume, Drive, fill, in_batches, one_by_one, whole_way
from redrive.testing.kit.samples import is_chaos
from tests.chaos import mutants, shares
from tests.chaos.instants import Instants

MESSAGES = 6
CONSUMERS: dict[str, tuple[Consume, int]] = {"one by one": (one_by_one, 2), "in batches": (in_batches, 1)}
"""Each with the visit at which it is killed."""


def harness(place: Path, *, consume: Consume = one_by_one, lease: timedelta | None = None) -> Harness:
    fill(place, MESSAGES)
    return Harness(place, partial(whole_way, consume=consume, lease=lease), holds_the_law)


def harried(place: Path, share: int, live: Callable[[Harness], bool]) -> int:
    """Kill so many children in a row on one way, and let the last one live; how many were killed?

    Whenever one came to its end, there are new messages.
    """
    harness = Harness(place, whole_way, holds_the_law)
    for _ in range(20 * share):
        fill(place, MESSAGES)
        while harness.kills < share and live(harness):
            pass
        if harness.kills == share:
            break
    assert harness.live() is False
    return harness.kills


def to_the_end(harness: Harness, kill: Kill) -> None:
    """Kill one child; another one goes on."""
    if harness.live(kill):
        harness.live()


def test_enough_kills_are_owed() -> None:
    assert sum(share.total for share in shares.ALL) >= shares.OWED


def test_a_way_without_a_kill_passes_every_point(tmp_path: Path) -> None:
    for name, (consume, nth) in CONSUMERS.items():
        unharmed = harness(tmp_path / name, consume=consume)
        assert unharmed.live() is False
        visits = unharmed.visits()
        assert {point: visits.get(point, 0) for point in POINTS if visits.get(point, 0) < nth} == {}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_process_killed_at_a_point_loses_nothing(tmp_path: Path, point: str, consumer: str) -> None:
    consume, nth = CONSUMERS[consumer]
    for visit in count(1) if is_chaos() else (nth,):
        killed = harness(tmp_path / str(visit), consume=consume)
        if not killed.live(Kill(point, visit)):
            # All visits were tried, and this child came to its end.
            assert visit > shares.EVERY_POINT.kills
            break
        assert killed.live() is False
        assert killed.kills == shares.EVERY_POINT.kills


@pytest.mark.parametrize("point", ["after claim", "before send", "after send", "before settle"])
def test_a_lease_of_the_dead_ends_by_the_stores_own_clock(tmp_path: Path, point: str) -> None:
    killed = harness(tmp_path, lease=timedelta(seconds=0.3))
    assert killed.live(Kill(point)) is True
    assert killed.live() is False
    assert killed.kills == shares.OWN_CLOCK.kills


@pytest.mark.parametrize("seed", range(shares.IN_A_ROW.cases))
def test_kills_in_a_row_at_different_points_lose_nothing(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)

    def live(harness: Harness) -> bool:
        return harness.live(Kill(dice.choice(POINTS), dice.randint(1, 3)))

    assert harried(tmp_path, shares.IN_A_ROW.kills, live) == shares.IN_A_ROW.kills


@pytest.mark.parametrize("seed", range(shares.AT_RANDOM.cases))
def test_kills_at_any_instant_lose_nothing(tmp_path: Path, seed: int) -> None:
    assert harried(tmp_path, shares.AT_RANDOM.kills, Instants(seed).live) == shares.AT_RANDOM.kills


@pytest.mark.parametrize(
    ("mutant", "point", "complaint"),
    [
        (mutants.acknowledges_before_holding, "before put", "is lost"),
        (mutants.acknowledges_the_batch_before_holding, "before put", "is lost"),
        (mutants.acknowledges_before_holding, "after acknowledge", "is lost"),
        (mutants.holds_under_another_name_in_the_next_life, "before acknowledge", "held 2 times"),
        (mutants.counts_a_failure_twice, "before acknowledge", "counted twice"),
    ],
)
def test_a_consumer_that_breaks_the_law_is_caught(tmp_path: Path, mutant: Consume, point: str, complaint: str) -> None:
    fill(tmp_path, MESSAGES)
    broken = Harness(tmp_path, partial(whole_way, consume=mutant), holds_the_law)
    with pytest.raises(LawBroken, match=complaint):
        to_the_end(broken, Kill(point))


@pytest.mark.parametrize(
    ("mutant", "point", "complaint"),
    [
        (mutants.settles_before_sending, "before send", "is completed, and never arrived"),
        (mutants.settles_before_sending, "amid send", "is completed, and never arrived"),
        (mutants.confirms_before_sending, "before send", "the ledger says confirmed of"),
        (mutants.settles_before_recording, "after settle", "is completed, and the ledger does not know"),
        (mutants.sends_without_intent, "after send", "no intent was written"),
        (mutants.renames_what_it_sends, "after send", "no intent was written"),
        (mutants.renames_what_it_sends, "after acknowledge", "arrived under the name"),
        (mutants.spoils_what_it_sends, "after acknowledge", "is not what it was"),
        (mutants.leases_for_ever, "after claim", "held for ever"),
    ],
)
def test_a_redriver_that_breaks_the_law_is_caught(tmp_path: Path, mutant: Drive, point: str, complaint: str) -> None:
    fill(tmp_path, MESSAGES)
    # Only who waits for a lease that never ends must be found to wait in vain.
    patience = timedelta(seconds=2 if mutant is mutants.leases_for_ever else 30)
    way = partial(whole_way, redrive=mutant, patience=patience)
    broken = Harness(tmp_path, way, holds_the_law)
    with pytest.raises(LawBroken, match=complaint):
        to_the_end(broken, Kill(point))
