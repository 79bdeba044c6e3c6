"""Kill -9 at every step of an operation, which is gone on with each time until it is done: each letter is sent at least once under
one name, none is taken as delivered that was not, and what was chosen first is what is sent."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest

from redrive.engine.dead_letters import DeadLetters, Limits
from redrive.engine.observed import ObservedLetters
from redrive.model.message import Message
from redrive.model.operation import Entry, OperationStatus
from redrive.model.query import EVERYTHING
from redrive.model.status import Status
from redrive.model.tempo import Tempo
from redrive.ports.inline import drive
from redrive.testing import Harness, Kill, LawBroken
from redrive.testing.kill.harness import Life
from redrive.testing.kill.points import AMID_SEND, Visit, at, watched, watched_desk, watched_transport
from redrive.testing.kill.way import letters_of, sink_of
from redrive.testing.kit.samples import START, is_chaos
from redrive.wiring import store

LETTERS = 9
VERBS = ("choose", "save", "change", "claim", "intend", "send", "record", "settle")
POINTS = (*(f"{moment} {verb}" for verb in VERBS for moment in ("before", "after")), AMID_SEND)
_HOUR = timedelta(hours=1)


def opened(place: Path, number: int, visit: Visit) -> DeadLetters:
    """Each life is an hour after the one before, so that the leases of the dead are over."""
    whole = store(f"sqlite:{letters_of(place)}")
    return DeadLetters(
        ObservedLetters(watched(at(whole.letters, START + number * _HOUR), visit)),
        watched_desk(whole.desk, visit),
        limits=Limits(lease=timedelta(minutes=1)),
    )


async def whole_operation(life: Life, visit: Visit, *, tempo: Tempo) -> None:
    """Plan an operation over what is there, unless somebody has, and run it to its end."""
    target = watched_transport(sink_of(life.place), visit)
    async with opened(life.place, life.number, visit) as dlq:
        known = await dlq.operations.list()
        # One that somebody died over while letters were chosen was never shown to anybody.
        begun = [one for one in known if one.total]
        if begun:
            (operation,) = begun
        else:
            operation = (await dlq.operations.plan(target, query=EVERYTHING, tempo=tempo)).operation
        if operation.status is not OperationStatus.FINISHED:
            report = await dlq.operations.run(operation.id, to=target)
            assert not report.stopped, report.stopped
        # Letters that come later are none of its business.
        await dlq.capture(Message(body=b"late", id=f"late {life.number}"), ValueError("late"), source="orders")


def fill(place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)

    async def put() -> None:
        async with opened(place, 0, lambda point: None) as dlq:
            for number in range(LETTERS):
                await dlq.capture(Message(body=b"%d" % number, id=str(number)), ValueError("bad"), source="orders")

    drive(put())


def holds(place: Path, is_over: bool) -> None:
    """The law of an operation."""
    whole = store(f"sqlite:{letters_of(place)}")
    later = START + 1000 * _HOUR
    page = drive(whole.letters.find(EVERYTHING, limit=1000, now=later))
    operations = [one for one in drive(whole.desk.operations()) if one.total]
    rows = [row for one in operations for row in drive(whole.desk.ledger(one.id))]
    drive(whole.letters.close())
    arrived = Counter((UUID(line.redrive_id), line.generation) for line in sink_of(place).lines() if line.redrive_id)
    chosen = {letter.id: letter for letter in page.letters if not letter.source_id.startswith("late")}
    _ensure(len(chosen) == LETTERS, f"{len(chosen)} of {LETTERS} letters are there")
    _ensure(len(operations) <= 1, f"{len(operations)} operations were begun")
    for row in rows:
        _ensure(row.letter in chosen, f"{row.letter} came later and was chosen")
        if row.entry is Entry.CONFIRMED:
            _ensure(arrived[row.letter, row.generation] > 0, f"{row.letter} is confirmed and never arrived")
    for letter in chosen.values():
        if letter.status is Status.COMPLETED:
            _ensure(arrived[letter.id, letter.generation] > 0, f"{letter.source_id} is completed and never arrived")
    _ensure(set(arrived) <= {(row.letter, row.generation) for row in rows}, "something was sent that nobody chose")
    if is_over:
        _ensure([row.entry for row in rows] == [Entry.CONFIRMED] * LETTERS, f"{Counter(row.entry for row in rows)} at the end")
        _ensure({letter.status for letter in chosen.values()} == {Status.COMPLETED}, "letters are left")
        _ensure(len(arrived) == LETTERS, "not every letter arrived")


def _ensure(is_so: bool, complaint: str) -> None:
    if not is_so:
        raise LawBroken(complaint)


TEMPOS = {
    "some at a time": Tempo(batch=4),
    "in order": Tempo(batch=4, keeps_order=True),
    "with a canary": Tempo(batch=4, canary=2),
}


def harness(place: Path, tempo: Tempo = TEMPOS["some at a time"]) -> Harness:
    fill(place)
    return Harness(place, partial(whole_operation, tempo=tempo), holds)


@pytest.mark.parametrize("tempo", TEMPOS)
def test_an_operation_without_a_kill_passes_every_point(tmp_path: Path, tempo: str) -> None:
    unharmed = harness(tmp_path, TEMPOS[tempo])
    assert unharmed.live() is False
    assert [point for point in POINTS if not unharmed.visits().get(point)] == []


@pytest.mark.parametrize("point", POINTS)
def test_an_operation_whose_runner_was_killed_is_brought_to_its_end_by_the_next(tmp_path: Path, point: str) -> None:
    for visit in count(1) if is_chaos() else (1, 2):
        killed = harness(tmp_path / str(visit))
        if not killed.live(Kill(point, visit)):
            assert visit > 1, "this child was to be killed"
            break
        assert killed.live() is False
        assert killed.kills == 1


@pytest.mark.parametrize("seed", range(20 if is_chaos() else 2))
@pytest.mark.parametrize("tempo", TEMPOS)
def test_kills_in_a_row_at_any_points_lose_nothing(tmp_path: Path, tempo: str, seed: int) -> None:
    dice = random.Random(seed)
    killed = harness(tmp_path, TEMPOS[tempo])
    for _ in range(25):
        if not killed.live(Kill(dice.choice(POINTS), dice.randint(1, 2))):
            break
    assert killed.live() is False
    assert killed.kills > 0
