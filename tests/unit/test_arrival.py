"""What it means that a letter arrives, where that concerns what redrive sent and how tries are counted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from msgspec.structs import replace

from redrive import Attempt, Failure, Held, Letter, Status
from redrive.model.arrival import arrive
from redrive.model.letter import HISTORY_LIMIT, letter_id, with_attempts

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def letter(*, generation: int = 1, tries: int = 1, status: Status = Status.PENDING, occurrence: UUID | None = None) -> Letter:
    one = occurrence or uuid4()
    empty = Letter(
        id=letter_id("default", "orders", "1"),
        source="orders",
        source_id="1",
        generation=generation,
        failure=Failure(type="builtins.ValueError", message="latest"),
        first_received_at=NOW,
        dead_lettered_at=NOW,
        updated_at=NOW,
        status=status,
    )
    return with_attempts(
        empty, [Attempt(at=NOW, occurrence=one, message=str(number), generation=generation) for number in range(tries)]
    )


def test_the_first_is_new() -> None:
    first = letter()
    assert arrive(None, first, NOW) == (first, Held.NEW)


def test_the_same_occurrence_twice_is_there_once() -> None:
    first = letter(tries=3)
    for status in (Status.PENDING, Status.REDRIVEN, Status.COMPLETED, Status.DISCARDED):
        known = replace(first, status=status)
        assert arrive(known, first, NOW + timedelta(hours=1)) == (known, Held.DUPLICATE)


def test_an_occurrence_is_known_even_after_its_attempts_were_let_go() -> None:
    second = letter()
    known, _ = arrive(letter(), second, NOW)
    for _ in range(HISTORY_LIMIT + 10):
        known, held = arrive(known, letter(), NOW)
        assert held is Held.ATTEMPT
    assert second.history[0] not in known.history
    assert arrive(known, second, NOW) == (known, Held.DUPLICATE)


def test_another_failure_of_an_open_letter_joins_its_history() -> None:
    known, again = letter(tries=2), letter(tries=3)
    merged, held = arrive(known, again, NOW + timedelta(hours=1))
    assert held is Held.ATTEMPT
    assert merged.history == known.history + again.history
    assert (merged.generation, merged.attempts, merged.updated_at) == (1, 5, NOW + timedelta(hours=1))


def test_no_try_is_forgotten_when_histories_grow_beyond_their_limit() -> None:
    known, again = letter(tries=HISTORY_LIMIT + 50), letter(tries=HISTORY_LIMIT + 20)
    assert (known.attempts, again.attempts) == (HISTORY_LIMIT + 50, HISTORY_LIMIT + 20)
    merged, held = arrive(known, again, NOW)
    assert held is Held.ATTEMPT
    assert len(merged.history) == HISTORY_LIMIT
    assert merged.attempts == 2 * HISTORY_LIMIT + 70
    reopened, held = arrive(replace(known, status=Status.COMPLETED), again, NOW)
    assert held is Held.REOPENED
    assert reopened.attempts == 2 * HISTORY_LIMIT + 70


def test_a_long_history_keeps_its_first_and_its_latest() -> None:
    one = letter(tries=HISTORY_LIMIT + 50)
    assert [attempt.message for attempt in (one.history[0], one.history[1], one.history[-1])] == ["0", "51", "149"]


def test_a_redriven_message_that_fails_again_opens_the_next_generation() -> None:
    known = letter(status=Status.REDRIVEN)
    reopened, held = arrive(known, letter(generation=2), NOW)
    assert held is Held.REOPENED
    assert (reopened.generation, reopened.status, reopened.attempts) == (2, Status.PENDING, 2)
    assert [attempt.generation for attempt in reopened.history] == [1, 2]


def test_it_opens_it_even_when_nobody_noted_that_it_was_sent() -> None:
    reopened, held = arrive(letter(), letter(generation=2), NOW)
    assert (reopened.generation, held) == (2, Held.REOPENED)


def test_a_late_duplicate_of_an_older_generation_changes_nothing() -> None:
    for status in (Status.PENDING, Status.REDRIVEN, Status.COMPLETED):
        known = letter(generation=4, status=status)
        assert arrive(known, letter(generation=3), NOW) == (known, Held.DUPLICATE)
    known = letter(generation=2, status=Status.REDRIVEN)
    assert arrive(known, letter(generation=2), NOW) == (known, Held.DUPLICATE)


def test_a_message_that_fails_afresh_after_its_letter_was_closed_reopens_it() -> None:
    for status in (Status.REDRIVEN, Status.COMPLETED, Status.ARCHIVED, Status.DISCARDED):
        reopened, held = arrive(letter(generation=5, status=status), letter(), NOW)
        assert (reopened.generation, reopened.status, held) == (6, Status.PENDING, Held.REOPENED)


def test_reopening_keeps_identity_and_story_and_takes_the_latest_content() -> None:
    known = replace(
        letter(status=Status.REDRIVEN),
        tags=("a",),
        metadata={"k": 1, "x": 1},
        first_received_at=NOW - timedelta(days=1),
        body=b"old",
    )
    again = replace(letter(generation=2), source="elsewhere", source_id="9", tags=("b", "a"), metadata={"k": 2}, body=b"new")
    reopened, _ = arrive(known, again, NOW)
    assert (reopened.source, reopened.source_id, reopened.id) == ("orders", "1", known.id)
    assert (reopened.tags, reopened.metadata, reopened.body) == (("a", "b"), {"k": 2, "x": 1}, b"new")
    assert reopened.first_received_at == NOW - timedelta(days=1)


def test_what_a_person_set_survives_the_reopening() -> None:
    """Identity, story and repairs stay."""
    known = replace(letter(status=Status.REDRIVEN), priority=9, expires_at=NOW + timedelta(days=3))
    reopened, _ = arrive(known, letter(generation=2), NOW)
    assert (reopened.priority, reopened.expires_at) == (9, NOW + timedelta(days=3))
