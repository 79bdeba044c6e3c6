"""Where a letter may stand and what moves it: the table, its picture, and what the verbs really do."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from msgspec.structs import replace

from redrive import Failure, IllegalTransition, Letter, Status
from redrive.model.amendment import Amended, Amendment, amended
from redrive.model.arrival import Held, arrive
from redrive.model.letter import Attempt, RetryPlan, letter_id
from redrive.model.settlement import Completed, Failed, Redriven, Released, settled
from redrive.model.status import OPEN, TRANSITIONS, Act, diagram, ensure_legal

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
BY_PEOPLE = {Act.CONFIRM, Act.REQUEUE, Act.QUARANTINE, Act.ARCHIVE, Act.RESTORE, Act.DISCARD}
STORED = [status for status in Status if status is not Status.RETRYING]


def letter(status: Status = Status.PENDING, *, generation: int = 1) -> Letter:
    return Letter(
        id=letter_id("default", "orders", "1"),
        source="orders",
        source_id="1",
        generation=generation,
        failure=Failure(type="builtins.ValueError", message="bad"),
        first_received_at=NOW,
        dead_lettered_at=NOW,
        updated_at=NOW,
        status=status,
        history=(attempt(),),
    )


def attempt() -> Attempt:
    return Attempt(at=NOW, occurrence=uuid4(), error="builtins.ValueError", message="bad")


def test_every_act_is_in_the_table_and_leads_somewhere() -> None:
    assert set(TRANSITIONS) == set(Act)
    assert all(sources and targets for sources, targets in TRANSITIONS.values())


def test_every_status_can_be_entered_and_left() -> None:
    entered = {Status.PENDING}.union(*(targets for _, targets in TRANSITIONS.values()))
    left = set[Status]().union(*(sources for sources, _ in TRANSITIONS.values()))
    assert entered == set(Status)
    assert left == set(Status)


@pytest.mark.parametrize("act", Act)
@pytest.mark.parametrize("status", Status)
def test_an_act_is_legal_exactly_from_the_statuses_of_its_row(act: Act, status: Status) -> None:
    sources, _ = TRANSITIONS[act]
    if status in sources:
        ensure_legal(act, status)
        return
    with pytest.raises(IllegalTransition) as refused:
        ensure_legal(act, status)
    sentence = str(refused.value)
    assert f"cannot {act} a letter that is {status}" in sentence
    assert all(allowed.value in sentence for allowed in sources)
    assert refused.value.code == "illegal_transition"


def test_the_diagram_draws_the_table_and_nothing_else() -> None:
    head, *lines = (line.strip() for line in diagram().splitlines())
    inside = lines[lines.index("state open {") + 1 : lines.index("}")]
    assert head == "stateDiagram-v2"
    assert set(inside) == OPEN
    arrows = [re.fullmatch(r"(\S+) --> (\S+): (\S+)", line) for line in lines if "-->" in line]
    drawn = [
        (source, target, act)
        for arrow in arrows
        if arrow
        for act in [arrow[3]]
        for source in (inside if arrow[1] == "open" else [arrow[1]])
        for target in (inside if arrow[2] == "open" else [arrow[2]])
    ]
    table = {
        (source.value, target.value, act.value)
        for act, (sources, targets) in TRANSITIONS.items()
        for source in sources
        for target in targets
    }
    assert all(arrows)
    assert set(drawn) == table | {("[*]", "pending", "hold")}
    assert len(drawn) == len(set(drawn))


def test_the_diagram_is_the_same_every_time() -> None:
    assert diagram() == diagram()


@pytest.mark.parametrize("act", Act)
@pytest.mark.parametrize("status", STORED)
def test_amending_does_what_the_table_says_and_nothing_else(act: Act, status: Status) -> None:
    before = letter(status)
    after, answer = amended(before, Amendment(id=before.id, act=act), NOW + timedelta(hours=1))
    sources, targets = TRANSITIONS[act]
    if act in BY_PEOPLE and status in sources:
        assert answer is Amended.DONE
        assert after.status in targets
    else:
        assert answer is Amended.ILLEGAL
        assert after == before


@pytest.mark.parametrize("status", sorted(OPEN))
def test_settling_leads_where_the_table_says(status: Status) -> None:
    leased = letter(status)
    for act, outcome in (
        (Act.COMPLETE, Completed()),
        (Act.SEND, Redriven()),
        (Act.FAIL, Failed(attempt=attempt())),
        (Act.RELEASE, Released()),
    ):
        assert settled(leased, outcome, NOW).status in TRANSITIONS[act][1]


def test_a_failed_try_leaves_the_status_until_the_retries_are_used_up() -> None:
    one = replace(letter(), retry=RetryPlan(policy="immediate", max_retries=2, next_retry_at=NOW))
    once = settled(one, Failed(attempt=attempt(), next_retry_at=NOW), NOW)
    assert (once.status, once.retry.retry_count, once.retry.next_retry_at) == (Status.PENDING, 1, NOW)
    twice = settled(once, Failed(attempt=attempt(), next_retry_at=NOW), NOW)
    assert (twice.status, twice.retry.retry_count, twice.retry.next_retry_at) == (Status.EXHAUSTED, 2, None)


def test_a_letter_without_a_limit_is_never_exhausted() -> None:
    one = letter()
    for _ in range(50):
        one = settled(one, Failed(attempt=attempt()), NOW)
    assert (one.status, one.retry.retry_count) == (Status.PENDING, 50)


def test_a_released_letter_is_untouched() -> None:
    before = letter(Status.EXHAUSTED)
    assert settled(before, Released(), NOW + timedelta(days=1)) == before


def test_reopening_leads_where_the_table_says() -> None:
    for status in STORED:
        for arriving in sorted(OPEN):
            again, held = arrive(letter(status), letter(arriving, generation=2), NOW)
            assert held is Held.REOPENED
            assert status in TRANSITIONS[Act.REOPEN][0]
            assert again.status in TRANSITIONS[Act.REOPEN][1], f"{status} reopened by a letter that is {arriving}"
