"""The kit for `put`: what it means that a letter arrives, and what arriving leaves alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, overload

import pytest
from msgspec.structs import replace

from redrive.model.amendment import Amendment
from redrive.model.arrival import Held
from redrive.model.errors import RedriveError
from redrive.model.lease import Claim
from redrive.model.letter import HISTORY_LIMIT, Letter, RedriveMark, RetryPlan
from redrive.model.query import Field, Is, Query
from redrive.model.settlement import Completed, Redriven, Settled
from redrive.model.status import OPEN, Act, Status
from redrive.ports.inline import drive
from redrive.testing.kit.clerk import Clerk, Kit, Opener, Run, needs
from redrive.testing.kit.samples import START, STORED, attempt, failure, letter

_CLOSED = sorted(set(STORED) - OPEN)
_HOUR = timedelta(hours=1)


class Holding(Kit):
    """New, attempt, reopened or duplicate."""

    def test_a_new_letter_is_new_and_comes_back_as_it_was(self, store: Clerk) -> None:
        one = letter()
        assert store.put(one) == [Held.NEW]
        assert store.one(one.id) == one

    def test_answers_come_in_the_order_given(self, store: Clerk) -> None:
        store.put(letter("known"), letter("open"), letter("left", status=Status.COMPLETED))
        batch = letter("new"), letter("known"), letter("left", failed=2), letter("open", failed=2)
        assert store.put(*batch) == [Held.NEW, Held.DUPLICATE, Held.REOPENED, Held.ATTEMPT]

    def test_putting_nothing_answers_nothing(self, store: Clerk) -> None:
        assert store.put() == []
        assert store.count() == 0

    def test_the_same_occurrence_again_changes_nothing(self, store: Clerk) -> None:
        one = letter()
        store.put(one)
        store.wait(hours=1)
        assert store.put(replace(one, body=b"other", failure=failure("other.Error"), priority=9)) == [Held.DUPLICATE]
        assert store.one(one.id) == one

    @pytest.mark.parametrize("status", STORED)
    def test_the_same_occurrence_again_changes_nothing_whatever_became_of_the_letter(self, store: Clerk, status: Status) -> None:
        one = letter(status=status)
        store.put(one)
        assert store.put(letter()) == [Held.DUPLICATE]
        assert store.one(one.id) == one

    def test_repeating_a_call_changes_nothing(self, store: Clerk) -> None:
        store.put(letter("left", status=Status.REDRIVEN), letter("open"))
        batch = letter("new"), letter("left", failed=2, generation=2), letter("open", failed=2), letter("new", failed=2)
        assert store.put(*batch) == [Held.NEW, Held.REOPENED, Held.ATTEMPT, Held.ATTEMPT]
        before = store.all()
        store.wait(hours=1)
        assert store.put(*batch) == [Held.DUPLICATE] * 4
        assert store.all() == before

    @pytest.mark.parametrize("status", sorted(OPEN))
    def test_a_fresh_failure_of_an_open_letter_is_one_more_attempt(self, store: Clerk, status: Status) -> None:
        first = letter(status=status, priority=3, tags=("kept",), due=START + _HOUR)
        store.put(first)
        store.wait(minutes=1)
        second = letter(failed=2, at=store.now, failure=failure("other.Error"), body=b"later", priority=8)
        assert store.put(second) == [Held.ATTEMPT]
        expected = replace(first, failure=second.failure, history=first.history + second.history, updated_at=store.now)
        assert store.one(first.id) == expected

    def test_an_attempt_is_found_by_its_latest_failure(self, store: Clerk) -> None:
        store.put(letter())
        store.put(letter(failed=2, failure=failure("other.Error", fingerprint="other")))
        assert store.count(Is(Field.ERROR, "other.Error")) == 1
        assert store.count(Is(Field.ERROR, "TimeoutError")) == 0
        assert store.count(Is(Field.GROUP, "other")) == 1
        assert store.count(Is(Field.ATTEMPTS, 2)) == 1

    def test_within_one_batch_the_rules_apply_one_after_another(self, store: Clerk) -> None:
        batch = letter("a"), letter("a"), letter("a", failed=2), letter("b"), letter("a", failed=3, generation=2), letter("a")
        assert store.put(*batch) == [Held.NEW, Held.DUPLICATE, Held.ATTEMPT, Held.NEW, Held.REOPENED, Held.DUPLICATE]
        held = store.one(letter("a").id)
        assert held.generation == 2
        assert [one.generation for one in held.history] == [1, 1, 2]
        assert store.count() == 2

    def test_several_failures_in_one_letter_that_are_partly_known_add_what_is_fresh(self, store: Clerk) -> None:
        known, fresh = attempt("known"), attempt("fresh")
        store.put(letter(history=(known,)))
        assert store.put(letter(history=(known, fresh))) == [Held.ATTEMPT]
        assert store.one(letter().id).history == (known, fresh)

    @pytest.mark.parametrize("status", _CLOSED)
    def test_a_fresh_failure_of_a_letter_that_had_left_reopens_it(self, store: Clerk, status: Status) -> None:
        store.put(letter(status=status))
        store.wait(minutes=1)
        again = letter(failed=2, at=store.now, body=b"again", failure=failure("other.Error"))
        assert store.put(again) == [Held.REOPENED]
        held = store.one(again.id)
        assert (held.status, held.generation, held.body) == (Status.PENDING, 2, b"again")
        assert (held.failure, held.dead_lettered_at, held.updated_at) == (again.failure, store.now, store.now)
        assert [one.generation for one in held.history] == [1, 2]

    @pytest.mark.parametrize("status", STORED)
    def test_a_message_that_came_back_reopens_its_letter_with_the_next_generation(self, store: Clerk, status: Status) -> None:
        store.put(letter(status=status))
        assert store.put(letter(failed=2, generation=2)) == [Held.REOPENED]
        held = store.one(letter().id)
        assert (held.status, held.generation) == (Status.PENDING, 2)

    @pytest.mark.parametrize("status", sorted(OPEN))
    def test_a_letter_is_reopened_in_the_open_status_it_arrives_with(self, store: Clerk, status: Status) -> None:
        store.put(letter(status=Status.REDRIVEN))
        store.put(letter(failed=2, generation=2, status=status))
        assert store.one(letter().id).status is status

    def test_a_late_failure_of_an_older_generation_changes_nothing(self, store: Clerk) -> None:
        store.put(letter(generation=3))
        before = store.one(letter().id)
        assert store.put(letter(failed=2, generation=2)) == [Held.DUPLICATE]
        assert store.one(before.id) == before

    @pytest.mark.parametrize("status", _CLOSED)
    def test_a_late_failure_of_a_generation_that_has_left_changes_nothing(self, store: Clerk, status: Status) -> None:
        store.put(letter(generation=2, status=status))
        before = store.one(letter().id)
        assert store.put(letter(failed=2, generation=2)) == [Held.DUPLICATE]
        assert store.one(before.id) == before

    def test_generations_go_on_rising_through_many_rounds(self, store: Clerk) -> None:
        store.put(letter(failed=0))
        for generation in range(2, 7):
            assert store.end(store.take(letter().id), Redriven()) is Settled.DONE
            assert store.put(letter(failed=generation, generation=generation)) == [Held.REOPENED]
        held = store.one(letter().id)
        assert (held.generation, held.attempts, held.redrive.count) == (6, 6, 5)

    def test_reopening_keeps_the_story_and_the_repairs(self, store: Clerk) -> None:
        first = letter(
            at=START,
            tags=("red", "old"),
            metadata={"a": 1, "b": {"c": [2]}},
            redrive=RedriveMark(count=2, last_at=START),
            original=None,
        )
        store.put(first)
        store.amend(Amendment(id=first.id, body=b"repaired"), Amendment(id=first.id, act=Act.ARCHIVE))
        store.wait(hours=1)
        again = letter(failed=2, at=store.now, tags=("new", "red"), metadata={"b": 5}, body=b"came again")
        assert store.put(again) == [Held.REOPENED]
        held = store.one(first.id)
        assert held.tags == ("red", "old", "new")
        assert held.metadata == {"a": 1, "b": 5}
        assert held.redrive == first.redrive
        assert held.first_received_at == START
        assert held.body == b"came again"
        assert held.original is not None
        assert held.original.body == first.body

    def test_reopening_keeps_the_letters_identity(self, store: Clerk) -> None:
        first = letter("a", source="orders")
        store.put(replace(first, status=Status.REDRIVEN))
        from_elsewhere = replace(letter("x", source="orders-dead", generation=2), id=first.id)
        assert store.put(from_elsewhere) == [Held.REOPENED]
        held = store.one(first.id)
        assert (held.namespace, held.source, held.source_id) == (first.namespace, first.source, first.source_id)
        assert store.ids(Is(Field.SOURCE, held.source)) == [first.id]

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ({"kind": "old"}, {"kind": "new"}),
            ({"kind": None}, {"kind": "new"}),
            ({"key": b"old"}, {"key": b"new"}),
            ({"key": b"old"}, {"key": None}),
            ({"priority": 1}, {"priority": 2}),
            ({"tags": ()}, {"tags": ("new",)}),
            ({"expires_at": START}, {"expires_at": START + _HOUR}),
            ({"expires_at": START}, {"expires_at": None}),
            ({"dead_lettered_at": START}, {"dead_lettered_at": START + _HOUR}),
            ({"failure": failure("a.Old")}, {"failure": failure("b.New")}),
            ({"retry": RetryPlan(next_retry_at=START)}, {"retry": RetryPlan()}),
        ],
    )
    def test_a_reopened_letter_is_found_by_what_it_is_now(
        self, store: Clerk, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        store.put(letter(status=Status.REDRIVEN, **before))
        assert store.put(letter(failed=2, generation=2, **after)) == [Held.REOPENED]
        held = store.one(letter().id)
        for query in _questions_about(held):
            assert store.ids(query) == [held.id], query
        for query in _questions_about(letter(**before)):
            assert store.count(query) == (query in _questions_about(held)), query

    def test_reopening_voids_the_lease(self, store: Clerk) -> None:
        store.put(letter())
        lease = store.take(letter().id, lease=_HOUR)
        store.put(letter(failed=2, generation=2))
        assert store.one(letter().id).status is Status.PENDING
        assert store.extend(lease, by=_HOUR) == [None]
        assert store.end(lease, Completed()) is Settled.LEASE_LOST
        assert store.end(replace(lease, generation=2), Completed()) is Settled.LEASE_LOST
        newer = store.take(letter().id)
        assert newer.token > lease.token
        assert newer.generation == 2
        assert store.end(lease, Completed()) is Settled.LEASE_LOST
        assert store.end(newer, Completed()) is Settled.DONE

    def test_a_reopened_letter_is_due_by_its_new_plan_only(self, store: Clerk) -> None:
        store.put(letter("later", due=START), letter("never", due=START), letter("now"))
        store.claim(lease=_HOUR)
        store.put(
            letter("later", failed=2, generation=2, due=START + _HOUR),
            letter("never", failed=2, generation=2),
            letter("now", failed=2, generation=2, due=START),
        )
        assert [one.letter.source_id for one in store.claim()] == ["now"]
        store.wait(hours=1)
        assert [one.letter.source_id for one in store.claim(owner="bob")] == ["now", "later"]

    def test_an_attempt_leaves_the_lease_alone(self, store: Clerk) -> None:
        store.put(letter())
        lease = store.take(letter().id, lease=_HOUR)
        assert store.put(letter(failed=2)) == [Held.ATTEMPT]
        assert store.one(letter().id).status is Status.RETRYING
        assert store.end(lease, Completed()) is Settled.DONE
        held = store.one(letter().id)
        assert (held.status, held.attempts) == (Status.COMPLETED, 2)

    def test_a_duplicate_leaves_the_lease_alone(self, store: Clerk) -> None:
        store.put(letter(generation=2))
        lease = store.take(letter().id)
        assert store.put(letter(generation=2), letter(failed="late", generation=1, history=())) == [Held.DUPLICATE] * 2
        assert store.end(lease, Completed()) is Settled.DONE

    def test_the_history_keeps_the_first_and_the_latest_attempts(self, store: Clerk) -> None:
        everything = [letter(failed=number) for number in range(HISTORY_LIMIT + 5)]
        store.put(*everything[:3])
        store.put(*everything[3:])
        held = store.one(letter().id)
        kept = [everything[0], *everything[6:]]
        assert held.history == tuple(one.history[0] for one in kept)
        assert (held.history_dropped, held.attempts) == (5, HISTORY_LIMIT + 5)
        assert store.count(Is(Field.ATTEMPTS, HISTORY_LIMIT + 5)) == 1

    def test_a_new_letter_with_a_long_history_is_trimmed_too(self, store: Clerk) -> None:
        tries = tuple(attempt(f"try {number}") for number in range(HISTORY_LIMIT + 20))
        store.put(letter(history=tries))
        held = store.one(letter().id)
        assert held.history == (tries[0], *tries[21:])
        assert held.attempts == HISTORY_LIMIT + 20

    def test_repeating_a_call_with_more_attempts_than_are_kept_changes_nothing(self, store: Clerk) -> None:
        batch = [letter(failed=number, at=START + timedelta(seconds=number)) for number in range(HISTORY_LIMIT + 5)]
        store.put(*batch)
        before = store.one(letter().id)
        assert store.put(*batch) == [Held.DUPLICATE] * len(batch)
        assert store.one(letter().id) == before

    def test_an_occurrence_that_is_twice_in_one_letter_counts_once(self, store: Clerk) -> None:
        store.put(letter())
        twice = attempt("twice")
        store.put(letter(history=(twice, twice)))
        assert store.one(letter().id).attempts == 2

    def test_a_letter_that_was_read_while_it_was_leased_arrives_elsewhere_as_open(
        self, store: Clerk, opener: Opener, tmp_path: Path, run: Run
    ) -> None:
        store.put(letter(due=START))
        (claimed,) = store.claim()
        assert claimed.letter.status is Status.RETRYING
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        other = Clerk(opener(elsewhere), run)
        other.put(claimed.letter)
        assert other.one(letter().id).status is Status.PENDING
        assert [one.letter.id for one in other.claim()] == [letter().id]
        other.close()

    def test_what_a_caller_does_to_its_own_values_does_not_reach_the_store(self, store: Clerk) -> None:
        details: dict[str, Any] = {"inner": {"x": 1}}
        store.put(letter(metadata=details))
        details["inner"]["x"] = 2
        assert store.one(letter().id).metadata == {"inner": {"x": 1}}
        store.one(letter().id).metadata["added"] = True
        assert store.one(letter().id).metadata == {"inner": {"x": 1}}

    def test_a_large_batch_is_held_and_read_in_one_call(self, store: Clerk) -> None:
        batch = [letter(str(number), history=()) for number in range(17_000)]
        assert store.put(*batch) == [Held.NEW] * len(batch)
        assert store.get(*(one.id for one in batch)) == batch

    def test_a_put_that_raises_has_changed_nothing(self, store: Clerk) -> None:
        store.put(letter("known"))
        hopeless = letter("hopeless", metadata={"what": object()})
        try:
            store.put(letter("good"), letter("known", failed=2), hopeless)
        except Exception:  # which one is the store's own affair: a user's mistake, not an error of the port
            assert store.all() == [letter("known")]
        else:
            assert store.count() == 3
        assert store.put(letter("good")) in ([Held.NEW], [Held.DUPLICATE])

    def test_text_that_utf8_cannot_hold_is_held_or_refused_in_redrives_words(self, store: Clerk) -> None:
        # What `os.fsdecode` makes of a file name that is not UTF-8, and so what error messages are made of.
        odd = letter(failure=failure(message="no such file: caf\udce9"))
        try:
            store.put(odd)
        except RedriveError:
            assert store.count() == 0
        else:
            assert store.one(odd.id).failure.type == odd.failure.type

    def test_without_an_instant_the_stores_own_clock_decides(self, store: Clerk, run: Run) -> None:
        store.put(letter())
        before = datetime.now(UTC)
        claim = Claim(owner="ann", lease=_HOUR, what=(letter().id,))
        (claimed,) = run(store.store.claim(claim))
        assert before - timedelta(minutes=5) < claimed.lease.until - _HOUR < datetime.now(UTC) + timedelta(minutes=5)
        (seen,) = run(store.store.get([letter().id]))
        assert seen is not None
        assert seen.status is Status.RETRYING

    def test_an_interrupt_amid_a_verb_leaves_the_store_usable(self, store: Clerk) -> None:
        needs(store, "inline")
        drive(store.store.put([letter("before")], now=START))
        with pytest.raises(KeyboardInterrupt):
            drive(store.store.put(_Interrupted(), now=START))
        assert drive(store.store.put([letter("after")], now=START)) == [Held.NEW]
        assert store.count() == 2


class _Interrupted(Sequence[Letter]):
    """A batch in whose midst somebody presses Ctrl-C."""

    @overload
    def __getitem__(self, index: int) -> Letter: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Letter]: ...
    def __getitem__(self, index: int | slice) -> Letter | Sequence[Letter]:
        raise KeyboardInterrupt

    def __iter__(self) -> Iterator[Letter]:
        yield letter("never held")
        raise KeyboardInterrupt

    def __len__(self) -> int:
        return 2


def _questions_about(one: Letter) -> list[Query]:
    """A question for each field that the letter answers with yes."""
    values: list[tuple[Field, Any]] = [
        (Field.KIND, one.kind),
        (Field.POLICY, one.retry.policy),
        (Field.KEY, one.key),
        (Field.PRIORITY, one.priority),
        (Field.EXPIRES_AT, one.expires_at),
        (Field.DEAD_LETTERED_AT, one.dead_lettered_at),
        (Field.ERROR, one.failure.type),
        (Field.GROUP, one.failure.fingerprint),
        (Field.NEXT_RETRY_AT, one.retry.next_retry_at),
        *((Field.TAG, tag) for tag in one.tags),
    ]
    return [Is(field, value) for field, value in values if value is not None]
