"""Tasks that no store would take as they are, ids and errors of every kind: kept all the same, and given back."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import redrive
from redrive.workflows import WorkflowApp, WorkflowSettings
from tests.unit.waiting import until
from tests.unit.workflow_use import ERROR, TASK, Works, kept, lived, place, queue, seen, until_it_is

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ID = UUID(int=7)


@dataclass
class Point:
    x: int
    y: int


class Opaque:
    def __repr__(self) -> str:
        return "<Opaque>"


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("not even a repr")


RETRIEVABLE: list[tuple[Any, Any]] = [
    (b"\x00\xff", b"\x00\xff"),
    (MOMENT, "2026-01-02T03:04:05Z"),
    ({3}, [3]),
    ((1, 2), [1, 2]),
    (ID, str(ID)),
    (Decimal("1.50"), "1.50"),
    (Point(1, 2), {"x": 1, "y": 2}),
    (float("inf"), float("inf")),
    ({1: "one"}, {1: "one"}),
    ("ünïcödé ✓ \x00", "ünïcödé ✓ \x00"),
    (2**80, 2**80),
    (None, None),
    ({"deep": [{"er": [1.5, True]}]}, {"deep": [{"er": [1.5, True]}]}),
]


@pytest.mark.parametrize(("value", "back"), RETRIEVABLE)
@lived
async def test_a_task_comes_back_as_plain_values(tmp_path: Path, value: Any, back: Any) -> None:
    async with queue(tmp_path) as dlq:
        answer = await kept(dlq, task={"value": value})
        assert answer == await seen(dlq)
        assert answer.task == {"value": back}
        assert json.dumps(answer.to_dict())
        callback = Works()
        assert (await dlq.retry_task("wf_1", callback))["success"]
        assert callback.calls == [({"value": back}, ["/path/to/repo"])]


@pytest.mark.parametrize("value", [Opaque(), object(), lambda: None, {"in": {"here": Opaque()}}])
@lived
async def test_a_task_that_nothing_can_write_is_kept_as_evidence_and_never_run_as_something_else(
    tmp_path: Path, value: Any
) -> None:
    async with queue(tmp_path) as dlq:
        answer = await kept(dlq, task={"type": "sweep", "value": value}, retry_policy="immediate")
        assert answer == await seen(dlq)
        assert "sweep" in str(answer.task)
        assert "/path/to/repo" in str(answer.task)
        callback = Works()
        result = await dlq.retry_task("wf_1", callback)
        assert result["success"] is False
        assert result["error"].startswith("only the repr of this message was kept")
        await dlq.start_retry_processor(callback, check_interval_seconds=60)

        async def is_put_off() -> bool:
            task = await seen(dlq)
            assert task.next_retry_at is not None
            is_later = task.next_retry_at > datetime.now(UTC) + timedelta(seconds=30)
            return is_later and task.status == "pending" and "only the repr" in task.waits_for

        await until(is_put_off)
        task = await seen(dlq)
        assert (callback.calls, task.status, task.retry_count) == ([], "pending", 0)


@pytest.mark.parametrize("value", [Unspeakable(), "\ud800", {"\ud800": 1}])
@lived
async def test_even_what_cannot_be_shown_is_kept(tmp_path: Path, value: Any) -> None:
    async with queue(tmp_path) as dlq:
        answer = await kept(dlq, task={"value": value}, metadata={"value": value})
        assert answer == await seen(dlq)


def circle() -> dict[str, Any]:
    task: dict[str, Any] = {"type": "sweep"}
    task["self"] = task
    return task


@lived
async def test_a_task_that_holds_itself_is_kept(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        answer = await kept(dlq, task=circle(), metadata=circle())
        assert answer == await seen(dlq)


@pytest.mark.parametrize(
    ("value", "back"),
    [
        (b"\x00\xff", "AP8="),
        (MOMENT, "2026-01-02T03:04:05Z"),
        ({3}, [3]),
        (Opaque(), "<Opaque>"),
        ({1: Opaque()}, {"1": "<Opaque>"}),
        (ID, str(ID)),
        (2**80, str(2**80)),
        ("\ud800", "\\ud800"),
        ([1.5, None, True], [1.5, None, True]),
    ],
)
@lived
async def test_metadata_are_kept_as_plain_values(tmp_path: Path, value: Any, back: Any) -> None:
    async with queue(tmp_path) as dlq:
        answer = await kept(dlq, metadata={"value": value})
        assert answer == await seen(dlq)
        assert answer.metadata == {"value": back}


@lived
async def test_a_huge_task_lies_in_a_file_and_comes_back_whole(tmp_path: Path) -> None:
    text = "x" * 3_000_000
    async with queue(tmp_path) as dlq:
        await kept(dlq, task={"text": text})
        assert list(tmp_path.glob("**/*.body")) or any(path.stat().st_size > 2_000_000 for path in tmp_path.glob("**/*"))
    async with queue(tmp_path) as dlq:
        assert (await seen(dlq)).task == {"text": text}
        (listed,) = await dlq.list_tasks()
        assert listed.task == {"text": text}
        callback = Works()
        assert (await dlq.retry_task("wf_1", callback))["success"]
        assert callback.calls[0][0] == {"text": text}


@lived
async def test_a_huge_task_where_no_file_can_be_is_refused_and_said_so() -> None:
    async with WorkflowApp({"llamaindex": Works(TimeoutError("slow"))}, WorkflowSettings(), store="memory:") as app:
        assert app.dlq is not None
        with pytest.raises(redrive.BodyTooLarge):
            await kept(app.dlq, task={"text": "x" * 2_000_000})
        answer = await app.execute_workflow_parallel({"text": "x" * 2_000_000}, "llamaindex", [])
        assert (answer["status"], answer["error"], answer["dlq_enqueued"]) == ("failed", "slow", False)
        assert answer["dlq_error"]
        assert (await kept(app.dlq)).status == "pending"


@pytest.mark.parametrize(
    "task_id",
    [
        "wf/1",
        "задача-1",
        "任务",
        "🦄",
        "a b\tc",
        "line\nbreak",
        "nul\x00",
        "x" * 10_000,
        "'; --",
        "\ud800",
        "*",
        "status:pending",
    ],
)
@lived
async def test_any_text_may_be_an_id(tmp_path: Path, task_id: str) -> None:
    async with queue(tmp_path) as dlq:
        await kept(dlq, "another")
        task = await kept(dlq, task_id)
        assert await dlq.get_task(task_id) == task
        assert (await kept(dlq, task_id)).total_attempts == 2
        assert await dlq.get_task(task.task_id) is not None
        assert not (await dlq.retry_task(task_id, Works({"success": False})))["success"]
        assert await dlq.archive_task(task_id)
        assert [one.task_id for one in await dlq.list_tasks()] == ["another"]


@pytest.mark.parametrize(
    ("repos", "back"), [(None, []), ([], []), (("/a", "/b"), ["/a", "/b"]), (["/ü", ""], ["/ü", ""]), (iter(["/a"]), ["/a"])]
)
@lived
async def test_repositories_may_be_none_or_many(tmp_path: Path, repos: Any, back: list[str]) -> None:
    async with queue(tmp_path) as dlq:
        assert (await dlq.enqueue("wf_1", TASK, repos, ERROR)).repos == back
        callback = Works()
        await dlq.retry_task("wf_1", callback)
        assert callback.calls == [(TASK, back)]


@lived
async def test_an_empty_task_is_a_task(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        assert (await kept(dlq, task={}, repos=None)).task == {}


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error",
    ["", "x" * 100_000, "nul\x00 \ud800", Hostile(), KeyError(), ExceptionGroup("two", [TimeoutError()]), {"code": 7}, None],
)
@lived
async def test_any_error_may_be_what_it_failed_with(tmp_path: Path, error: Any) -> None:
    async with queue(tmp_path) as dlq:
        task = await kept(dlq, error=error)
        assert task == await seen(dlq)
        assert isinstance(task.error, str)


@lived
async def test_priorities_of_any_size_are_kept(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        for number, priority in enumerate((10**30, 5, -(10**30))):
            await kept(dlq, f"wf_{number}", priority=priority)
        first, middle, last = [(await seen(dlq, f"wf_{number}")).priority for number in range(3)]
        assert first > middle > last


@lived
async def test_five_hundred_at_once_are_all_there_and_all_retried(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        await asyncio.gather(
            *(kept(dlq, f"wf_{number}", task={"type": number}, retry_policy="immediate") for number in range(500))
        )
        callback = Works()
        await dlq.start_retry_processor(callback)
        await until(callback.was_called(500))
        for number in range(500):
            await until_it_is(dlq, "completed", f"wf_{number}")
        assert sorted(callback.types) == list(range(500))


@lived
async def test_a_letter_that_others_put_into_the_source_is_seen_too(tmp_path: Path) -> None:
    async with redrive.open(place(tmp_path)) as letters:
        await letters.capture(b"\xff\x00", TimeoutError("slow"), source="workflows", id="raw")
        await letters.capture({"type": "sweep"}, TimeoutError("slow"), source="workflows", id="one argument")
    async with queue(tmp_path) as dlq:
        raw, one = await seen(dlq, "raw"), await seen(dlq, "one argument")
        assert (raw.task, raw.repos, one.task, one.repos) == ({"body": "\\xff\x00"}, [], {"type": "sweep"}, [])
        assert (raw.max_retries, raw.retry_policy) == (0, "never")
