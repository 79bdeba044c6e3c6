"""Retrying tasks of the workflow DLQ: by hand and by the processor, and never both at once."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive.model.breaker import Breaker
from redrive.workflows import DeadLetterQueue, DeadLetterStatus
from tests.unit.workflow_use import (
    REPOS,
    SOON,
    TASK,
    Held,
    Works,
    due,
    failing,
    kept,
    lifetime,
    lived,
    queue,
    seen,
    status,
    until,
    until_counted,
    until_it_is,
)

NOT_FOUND = "Task wf_1 not found in dead letter queue"
NO_CALLBACK = "No retry callback configured. Use start_retry_processor() first."


def refused(error: str, task_id: str = "wf_1") -> dict[str, Any]:
    return {"success": False, "task_id": task_id, "error": error, "message": "Task retry failed"}


@lived
async def test_a_retry_that_works_completes_the_task(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        await kept(dlq)
        callback = Works({"swept": 3})
        await dlq.start_retry_processor(callback)
        assert await dlq.retry_task("wf_1") == {
            "success": True,
            "task_id": "wf_1",
            "result": {"swept": 3},
            "message": "Task successfully retried",
        }
        assert callback.calls == [(TASK, REPOS)]
        task = await seen(dlq)
        assert (task.status, task.next_retry_at) == (DeadLetterStatus.COMPLETED, None)
        assert await dlq.list_tasks() == []
        await until_counted(dlq, enqueued_total=1, manually_retried=1, retry_success=1)


@lived
async def test_a_retry_that_fails_is_counted_and_says_why(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        await kept(dlq, error="Connection timeout")
        await dlq.start_retry_processor(failing())
        assert await dlq.retry_task("wf_1") == refused("still down")
        task = await seen(dlq)
        assert (task.status, task.retry_count, task.total_attempts) == (DeadLetterStatus.PENDING, 1, 2)
        assert (task.error, task.last_error) == ("Connection timeout", "still down")
        await until_counted(dlq, enqueued_total=1, manually_retried=1, retry_failed=1)


@lived
async def test_what_cannot_be_retried_is_told(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        assert await dlq.retry_task("wf_1") == refused(NO_CALLBACK)
        await dlq.start_retry_processor(Works())
        assert await dlq.retry_task("wf_1") == refused(NOT_FOUND)
        await kept(dlq)
        await dlq.archive_task("wf_1")
        assert await dlq.retry_task("wf_1") == refused(NOT_FOUND)
        await kept(dlq)
        assert (await dlq.retry_task("wf_1"))["success"]
        assert await dlq.retry_task("wf_1") == refused(NOT_FOUND)
        await kept(dlq)
        await dlq.clear_all()
        assert await dlq.retry_task("wf_1") == refused(NOT_FOUND)
        await until_counted(dlq, enqueued_total=3, archived=1, manually_retried=1, retry_success=1)


@lived
async def test_a_callback_is_known_after_the_processor_was_stopped(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        await dlq.start_retry_processor(Works())
        await dlq.stop_retry_processor()
        await dlq.stop_retry_processor()
        await kept(dlq)
        assert (await dlq.retry_task("wf_1"))["success"]


FAILURES: list[tuple[Any, str]] = [
    ({"status": "failed"}, "the handler returned {'status': 'failed'}"),
    ({"status": "failed", "error": "adapter is gone"}, "adapter is gone"),
    ({"success": False}, "the handler returned {'success': False}"),
    ({"success": False, "message": "no luck"}, "no luck"),
    (TimeoutError(), "TimeoutError"),
    (ConnectionError("down"), "down"),
]


@pytest.mark.parametrize(("answer", "told"), FAILURES)
@lived
async def test_a_callback_that_says_it_failed_has_failed(tmp_path: Path, answer: Any, told: str) -> None:
    async with queue(tmp_path) as dlq:
        await kept(dlq, max_retries=2)
        result = await dlq.retry_task("wf_1", Works(answer))
        assert (result["success"], (await seen(dlq)).retry_count, await status(dlq)) == (False, 1, "pending")
        assert result["error"] == told
        await due(dlq)
        await dlq.start_retry_processor(Works(answer))
        await until_it_is(dlq, "exhausted")
        await until_counted(dlq, enqueued_total=1, manually_retried=1, retry_failed=2, exhausted=1)


@pytest.mark.parametrize("answer", [None, "done", {}, {"status": "completed"}, {"success": True}, [1], {"status": None}])
@lived
async def test_a_callback_that_says_anything_else_has_worked(tmp_path: Path, answer: Any) -> None:
    async with queue(tmp_path) as dlq:
        await kept(dlq)
        assert (await dlq.retry_task("wf_1", Works(answer)))["result"] == answer
        assert await status(dlq) == "completed"


@lived
async def test_repeated_failures_by_hand_exhaust_a_task_which_stays_and_may_be_tried_again(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        await kept(dlq, max_retries=2)
        for count in (1, 2, 3):
            assert not (await dlq.retry_task("wf_1", failing()))["success"]
            task = await seen(dlq)
            assert (task.retry_count, task.status) == (count, "pending" if count < 2 else "exhausted")
            assert (task.next_retry_at is None) is (count >= 2)
        assert [task.task_id for task in await dlq.list_tasks(status=DeadLetterStatus.EXHAUSTED)] == ["wf_1"]
        # It was exhausted once, however often a person tries.
        assert (await lifetime(dlq))["exhausted"] == 1
        assert (await dlq.retry_task("wf_1", Works()))["success"]
        assert await status(dlq) == "completed"


@lived
async def test_without_retries_a_task_is_exhausted_from_the_start(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        callback = Works()
        await dlq.start_retry_processor(callback, check_interval_seconds=0.01)
        task = await kept(dlq, retry_policy="immediate", max_retries=0)
        assert (task.status, task.next_retry_at) == ("exhausted", None)
        await kept(dlq, "wf_2", retry_policy="immediate")
        await until_it_is(dlq, "completed", "wf_2")
        assert len(callback.calls) == 1
        assert (await lifetime(dlq))["exhausted"] == 1


@lived
async def test_the_processor_retries_until_it_works(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        callback = Works(ConnectionError("down"), {"status": "failed"}, {"status": "completed"})
        await dlq.start_retry_processor(callback, check_interval_seconds=60)
        await kept(dlq, retry_policy=SOON)
        await until_it_is(dlq, "completed")
        assert len(callback.calls) == 3
        task = await seen(dlq)
        assert (task.retry_count, task.total_attempts) == (2, 3)
        await until_counted(dlq, enqueued_total=1, retry_failed=2, retry_success=1)


@lived
async def test_the_processor_gives_up_after_the_last_retry_and_the_task_stays(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        callback = failing()
        await dlq.start_retry_processor(callback)
        await kept(dlq, retry_policy=SOON, max_retries=3)
        await until_it_is(dlq, "exhausted")
        await kept(dlq, "wf_2", retry_policy=SOON, max_retries=1)
        await until_it_is(dlq, "exhausted", "wf_2")
        assert len(callback.calls) == 4
        await until_counted(dlq, enqueued_total=2, retry_failed=4, exhausted=2)


@lived
async def test_a_task_that_is_never_retried_waits_for_a_person(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        callback = Works()
        await dlq.start_retry_processor(callback, check_interval_seconds=0.01)
        await kept(dlq, retry_policy="never", max_retries=3)
        await kept(dlq, "wf_2", retry_policy="immediate", task={"type": "other"})
        await until_it_is(dlq, "completed", "wf_2")
        assert (await status(dlq), callback.types) == ("pending", ["other"])
        assert (await dlq.retry_task("wf_1"))["success"]


@lived
async def test_the_first_pass_is_at_once_and_what_comes_due_later_is_found(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        await kept(dlq, "wf_1", retry_policy="immediate")
        await kept(dlq, "wf_2")
        callback = Works()
        await dlq.start_retry_processor(callback, check_interval_seconds=3600)
        await until_it_is(dlq, "completed", "wf_1")
        assert await status(dlq, "wf_2") == "pending"
        await due(dlq, "wf_2")
        await until_it_is(dlq, "completed", "wf_2")


@lived
async def test_tasks_that_are_due_run_side_by_side(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        for number in range(8):
            await kept(dlq, f"wf_{number}", retry_policy="immediate")
        held = Held()
        await dlq.start_retry_processor(held)
        await until(held.holds(8))
        assert (await dlq.get_statistics())["status_breakdown"]["retrying"] == 8
        held.gate.set()
        for number in range(8):
            await until_it_is(dlq, "completed", f"wf_{number}")
        assert held.calls == 8


@lived
async def test_a_task_is_never_run_by_hand_and_by_the_processor_at_once(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq, queue(tmp_path) as other:
        held = Held()
        await kept(dlq, retry_policy="immediate")
        await dlq.start_retry_processor(held)
        await until(held.holds(1))
        being_retried = refused("Task wf_1 is being retried right now")
        assert await dlq.retry_task("wf_1") == being_retried
        assert await other.retry_task("wf_1", Works()) == being_retried
        assert (await dlq.archive_task("wf_1"), await dlq.clear_all()) == (False, 0)
        held.gate.set()
        await until_it_is(dlq, "completed")
        assert (held.calls, held.most) == (1, 1)
        await until_counted(dlq, enqueued_total=1, retry_success=1)


@lived
async def test_two_processors_share_the_work_and_do_nothing_twice(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq, queue(tmp_path) as other:
        for number in range(40):
            await kept(dlq, f"wf_{number}", retry_policy="immediate", task={"type": number})
        one, two = Works(), Works()
        await dlq.start_retry_processor(one)
        await other.start_retry_processor(two)
        for number in range(40):
            await until_it_is(dlq, "completed", f"wf_{number}")
        assert sorted(one.types + two.types) == list(range(40))
        await until_counted(dlq, enqueued_total=40, retry_success=40)


@lived
async def test_stopping_in_the_middle_of_a_retry_leaves_nothing_retrying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import redrive.workflows.queue as module

    monkeypatch.setattr(module, "Pace", partial(redrive.Pace, grace=redrive.engine.processor.timedelta(milliseconds=10)))
    async with queue(tmp_path) as dlq:
        held = Held()
        for number in range(3):
            await kept(dlq, f"wf_{number}", retry_policy="immediate")
        await dlq.start_retry_processor(held)
        await until(held.holds(3))
        await dlq.stop_retry_processor()
        stats = await dlq.get_statistics()
        assert (stats["status_breakdown"]["pending"], stats["status_breakdown"]["retrying"]) == (3, 0)
        assert (stats["is_processor_running"], stats["retry_interval_seconds"]) == (False, None)
        # No attempt was spent, and the next processor goes on.
        assert (await seen(dlq, "wf_0")).retry_count == 0
        await dlq.start_retry_processor(Works())
        for number in range(3):
            await until_it_is(dlq, "completed", f"wf_{number}")


@lived
async def test_a_retry_by_hand_that_is_cut_off_leaves_nothing_retrying(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        await kept(dlq)
        held = Held()
        retry = asyncio.create_task(dlq.retry_task("wf_1", held))
        await until(held.holds(1))
        retry.cancel()
        await asyncio.wait([retry])
        task = await seen(dlq)
        assert (retry.cancelled(), task.status, task.retry_count) == (True, "pending", 0)


@lived
async def test_starting_twice_is_one_processor(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with queue(tmp_path) as dlq:
        first, second = Works(), Works()
        await dlq.start_retry_processor(first, check_interval_seconds=30)
        with caplog.at_level(logging.WARNING, "redrive.workflows"):
            await dlq.start_retry_processor(second, check_interval_seconds=90)
        assert caplog.messages == ["The retry processor is running already"]
        assert (await dlq.get_statistics())["retry_interval_seconds"] == 30
        await kept(dlq, retry_policy="immediate")
        await until_it_is(dlq, "completed")
        assert (len(first.calls), len(second.calls)) == (1, 0)


@pytest.mark.parametrize("interval", [0, -1])
@lived
async def test_an_interval_of_nothing_is_refused(tmp_path: Path, interval: float) -> None:
    async with queue(tmp_path) as dlq:
        with pytest.raises(redrive.BadSettings, match="interval must be longer than nothing"):
            await dlq.start_retry_processor(Works(), check_interval_seconds=interval)
        assert not dlq.is_processor_running


@lived
async def test_the_processor_goes_on_when_figures_and_managers_fail(tmp_path: Path) -> None:
    def broken(event: str, attributes: object) -> None:
        raise RuntimeError("no metrics today")

    async with queue(tmp_path, observability_manager=broken) as dlq:
        await dlq.start_retry_processor(Works())
        for number in range(3):
            await kept(dlq, f"wf_{number}", retry_policy="immediate")
            await until_it_is(dlq, "completed", f"wf_{number}")


def plainly(seen_in: list[str]) -> Callable[..., Any]:
    def callback(task: dict[str, Any], repos: list[str]) -> dict[str, Any]:
        seen_in.append(threading.current_thread().name)
        return {"status": "completed", "repos": repos}

    return callback


@lived
async def test_a_callback_may_be_any_callable(tmp_path: Path) -> None:
    threads: list[str] = []
    plain = plainly(threads)

    async def coroutine(prefix: str, task: dict[str, Any], repos: list[str]) -> dict[str, Any]:
        return {"status": "completed", "repos": repos, "prefix": prefix}

    async with queue(tmp_path) as dlq:
        for number, callback in enumerate((plain, partial(plain), partial(coroutine, "x"), Works({"repos": REPOS}))):
            await kept(dlq, f"wf_{number}")
            answer = await dlq.retry_task(f"wf_{number}", callback)
            assert (answer["success"], answer["result"]["repos"]) == (True, REPOS)
    # A plain function holds up no event loop.
    assert len(threads) == 2
    assert threading.current_thread().name not in threads


@lived
async def test_while_the_breaker_is_open_no_attempt_is_spent(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        now = 0.0
        dlq.letters.breakers.clock = lambda: now
        callback = failing()
        for number in range(6):
            await kept(dlq, f"wf_{number}", max_retries=9)
        for number in range(5):
            await dlq.retry_task(f"wf_{number}", callback)
        assert await dlq.retry_task("wf_5", callback) == refused("Circuit breaker is open, request denied", "wf_5")
        assert (len(callback.calls), (await seen(dlq, "wf_5")).retry_count) == (5, 0)
        assert (await seen(dlq, "wf_5")).waits_for == "Circuit breaker is open, request denied"
        now = 60.0
        assert (await dlq.retry_task("wf_5", Works()))["success"]
        assert (await dlq.retry_task("wf_4", Works()))["success"]
        assert (await lifetime(dlq))["manually_retried"] == 7


@lived
async def test_the_processor_waits_for_an_open_breaker(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        dlq.letters.breakers._make = lambda: Breaker(failures=2, rest=redrive.engine.retry.timedelta(milliseconds=100))
        callback = Works(ConnectionError("down"), ConnectionError("down"), {"status": "completed"})
        await dlq.start_retry_processor(callback)
        await kept(dlq, retry_policy=SOON, max_retries=3)
        await until_it_is(dlq, "completed")
        assert (len(callback.calls), (await seen(dlq)).retry_count) == (3, 2)


@lived
async def test_a_task_of_which_the_callback_makes_a_task_again_is_still_one(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:

        async def callback(task: dict[str, Any], repos: list[str]) -> dict[str, Any]:
            # A callback that keeps what it fails on by itself, as it would outside a retry.
            again = await kept(dlq, "wf_1", "down again")
            return {"status": "failed", "error": "down again", "task": again.task_id}

        await kept(dlq, max_retries=3)
        assert not (await dlq.retry_task("wf_1", callback))["success"]
        task = await seen(dlq)
        assert (task.retry_count, task.total_attempts, len(await dlq.list_tasks())) == (1, 2, 1)


def test_a_queue_may_be_used_by_one_event_loop_after_another(tmp_path: Path) -> None:
    dlq: DeadLetterQueue = queue(tmp_path)
    asyncio.run(_used(dlq, "wf_1"))
    asyncio.run(_used(dlq, "wf_2"))

    async def end() -> None:
        assert len(await dlq.list_tasks(DeadLetterStatus.COMPLETED)) == 2
        await dlq.close()

    asyncio.run(end())


async def _used(dlq: DeadLetterQueue, task_id: str) -> None:
    await dlq.start_retry_processor(Works())
    await kept(dlq, task_id, retry_policy="immediate")
    await until_it_is(dlq, "completed", task_id)
    await dlq.stop_retry_processor()
