"""The guard around a consumer: what its caller sees, and what is held."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from redrive import Bury, Discard, Message, NotHeld, Policy, RedriveError, Retry, RetryPlan, Status, blocking, custom, where
from redrive.model.lease import Claim, Due
from redrive.model.policy import Case
from redrive.testing.kit.samples import LANE
from tests.unit.flaky import NO_RETRY, Flaky, both, counted, guarded, letters


@pytest.fixture
def dlq() -> Iterator[blocking.DeadLetters]:
    with blocking.open("memory:") as opened:
        yield opened


@both
def test_a_handler_that_works_is_left_alone(dlq: blocking.DeadLetters, is_async: bool) -> None:
    flaky = Flaky(0)
    assert guarded(dlq.guard(source="orders"), flaky, is_async=is_async)("a") == "done a"
    assert flaky.calls == ["a"]
    assert letters(dlq) == []


@both
def test_a_retry_that_works_gives_its_result_and_leaves_no_letter(dlq: blocking.DeadLetters, is_async: bool) -> None:
    flaky = Flaky(2)
    assert guarded(dlq.guard(source="orders"), flaky, is_async=is_async)("a") == "done a"
    assert len(flaky.calls) == 3
    assert letters(dlq) == []


@both
def test_max_attempts_failures_make_one_letter_with_the_whole_story(dlq: blocking.DeadLetters, is_async: bool) -> None:
    flaky = Flaky(99)
    guard = dlq.guard(source="orders", policy=Policy(max_attempts=3), tags=["a", "b"], metadata={"team": "shop"})
    assert guarded(guard, flaky, is_async=is_async)({"id": 7}) is None
    (letter,) = letters(dlq)
    assert len(flaky.calls) == 3
    assert (letter.source, letter.namespace, letter.status, letter.generation) == ("orders", "default", Status.PENDING, 1)
    assert (letter.body, letter.content_type) == (b'{"id":7}', "application/json")
    assert [attempt.message for attempt in letter.history] == ["failure 1", "failure 2", "failure 3"]
    assert all(attempt.took is not None and attempt.took >= timedelta(0) for attempt in letter.history)
    assert letter.failure.message == "failure 3"
    assert (letter.tags, letter.metadata) == (("a", "b"), {"team": "shop"})
    assert letter.first_received_at <= letter.history[0].at <= letter.history[-1].at <= letter.dead_lettered_at


@both
def test_swallow_is_the_default_and_answers_none(dlq: blocking.DeadLetters, is_async: bool) -> None:
    for after in (None, "swallow"):
        assert guarded(dlq.guard(source="orders", policy=NO_RETRY, after=after), Flaky(9), is_async=is_async)("a") is None
    assert len(letters(dlq)) == 2


@both
def test_raise_gives_the_last_error_with_a_note_that_names_the_letter(dlq: blocking.DeadLetters, is_async: bool) -> None:
    handle = guarded(dlq.guard(source="orders", after="raise"), Flaky(9), is_async=is_async)
    with pytest.raises(ValueError, match="failure 3") as raised:
        handle("a")
    (letter,) = letters(dlq)
    assert raised.value.__notes__ == [f"redrive: held as letter {letter.id}"]


@both
def test_verdict_gives_the_bury(dlq: blocking.DeadLetters, is_async: bool) -> None:
    handle = guarded(dlq.guard(source="orders", after="verdict"), Flaky(9), is_async=is_async)
    assert handle("a") == Bury()
    assert len(letters(dlq)) == 1


@both
def test_with_a_delivery_count_there_is_one_try_and_the_verdict_goes_back(dlq: blocking.DeadLetters, is_async: bool) -> None:
    flaky = Flaky(99)
    policy = Policy(max_attempts=3, backoff=custom(lambda count: timedelta(hours=1 + count)))
    handle = guarded(dlq.guard(source="orders", policy=policy, extract=counted), flaky, is_async=is_async)
    assert handle(1) == Retry(timedelta(hours=1))
    assert handle(2) == Retry(timedelta(hours=2))
    assert (len(flaky.calls), letters(dlq)) == (2, [])
    assert handle(3) == Bury()
    assert handle(4) == Bury()
    (letter,) = letters(dlq)
    assert letter.attempts == 2


@both
def test_swallow_cannot_swallow_what_the_source_must_deliver_again(dlq: blocking.DeadLetters, is_async: bool) -> None:
    handle = guarded(dlq.guard(source="orders", extract=counted, after="swallow"), Flaky(99), is_async=is_async)
    with pytest.raises(ValueError, match="failure 1"):
        handle(1)
    assert letters(dlq) == []
    assert handle(3) is None
    assert len(letters(dlq)) == 1


@both
def test_raise_raises_with_a_delivery_count_too(dlq: blocking.DeadLetters, is_async: bool) -> None:
    handle = guarded(dlq.guard(source="orders", extract=counted, after="raise"), Flaky(99), is_async=is_async)
    for count, held in ((1, 0), (3, 1)):
        with pytest.raises(ValueError, match="failure"):
            handle(count)
        assert len(letters(dlq)) == held


def test_the_wrapped_handler_keeps_its_name_and_signature(dlq: blocking.DeadLetters) -> None:
    @dlq.guard(source="orders")
    def handle(order: int, *, fast: bool = False) -> int:
        """Ships an order."""
        return order

    assert (handle.__name__, handle.__doc__) == ("handle", "Ships an order.")
    assert handle(3, fast=True) == 3


def test_methods_can_be_guarded_and_their_arguments_are_kept(dlq: blocking.DeadLetters) -> None:
    guard = dlq.guard(source="orders", extract=lambda self, order: Message(body=order.encode()))

    class Shop:
        @guard
        def ship(self, order: str) -> None:
            raise ValueError("bad")

    Shop().ship("a")
    assert letters(dlq)[0].body == b"a"


def test_a_guard_within_a_guard_holds_once(dlq: blocking.DeadLetters) -> None:
    @dlq.guard(source="inner", policy=NO_RETRY)
    def inner(order: str) -> None:
        raise ValueError("bad")

    @dlq.guard(source="outer", policy=NO_RETRY)
    def outer(order: str) -> None:
        inner(order)

    outer("a")
    assert [letter.source for letter in letters(dlq)] == ["inner"]


def test_a_message_without_an_id_is_a_letter_of_its_own_each_time(dlq: blocking.DeadLetters) -> None:
    handle = guarded(dlq.guard(source="orders"), Flaky(99), is_async=False)
    handle("same")
    handle("same")
    assert len(letters(dlq)) == 2


def test_a_message_with_an_id_is_one_letter_however_often_it_fails(dlq: blocking.DeadLetters) -> None:
    handle = guarded(dlq.guard(source="orders", extract=where(id="id"), policy=NO_RETRY), Flaky(99), is_async=False)
    for _ in range(3):
        handle({"id": 5})
    (letter,) = letters(dlq)
    assert (letter.source_id, letter.attempts) == ("5", 3)


def test_a_policy_of_ones_own_can_let_a_message_go(dlq: blocking.DeadLetters, caplog: pytest.LogCaptureFixture) -> None:
    class Careless(Policy, frozen=True, kw_only=True):
        def decide(self, case: Case) -> Discard:
            return Discard("nobody wants it")

    assert guarded(dlq.guard(source="orders", policy=Careless()), Flaky(9), is_async=False)("a") is None
    assert guarded(dlq.guard(source="orders", policy=Careless(), after="verdict"), Flaky(9), is_async=False)("a") == Discard(
        "nobody wants it"
    )
    assert letters(dlq) == []
    assert [(record.name, record.message) for record in caplog.records] == [("redrive.guard", "message discarded")] * 2


@pytest.mark.parametrize(("policy", "minutes"), [("immediate", 0), ("linear", 5), ("exponential", 1)])
def test_a_letter_under_a_retry_plan_comes_due(dlq: blocking.DeadLetters, policy: str, minutes: int) -> None:
    """A plan is when redrive itself tries again; only without one (`never`) does a letter wait for a person."""
    guard = dlq.guard(source="orders", policy=NO_RETRY, retry=RetryPlan(policy=policy, max_retries=3))
    guarded(guard, Flaky(9), is_async=False)("a")
    (letter,) = letters(dlq)
    assert letter.retry.next_retry_at == letter.dead_lettered_at + timedelta(minutes=minutes)
    due = dlq.letters.claim(
        Claim(owner="me", lease=timedelta(seconds=30), what=Due(LANE)), now=letter.dead_lettered_at + timedelta(minutes=minutes)
    )
    assert [one.letter.id for one in due] == [letter.id]


def test_what_a_letter_cannot_carry_is_refused_as_not_held_or_when_the_guard_is_made(tmp_path: Path) -> None:
    """Whatever the reason that a letter cannot be held, the consumer hears `NotHeld`, as it is told to rely on."""
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        for odd in ({"metadata": {"a": object()}}, {"metadata": {"a": 2**70}}, {"tags": ["\ud800"]}, {"source": "\ud800"}):
            try:
                handle = guarded(dlq.guard(**({"source": "orders", "policy": NO_RETRY} | odd)), Flaky(9), is_async=False)
            except (RedriveError, TypeError, ValueError):
                continue
            with pytest.raises(NotHeld):
                handle("a")
