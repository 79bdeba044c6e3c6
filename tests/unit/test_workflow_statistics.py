"""What the workflow DLQ says of itself: how full it is, what is in it, what has happened, and to whom it is told."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from redrive.workflows import DeadLetterStatus, ErrorCategory, RetryPolicy
from tests.unit.waiting import until
from tests.unit.workflow_use import Held, Works, failing, kept, lifetime, lived, queue, until_counted, until_it_is

FIGURES = ("enqueued_total", "retry_success", "retry_failed", "exhausted", "manually_retried", "archived")


@lived
async def test_an_empty_queue_has_every_figure_at_nothing(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        assert await dlq.get_statistics() == {
            "queue_size": 0,
            "max_size": 10_000,
            "utilization_percent": 0.0,
            "status_breakdown": dict.fromkeys(DeadLetterStatus, 0),
            "error_categories": dict.fromkeys(ErrorCategory, 0),
            "retry_policies": dict.fromkeys(RetryPolicy, 0),
            "lifetime_stats": dict.fromkeys(FIGURES, 0),
            "is_processor_running": False,
            "retry_interval_seconds": None,
        }


@lived
async def test_the_breakdowns_count_what_is_in_the_queue(tmp_path: Path) -> None:
    """The figures of the guide's example: 15 of 10,000, of which two are being retried and one is exhausted."""
    async with queue(tmp_path) as dlq:
        errors = ["rate limit"] * 8 + ["timeout"] * 4 + ["boom"] * 3
        policies = ["exponential"] * 12 + ["linear"] * 2 + ["never"]
        for number, (error, policy) in enumerate(zip(errors, policies, strict=True)):
            await kept(dlq, f"wf_{number}", error, retry_policy=policy, max_retries=0 if policy == "never" else 3)
        await kept(dlq, "done")
        await kept(dlq, "put_away")
        await dlq.retry_task("done", Works())
        await dlq.archive_task("put_away")
        held = Held()
        await dlq.start_retry_processor(held, check_interval_seconds=60)
        retries = [asyncio.create_task(dlq.retry_task(f"wf_{number}")) for number in range(2)]
        await until(held.holds(2))
        stats = await dlq.get_statistics()
        held.gate.set()
        await asyncio.wait(retries)
    assert (stats["queue_size"], stats["max_size"], stats["utilization_percent"]) == (15, 10_000, 0.15)
    assert stats["status_breakdown"] == {"pending": 12, "retrying": 2, "exhausted": 1, "completed": 0, "archived": 0}
    assert stats["error_categories"] == {**dict.fromkeys(ErrorCategory, 0), "transient": 8, "network": 4, "permanent": 3}
    assert stats["retry_policies"] == {"exponential": 12, "linear": 2, "never": 1, "immediate": 0}
    assert (stats["is_processor_running"], stats["retry_interval_seconds"]) == (True, 60)


@lived
async def test_a_policy_of_ones_own_has_a_line_too(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        await kept(dlq, retry_policy="soon")
        assert (await dlq.get_statistics())["retry_policies"] == {**dict.fromkeys(RetryPolicy, 0), "soon": 1}


@lived
async def test_the_lifetime_figures_survive_a_restart(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        for number in range(4):
            await kept(dlq, f"wf_{number}", max_retries=1)
        await dlq.retry_task("wf_0", Works())
        await dlq.retry_task("wf_1", failing())
        await dlq.archive_task("wf_2")
        before = await lifetime(dlq)
        assert before == {
            "enqueued_total": 4,
            "retry_success": 1,
            "retry_failed": 1,
            "exhausted": 1,
            "manually_retried": 2,
            "archived": 1,
        }
    async with queue(tmp_path) as dlq:
        assert await lifetime(dlq) == before
        await kept(dlq, "wf_9")
        assert (await lifetime(dlq))["enqueued_total"] == 5
        await dlq.clear_all()
    async with queue(tmp_path) as dlq:
        assert (await lifetime(dlq))["enqueued_total"] == 5


@lived
async def test_the_processors_retries_are_in_the_figures(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        await dlq.start_retry_processor(Works(ConnectionError("down"), {"success": True}))
        await kept(dlq, retry_policy="soon")
        await until_it_is(dlq, "completed")
        await until_counted(dlq, enqueued_total=1, retry_failed=1, retry_success=1)


class Manager:
    """An observability manager that remembers."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []

    def record(self, event: str, attributes: dict[str, Any]) -> None:
        self.told.append((event, attributes))


STORY = [
    ("dlq.enqueued", {"task_id": "wf_1", "category": "network", "held": "new"}),
    ("dlq.retried", {"task_id": "wf_1", "success": False}),
    ("dlq.exhausted", {"task_id": "wf_1", "category": "network"}),
    ("dlq.retried", {"task_id": "wf_1", "success": True}),
    ("dlq.enqueued", {"task_id": "wf_2", "category": "network", "held": "new"}),
    ("dlq.archived", {"task_id": "wf_2"}),
]


async def lived_through(folder: Path, manager: Any) -> None:
    folder.mkdir(exist_ok=True)
    async with queue(folder, observability_manager=manager) as dlq:
        await kept(dlq, max_retries=1)
        await dlq.retry_task("wf_1", failing())
        await dlq.retry_task("wf_1", Works())
        await kept(dlq, "wf_2")
        await dlq.archive_task("wf_2")
        await until_it_is(dlq, "archived", "wf_2")


@lived
async def test_a_manager_is_told_by_its_method_or_called(tmp_path: Path) -> None:
    manager = Manager()
    await lived_through(tmp_path / "1", manager)
    assert manager.told == STORY
    told: list[tuple[str, dict[str, Any]]] = []
    await lived_through(tmp_path / "2", lambda event, attributes: told.append((event, attributes)))
    assert told == STORY


@lived
async def test_a_manager_may_be_async(tmp_path: Path) -> None:
    told: list[str] = []

    async def record(event: str, attributes: dict[str, Any]) -> None:
        told.append(event)
        raise RuntimeError("and may fail")

    await lived_through(tmp_path, record)
    await until(lambda: len(told) == len(STORY))
    assert told == [event for event, _ in STORY]


@lived
async def test_a_manager_that_fails_harms_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def record(self, event: str, attributes: dict[str, Any]) -> None:
            raise RuntimeError("no metrics today")

    await lived_through(tmp_path, Broken())
    assert caplog.messages == ["the observability manager failed"] * len(STORY)


@lived
async def test_a_manager_that_cannot_be_told_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "redrive.workflows"):
        await lived_through(tmp_path, object())
    assert caplog.messages == ["object is told of nothing: it has no record(event, attributes), and is no function"]
