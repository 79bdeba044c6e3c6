"""Which task of the workflow DLQ goes first, which waits for another, and when it comes again by a backoff of one's own."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive import CircularDependency
from redrive.workflows import Defaults
from tests.unit.waiting import until
from tests.unit.workflow_use import Works, due, failing, kept, lived, queue, seen, status, until_it_is

ONE_AT_A_TIME = Defaults(concurrency=1)


@pytest.mark.parametrize(
    ("given", "number"),
    [
        ({"priority": "high"}, 10),
        ({"priority": "Medium"}, 0),
        ({"priority": "low"}, -10),
        ({"priority": 7}, 7),
        ({"metadata": {"priority": "high"}}, 10),
        ({"metadata": {"priority": "LOW"}}, -10),
        ({"metadata": {"priority": 3}}, 3),
        ({"metadata": {"priority": "as soon as you can"}}, 0),
        ({"metadata": {"priority": None}}, 0),
        ({"metadata": {"priority": "high"}, "priority": "low"}, -10),
        ({}, 0),
    ],
)
@lived
async def test_a_priority_is_a_word_or_a_number_given_or_in_the_metadata(
    tmp_path: Path, given: dict[str, Any], number: int
) -> None:
    async with queue(tmp_path) as dlq:
        assert (await kept(dlq, **given)).priority == number
        assert (await seen(dlq)).priority == number


@lived
async def test_the_higher_priority_goes_first(tmp_path: Path) -> None:
    async with queue(tmp_path, defaults=ONE_AT_A_TIME) as dlq:
        for name in ("low", "medium", "high", "low", "high"):
            number = len(await dlq.list_tasks())
            await kept(dlq, f"wf_{number}", task={"type": name}, metadata={"priority": name}, retry_policy="immediate")
        callback = Works()
        await dlq.start_retry_processor(callback)
        await until(callback.was_called(5))
        assert callback.types[:2] == ["high", "high"]
        # Every now and then the one that has waited longest has its turn, so that none waits for ever.
        assert sorted(callback.types[2:]) == ["low", "low", "medium"]


@lived
async def test_a_task_waits_until_the_one_it_depends_on_has_worked(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        await kept(dlq, "a", task={"type": "a"})
        await kept(dlq, "b", task={"type": "b"}, depends_on=["a"], retry_policy="immediate")
        callback = Works()
        await dlq.start_retry_processor(callback)

        async def is_waiting() -> bool:
            return (await seen(dlq, "b")).waits_for == "'a' (pending)"

        await until(is_waiting)
        answer = await dlq.retry_task("b")
        assert (answer["success"], answer["error"].endswith("waits for 'a' (pending); retry that first")) == (False, True)
        task = await seen(dlq, "b")
        assert (task.retry_count, task.depends_on, callback.calls) == (0, ["a"], [])
        await due(dlq, "a")
        await until_it_is(dlq, "completed", "b")
        assert callback.types == ["a", "b"]


@lived
async def test_a_task_waits_for_one_that_is_exhausted_until_a_person_has_mended_it(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        await kept(dlq, "a", max_retries=0)
        await kept(dlq, "b", depends_on=["a"])
        assert "'a' (exhausted)" in (await dlq.retry_task("b", Works()))["error"]
        assert (await dlq.retry_task("a", Works()))["success"]
        assert (await dlq.retry_task("b", Works()))["success"]


@lived
async def test_nobody_waits_for_a_task_that_has_not_failed(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        await kept(dlq, depends_on=["never heard of", "never heard of"])
        assert (await seen(dlq)).depends_on == ["never heard of"]
        assert (await dlq.retry_task("wf_1", Works()))["success"]


@lived
async def test_circles_are_refused_and_nothing_is_kept(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        with pytest.raises(CircularDependency, match="'a' would wait for itself: a → a"):
            await kept(dlq, "a", depends_on=["a"])
        await kept(dlq, "a", depends_on=["b"])
        await kept(dlq, "b", depends_on=["c"])
        with pytest.raises(ValueError, match="'c' would wait for itself: c → a → b → c"):
            await kept(dlq, "c", depends_on=["a"])
        assert await dlq.get_task("c") is None
        await kept(dlq, "c")


@lived
async def test_circles_are_refused_also_when_they_come_at_once(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        names = ["a", "b", "c", "d"]
        rounds = [kept(dlq, name, depends_on=[names[number - 1]]) for number, name in enumerate(names)]
        answers = await asyncio.gather(*rounds, return_exceptions=True)
        assert [isinstance(answer, CircularDependency) for answer in answers].count(True) == 1
        assert len(await dlq.list_tasks()) == 3


@lived
async def test_a_backoff_of_ones_own_says_when(tmp_path: Path) -> None:
    asked: list[int] = []

    def fibonacci(retry_count: int) -> timedelta | None:
        asked.append(retry_count)
        return timedelta(hours=[1, 1, 2, 3, 5][retry_count]) if retry_count < 5 else None

    redrive.register_backoff("fibonacci", fibonacci)
    async with queue(tmp_path) as dlq:
        task = await kept(dlq, retry_policy="fibonacci", max_retries=9)
        assert (task.retry_policy, task.next_retry_at) == ("fibonacci", task.failed_at + timedelta(hours=1))
        for hours in (1, 2, 3):
            await dlq.retry_task("wf_1", failing())
            task = await seen(dlq)
            assert task.next_retry_at is not None
            assert task.updated_at is not None
            assert abs(task.next_retry_at - task.updated_at - timedelta(hours=hours)) < timedelta(minutes=1)
    assert set(asked) == {0, 1, 2, 3}


@lived
async def test_a_backoff_that_is_not_registered_is_refused_at_once(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        with pytest.raises(redrive.BadSettings, match="'tomorrow' is no retry policy"):
            await kept(dlq, retry_policy="tomorrow")


@lived
async def test_a_backoff_that_only_another_process_knows_costs_no_attempt(tmp_path: Path) -> None:
    redrive.register_backoff("elsewhere", lambda _: timedelta())
    async with queue(tmp_path) as dlq:
        await kept(dlq, retry_policy="elsewhere")
        known = redrive.model.backoff._BY_NAME.pop("elsewhere")
        try:
            callback = Works()
            await dlq.start_retry_processor(callback)

            async def is_waiting() -> bool:
                return "elsewhere" in (await seen(dlq)).waits_for

            await until(is_waiting)
            assert (callback.calls, await status(dlq)) == ([], "pending")
        finally:
            redrive.register_backoff("elsewhere", known)
