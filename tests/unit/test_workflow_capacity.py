"""The workflow DLQ's limit: it holds exactly, it counts only what is in this queue, and nothing is lost by it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import redrive
from redrive import QueueFull, RedriveError
from redrive.workflows import DeadLetterStatus
from tests.unit.waiting import until
from tests.unit.workflow_use import Works, kept, lived, place, queue, seen, status, until_it_is

FULL = "Dead letter queue is full (max_size=2). Please manually process or archive tasks before adding more."


async def size(dlq: redrive.workflows.DeadLetterQueue) -> int:
    return int((await dlq.get_statistics())["queue_size"])


async def fits(dlq: redrive.workflows.DeadLetterQueue, task_id: str) -> bool:
    try:
        await kept(dlq, task_id)
    except QueueFull:
        return False
    return True


@lived
async def test_a_full_queue_says_so_and_the_failure_stays_the_callers(tmp_path: Path) -> None:
    async with queue(tmp_path, 2) as dlq:
        await kept(dlq, "wf_1")
        await kept(dlq, "wf_2")
        with pytest.raises(ValueError) as raised:
            await kept(dlq, "wf_3")
        assert str(raised.value) == FULL
        assert isinstance(raised.value, RedriveError)
        assert await dlq.get_task("wf_3") is None
        assert {task.task_id for task in await dlq.list_tasks()} == {"wf_1", "wf_2"}
        assert (await dlq.get_statistics())["utilization_percent"] == 100.0


@pytest.mark.parametrize("way", ["archived", "completed", "cleared"])
@lived
async def test_what_leaves_the_queue_makes_room_at_once(tmp_path: Path, way: str) -> None:
    async with queue(tmp_path, 2) as dlq:
        await kept(dlq, "wf_1")
        await kept(dlq, "wf_2")
        assert not await fits(dlq, "wf_3")
        match way:
            case "archived":
                assert await dlq.archive_task("wf_1")
            case "completed":
                assert (await dlq.retry_task("wf_1", Works()))["success"]
            case _:
                assert await dlq.clear_all() == 2
        assert await fits(dlq, "wf_3")
        assert await fits(dlq, "wf_4") is (way == "cleared")
        assert await size(dlq) == 2


@lived
async def test_what_another_process_takes_out_makes_room_too(tmp_path: Path) -> None:
    async with queue(tmp_path, 2) as dlq, queue(tmp_path, 2) as other:
        await kept(dlq, "wf_1")
        await kept(dlq, "wf_2")
        assert not await fits(dlq, "wf_3")
        assert await other.archive_task("wf_2")
        assert await fits(dlq, "wf_3")


@lived
async def test_an_exhausted_task_takes_room_and_one_that_is_being_retried_too(tmp_path: Path) -> None:
    async with queue(tmp_path, 2) as dlq:
        await kept(dlq, "wf_1", max_retries=0)
        await kept(dlq, "wf_2")
        gate = asyncio.Event()

        async def slow(task: object, repos: object) -> None:
            await gate.wait()

        retry = asyncio.create_task(dlq.retry_task("wf_2", slow))
        await until_it_is(dlq, "retrying", "wf_2")
        assert (await status(dlq, "wf_1"), await fits(dlq, "wf_3")) == ("exhausted", False)
        gate.set()
        assert (await retry)["success"]
        assert await fits(dlq, "wf_3")


@lived
async def test_a_queue_of_no_size_takes_nothing_and_divides_by_nothing(tmp_path: Path) -> None:
    async with queue(tmp_path, 0) as dlq:
        with pytest.raises(QueueFull, match=r"max_size=0"):
            await kept(dlq)
        stats = await dlq.get_statistics()
        assert (stats["queue_size"], stats["max_size"], stats["utilization_percent"]) == (0, 0, 100.0)


def test_a_size_below_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(redrive.BadSettings, match="max_size must be at least 0, got -1"):
        queue(tmp_path, -1)


@lived
async def test_of_a_hundred_at_once_exactly_as_many_are_kept_as_there_is_room_for(tmp_path: Path) -> None:
    async with queue(tmp_path, 10) as dlq:
        answers = await asyncio.gather(*(fits(dlq, f"wf_{number}") for number in range(100)))
        assert (sum(answers), await size(dlq)) == (10, 10)
        assert {task.task_id for task in await dlq.list_tasks()} == {f"wf_{n}" for n, is_in in enumerate(answers) if is_in}


@lived
async def test_the_limit_holds_when_half_of_the_room_is_taken(tmp_path: Path) -> None:
    async with queue(tmp_path, 10) as dlq:
        for number in range(5):
            await kept(dlq, f"old_{number}")
        for turn in range(3):
            answers = await asyncio.gather(*(fits(dlq, f"wf_{turn}_{number}") for number in range(20)))
            assert (sum(answers), await size(dlq)) == (5 if turn == 0 else 0, 10)


@lived
async def test_the_limit_holds_while_others_leave(tmp_path: Path) -> None:
    async with queue(tmp_path, 10) as dlq:
        for number in range(10):
            await kept(dlq, f"old_{number}")
        leaving = [dlq.archive_task(f"old_{number}") for number in range(4)]
        coming = [fits(dlq, f"wf_{number}") for number in range(40)]
        answers = await asyncio.gather(*leaving, *coming)
        assert await size(dlq) == 6 + sum(answers[4:]) <= 10
        for number in range(40, 60):
            await fits(dlq, f"wf_{number}")
        assert await size(dlq) == 10


@lived
async def test_the_same_id_again_needs_no_room_and_gives_none_away(tmp_path: Path) -> None:
    async with queue(tmp_path, 2) as dlq:
        await kept(dlq, "wf_1")
        await kept(dlq, "wf_2")
        for turn in range(3):
            task = await kept(dlq, "wf_1", f"error {turn}")
            assert task.last_error == f"error {turn}"
        assert not await fits(dlq, "wf_3")
        assert await size(dlq) == 2


@lived
async def test_the_same_id_many_times_at_once_takes_one_place(tmp_path: Path) -> None:
    async with queue(tmp_path, 2) as dlq:
        assert all(await asyncio.gather(*(fits(dlq, "wf_1") for _ in range(30))))
        assert await size(dlq) == 1
        assert (await seen(dlq)).total_attempts == 30
        assert await fits(dlq, "wf_2")
        assert not await fits(dlq, "wf_3")


@lived
async def test_to_archive_what_was_completed_gives_no_place_away(tmp_path: Path) -> None:
    async with queue(tmp_path, 1) as dlq:
        await kept(dlq, "wf_1")
        await dlq.retry_task("wf_1", Works())
        assert await fits(dlq, "wf_2")
        assert not await dlq.archive_task("wf_1")
        assert not await fits(dlq, "wf_3")
        assert [task.task_id for task in await dlq.list_tasks(DeadLetterStatus.COMPLETED)] == ["wf_1"]


@lived
async def test_a_task_that_worked_and_fails_again_needs_a_place(tmp_path: Path) -> None:
    async with queue(tmp_path, 1) as dlq:
        await kept(dlq, "wf_1")
        await dlq.retry_task("wf_1", Works())
        await kept(dlq, "wf_2")
        assert not await fits(dlq, "wf_1")
        assert await dlq.archive_task("wf_2")
        assert await fits(dlq, "wf_1")
        assert await status(dlq, "wf_1") == "pending"


@lived
async def test_letters_of_other_sources_and_namespaces_take_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with redrive.open(place(tmp_path)) as letters:
        for number in range(5):
            await letters.capture({"order": number}, TimeoutError("slow"), source="orders")
    monkeypatch.setenv("REDRIVE_NAMESPACE", "elsewhere")
    async with queue(tmp_path) as other:
        await kept(other, "wf_1")
    monkeypatch.delenv("REDRIVE_NAMESPACE")
    async with queue(tmp_path, 2) as dlq:
        assert await size(dlq) == 0
        assert [await fits(dlq, f"wf_{number}") for number in range(3)] == [True, True, False]
        assert await dlq.clear_all() == 2
        assert await dlq.letters.count() == 7
    async with redrive.open(place(tmp_path)) as letters:
        assert await letters.count(redrive.Is(redrive.Field.STATUS, "pending")) == 5


@lived
async def test_an_enqueue_that_is_cut_off_blocks_no_place(tmp_path: Path) -> None:
    async with queue(tmp_path, 1) as dlq:
        for turn in range(20):
            attempt = asyncio.create_task(kept(dlq, f"cut_{turn}"))
            for _ in range(turn):
                await asyncio.sleep(0)
            attempt.cancel()
            await asyncio.wait([attempt])
            await dlq.clear_all()

        async def is_there_room() -> bool:
            # What was cut off may still have been written, a little later.
            await dlq.clear_all()
            return await fits(dlq, "wf_1")

        await until(is_there_room)
        assert not await fits(dlq, "wf_2")
