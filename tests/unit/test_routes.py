"""Letters go where the policy's routes lead, and are never lost on the way."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import redrive
import redrive.blocking
from redrive import BadSettings, Bury, Category, Discard, Message, Policy, Retry, Route, Rule
from redrive.backends.memory.desk import MemoryDesk
from redrive.backends.memory.letters import MemoryLetters
from redrive.engine.dead_letters import DeadLetters
from redrive.model.policy import Case, Verdict


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


ROUTED = Policy(max_attempts=1, routes=(Route(errors=(PermissionError,), to="sqlite:security.db"),))  # type: ignore[arg-type]


def sources(url: str) -> list[str]:
    with redrive.blocking.open(url) as dlq:
        return sorted(one.source for one in dlq.find())


def test_a_letter_is_held_where_its_error_leads() -> None:
    with redrive.blocking.open("sqlite:own.db") as dlq:

        @dlq.guard(source="orders", policy=ROUTED, after="verdict")
        def handle(error: type[Exception]) -> None:
            raise error("no")

        assert handle(PermissionError) == Bury("sqlite:security.db")
        assert handle(ValueError) == Bury()
        with dlq.guard(source="blocks", policy=ROUTED).attempt(1) as trial:
            raise PermissionError("no")
        assert trial.verdict == Bury("sqlite:security.db")
    assert sources("sqlite:own.db") == ["orders"]
    assert sources("sqlite:security.db") == ["blocks", "orders"]


def test_a_batch_is_parted_by_where_its_letters_go() -> None:
    async def scene() -> None:
        async with redrive.open("sqlite:own.db") as dlq:

            async def handle(number: int) -> None:
                raise PermissionError("no") if number % 2 else ValueError("no")

            answers = await dlq.guard(source="orders", policy=ROUTED).each(range(6), handle)
            assert answers == [Bury(), Bury("sqlite:security.db")] * 3
            assert await dlq.count() == 3

    asyncio.run(scene())
    assert len(sources("sqlite:security.db")) == 3


def test_a_route_to_nowhere_is_refused_before_anything_fails() -> None:
    nowhere = Policy(routes=(Route(errors=("X",), to="sqlit:x.db"),))
    with redrive.blocking.open("sqlite:own.db") as dlq, pytest.raises(BadSettings, match="did you mean sqlite:"):
        dlq.guard(source="orders", policy=nowhere)
    by_hand = DeadLetters(MemoryLetters(), MemoryDesk())
    with pytest.raises(BadSettings, match=r"only redrive\.open can open another store"):
        by_hand.guard(source="orders", policy=ROUTED)


def test_when_the_other_store_cannot_hold_it_the_caller_is_told(folder: Path) -> None:
    (folder / "security.db").mkdir()
    with redrive.blocking.open("sqlite:own.db") as dlq:

        @dlq.guard(source="orders", policy=ROUTED)
        def handle(order: int) -> None:
            raise PermissionError("no")

        with pytest.raises(redrive.NotHeld):
            handle(1)
    assert sources("sqlite:own.db") == []


def test_a_message_that_was_received_long_ago_is_given_up_on() -> None:
    received = datetime.now(UTC) - timedelta(hours=2)
    tries: list[int] = []

    def extract(number: int) -> Message:
        return Message(body=b"{}", id=str(number), received_at=received if number else None)

    with redrive.blocking.open("sqlite:own.db") as dlq:

        @dlq.guard(source="orders", policy=Policy(max_attempts=3, max_age=timedelta(hours=1)), extract=extract)
        def handle(number: int) -> None:
            tries.append(number)
            raise ConnectionError("no")

        handle(1)
        handle(0)
    assert tries == [1, 0, 0, 0]


def test_ones_own_word_sees_the_message(caplog: pytest.LogCaptureFixture) -> None:
    def decide(case: Case) -> Verdict | None:
        return Discard("a test order") if case.message.id == "test" else None

    with redrive.blocking.open("sqlite:own.db") as dlq:

        @dlq.guard(
            source="orders",
            policy=Policy(max_attempts=1, custom=decide),
            extract=lambda name: Message(body=b"{}", id=name),
            after="verdict",
        )
        def handle(name: str) -> None:
            raise ValueError("no")

        with caplog.at_level(logging.WARNING):
            assert handle("test") == Discard("a test order")
        assert handle("real") == Bury()
        assert dlq.count() == 1


def test_an_excluded_error_is_tried_until_it_works() -> None:
    left = [3]
    with redrive.blocking.open("sqlite:own.db") as dlq:

        @dlq.guard(source="orders", policy=Policy(max_attempts=1, exclude_errors=("TimeoutError",)))
        def handle(order: int) -> str:
            if left[0]:
                left[0] -= 1
                raise TimeoutError
            return "done"

        assert handle(1) == "done"
        assert dlq.count() == 0
    assert Policy(max_attempts=1, exclude_errors=("TimeoutError",)).judge(TimeoutError(), 9) == Retry(timedelta())


def test_a_letter_has_the_category_that_the_policys_rules_say() -> None:
    rule = Rule(category=Category.RESOURCE, error="ValueError")
    with redrive.blocking.open("sqlite:own.db") as dlq:

        @dlq.guard(source="orders", policy=Policy(max_attempts=1, rules=(rule,)))
        def handle(order: int) -> None:
            raise ValueError("no")

        handle(1)
        (letter,) = dlq.find()
    assert letter.failure.category is Category.RESOURCE
