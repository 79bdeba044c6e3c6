"""The guide of the workflow DLQ, step by step: what it calls is called in its way, and what it says comes out does."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive.engine.retry import Breakers
from redrive.model.breaker import Breaker
from redrive.workflows import (
    DeadLetterQueue,
    DeadLetterStatus,
    DLQIntegrationStrategy,
    ErrorCategory,
    ErrorRecoveryManager,
    FailedTask,
    RetryPolicy,
    WorkflowApp,
    WorkflowSettings,
    create_dlq_integration,
)
from tests.unit.waiting import until
from tests.unit.workflow_use import SOON, Held, Works, due, kept, lived, place, queue, until_it_is

SWEEP = {"type": "code_sweep"}
REPOS = ["/path/to/repo"]
SLOW = TimeoutError("slow")


class App(WorkflowApp):
    """The guide's application, with one adapter that does as it is told."""

    dlq: DeadLetterQueue

    def __init__(self, folder: Path, *answers: Any, **config: Any) -> None:
        self.llamaindex = Works(*answers)
        super().__init__({"llamaindex": self.llamaindex}, WorkflowSettings(**config), store=place(folder))


def ages(folder: Path, **days: float) -> None:
    """Let letters have failed so long ago."""

    async def rewrite() -> None:
        from msgspec.structs import replace

        async with redrive.open(place(folder)) as letters:
            old = {letter.source_id: letter async for letter in letters.find()}
            await letters.purge(redrive.EVERYTHING)
            for name, letter in old.items():
                at = letter.dead_lettered_at - timedelta(days=days.get(name, 0))
                await letters.hold([replace(letter, dead_lettered_at=at)])

    asyncio.run(rewrite())


@lived
async def test_usage_1_a_workflow_that_fails_is_enqueued_and_comes_back(tmp_path: Path) -> None:
    async with App(tmp_path, SLOW, {"status": "completed"}) as app:

        async def retry_callback(task: dict[str, Any], repos: list[str]) -> Any:
            return await app.execute_workflow(task, "llamaindex", repos)

        await app.start_dlq_processor()
        result = await app.execute_workflow_parallel(task=SWEEP, adapter_name="llamaindex", repos=REPOS)
        assert result["status"] == "failed"
        assert result.get("dlq_enqueued")
        assert await app.dlq.get_task(result["dlq_task_id"]) is not None
        await due(app.dlq, result["dlq_task_id"])
        await until_it_is(app.dlq, "completed", result["dlq_task_id"])

        app.llamaindex.answers = [SLOW, {"status": "completed"}]
        result = await app.execute_workflow_parallel(task=SWEEP, adapter_name="llamaindex", repos=REPOS)
        assert (await app.dlq.retry_task(result["dlq_task_id"], retry_callback))["success"]


@lived
async def test_usage_2_tasks_are_enqueued_looked_at_retried_and_archived_by_hand(tmp_path: Path) -> None:
    async with App(tmp_path, ConnectionError("Connection timeout"), {"status": "completed"}) as app:
        await app.dlq.enqueue(
            task_id="wf_abc123",
            task={"type": "code_sweep"},
            repos=["/path/to/repo"],
            error="Connection timeout",
            retry_policy=RetryPolicy.EXPONENTIAL,
            max_retries=5,
            metadata={"priority": "high"},
        )
        pending_tasks = await app.dlq.list_tasks(status=DeadLetterStatus.PENDING, limit=100)
        assert [task.task_id for task in pending_tasks] == ["wf_abc123"]

        task = await app.dlq.get_task("wf_abc123")
        assert task
        assert isinstance(task.failed_at, datetime)
        assert (task.retry_count, task.max_retries) == (0, 5)
        assert task.next_retry_at == task.failed_at + timedelta(minutes=1)

        await app.start_dlq_processor()
        result = await app.dlq.retry_task("wf_abc123")
        assert (result["success"], result["error"]) == (False, "Connection timeout")
        result = await app.dlq.retry_task("wf_abc123")
        assert result["success"]

        await kept(app.dlq, "wf_abc124")
        assert await app.dlq.archive_task("wf_abc124")
        assert await app.dlq.list_tasks() == []


async def lived_through(dlq: DeadLetterQueue) -> None:
    """What the guide's example has behind it: of 50 tasks, 30 worked when they were retried, 15 of them at the second go."""
    for number in range(5):
        await kept(dlq, f"gone_{number}", max_retries=0 if number < 2 else 3)
    assert await dlq.clear_all() == 5
    failed: set[int] = set()

    async def second_go(task: dict[str, Any], repos: list[str]) -> dict[str, Any]:
        is_first = task["number"] < 15 and task["number"] not in failed
        failed.add(task["number"])
        return {"status": "failed" if is_first else "completed"}

    # Fifteen failures in a row would open the breaker, and this is not about it.
    dlq.letters.breakers = Breakers(lambda: Breaker(failures=100))
    for number in range(30):
        await kept(dlq, f"ok_{number}", task={"number": number}, retry_policy="never" if number >= 28 else SOON)
    await dlq.start_retry_processor(second_go)
    for number in range(30):
        if number >= 28:
            assert (await dlq.retry_task(f"ok_{number}"))["success"]
        await until_it_is(dlq, "completed", f"ok_{number}")
    await dlq.stop_retry_processor()


@lived
async def test_usage_3_the_statistics_of_the_example(tmp_path: Path) -> None:
    async with App(tmp_path) as app:
        await lived_through(app.dlq)
        for number in range(15):
            category = (
                ErrorCategory.TRANSIENT if number < 8 else ErrorCategory.NETWORK if number < 12 else ErrorCategory.PERMANENT
            )
            policy = RetryPolicy.EXPONENTIAL if number < 12 else RetryPolicy.LINEAR if number < 14 else RetryPolicy.NEVER
            await kept(
                app.dlq, f"wf_{number}", error_category=category, retry_policy=policy, max_retries=0 if number == 14 else 9
            )
        held = Held()
        retries = [asyncio.create_task(app.dlq.retry_task(f"wf_{number}", held)) for number in range(2)]
        await until(held.holds(2))
        stats = await app.dlq.get_statistics()
        held.gate.set()
        await asyncio.wait(retries)
    assert f"Queue size: {stats['queue_size']}/{stats['max_size']}" == "Queue size: 15/10000"
    assert f"Utilization: {stats['utilization_percent']}%" == "Utilization: 0.15%"
    assert shown(stats["status_breakdown"]) == {"pending": 12, "retrying": 2, "exhausted": 1}
    assert shown(stats["error_categories"]) == {"transient": 8, "network": 4, "permanent": 3}
    assert shown(stats["retry_policies"]) == {"exponential": 12, "linear": 2, "never": 1}
    assert stats["lifetime_stats"] == {
        "enqueued_total": 50,
        "retry_success": 30,
        "retry_failed": 15,
        "exhausted": 3,
        "manually_retried": 2,
        "archived": 0,
    }


def shown(breakdown: dict[str, int]) -> dict[str, int]:
    """The lines that the example shows; ours has those that are 0 too."""
    return {name: count for name, count in breakdown.items() if count}


@lived
async def test_usage_4_each_strategy_is_set_and_selective_goes_by_its_table(tmp_path: Path) -> None:
    async with App(tmp_path) as app:
        assert app.dlq_integration is not None
        assert app.dlq_integration.strategy is DLQIntegrationStrategy.AUTOMATIC
        for strategy in ("AUTOMATIC", "MANUAL", "DISABLED", "SELECTIVE"):
            app.dlq_integration.set_strategy(DLQIntegrationStrategy[strategy])
        table = {
            "service is busy": RetryPolicy.EXPONENTIAL,
            "connection reset": RetryPolicy.EXPONENTIAL,
            "out of memory": RetryPolicy.LINEAR,
            "permission denied": None,
            "malformed input": None,
            "nobody knows": None,
        }
        for words, policy in table.items():
            app.llamaindex.answers = [RuntimeError(words)]
            result = await app.execute_workflow_parallel(SWEEP, "llamaindex", REPOS)
            assert (result["dlq_enqueued"], result["retry_policy"]) == (policy is not None, policy)
        assert (await app.dlq.get_statistics())["queue_size"] == 3


@lived
async def test_usage_5_a_handler_of_ones_own_classifies_and_enqueues(tmp_path: Path) -> None:
    async with App(tmp_path) as app:

        async def handler(task_id: str, task: dict[str, Any], repos: list[str], error: Exception) -> FailedTask | None:
            category = await app.error_recovery_manager.classify_error(error)
            if category == ErrorCategory.TRANSIENT:
                policy, max_retries = RetryPolicy.EXPONENTIAL, 5
            elif category == ErrorCategory.NETWORK:
                policy, max_retries = RetryPolicy.EXPONENTIAL, 3
            elif category == ErrorCategory.RESOURCE:
                policy, max_retries = RetryPolicy.LINEAR, 2
            else:
                return None
            return await app.dlq.enqueue(
                task_id=task_id,
                task=task,
                repos=repos,
                error=str(error),
                retry_policy=policy,
                max_retries=max_retries,
                error_category=category.value,
                metadata={"handler": "custom"},
            )

        busy = await handler("wf_1", SWEEP, REPOS, RuntimeError("rate limit"))
        lost = await handler("wf_2", SWEEP, REPOS, TimeoutError())
        full = await handler("wf_3", SWEEP, REPOS, OSError(28, "No space left on device"))
        assert busy
        assert lost
        assert full
        assert (busy.error_category, busy.retry_policy, busy.max_retries) == ("transient", "exponential", 5)
        # Its text is empty, and it is told by its type all the same.
        assert (lost.error_category, lost.retry_policy, lost.max_retries) == ("network", "exponential", 3)
        assert (full.error_category, full.retry_policy, full.max_retries) == ("resource", "linear", 2)
        assert busy.metadata == {"handler": "custom"}
        assert await handler("wf_4", SWEEP, REPOS, PermissionError("no")) is None


class OwnApp:
    """An application that wires the queue in by itself, as the guide tells it to."""

    def __init__(self, config: WorkflowSettings, observability: Any = None) -> None:
        self.config = config
        self.logger = logging.getLogger("own")
        self.observability = observability
        self.opensearch_integration = None
        self.error_recovery_manager = ErrorRecoveryManager()
        self.works = Works()
        self.dlq: DeadLetterQueue | None = None
        self.dlq_integration: Any = None
        if self.config.dlq_enabled:
            self.dlq = DeadLetterQueue(
                max_size=self.config.dlq_max_size,
                opensearch_client=self.opensearch_integration,
                observability_manager=self.observability,
            )
            self.dlq_integration = create_dlq_integration(self)

    async def execute_workflow(self, task: dict[str, Any], adapter_name: str, repos: list[str] | None = None) -> Any:
        return await self.works(task, repos or [])

    async def execute_workflow_parallel(self, task: dict[str, Any], adapter_name: str, repos: list[str]) -> Any:
        return await self.dlq_integration.execute_with_dlq(task, adapter_name, repos)

    async def start_dlq_processor(self) -> None:
        if not self.config.dlq_enabled or not self.dlq:
            return
        if not self.config.dlq_retry_processor_enabled:
            self.logger.info("DLQ retry processor disabled in configuration")
            return

        async def dlq_retry_callback(task: dict[str, Any], repos: list[str]) -> Any:
            adapter_name = task.get("adapter", "llamaindex")
            return await self.execute_workflow_parallel(task=task, adapter_name=adapter_name, repos=repos)

        await self.dlq.start_retry_processor(
            callback=dlq_retry_callback, check_interval_seconds=self.config.dlq_retry_interval_seconds
        )

    async def stop_dlq_processor(self) -> None:
        if self.dlq:
            await self.dlq.stop_retry_processor()


@lived
async def test_an_application_of_ones_own_is_wired_as_the_guide_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_STORE", place(tmp_path))
    told: list[str] = []
    app = OwnApp(WorkflowSettings(), lambda event, attributes: told.append(event))
    assert app.dlq is not None
    await app.start_dlq_processor()
    assert (await app.dlq.get_statistics())["retry_interval_seconds"] == 60
    app.works.answers = [SLOW, SLOW, {"status": "completed"}]
    result = await app.execute_workflow_parallel(SWEEP, "llamaindex", REPOS)
    assert result["dlq_enqueued"]
    for count in (1, 2):
        await due(app.dlq, result["dlq_task_id"])
        await until(app.works.was_called(1 + count))
        await until(is_settled(app.dlq, result["dlq_task_id"], count))
    # It failed again while it was retried, and is still one letter.
    assert (await app.dlq.get_statistics())["lifetime_stats"]["enqueued_total"] == 1
    await until(lambda: told == ["dlq.enqueued", "dlq.retried", "dlq.retried"])
    await app.stop_dlq_processor()
    await app.dlq.close()

    off = OwnApp(WorkflowSettings(dlq_enabled=False))
    await off.start_dlq_processor()
    await off.stop_dlq_processor()
    assert (off.dlq, off.dlq_integration) == (None, None)


def is_settled(dlq: DeadLetterQueue, task_id: str, count: int) -> Any:
    """Has the first retry failed, and the second worked?"""

    async def is_so() -> bool:
        task = await dlq.get_task(task_id)
        assert task is not None
        return (task.status, task.retry_count) == (("pending", 1) if count == 1 else ("completed", 1))

    return is_so


def test_configuration_by_file_and_by_environment_is_as_the_guide_has_it(tmp_path: Path) -> None:
    file = tmp_path / "settings" / "mahavishnu.yaml"
    file.parent.mkdir()
    lines = {
        "dlq_enabled": "true",
        "dlq_max_size": "10000",
        "dlq_default_retry_policy": "exponential  # Options: never, linear, exponential, immediate",
        "dlq_default_max_retries": "3",
        "dlq_retry_processor_enabled": "true",
        "dlq_retry_interval_seconds": "60  # Check for retries every minute",
    }
    file.write_text("".join(f"{name}: {value}\n" for name, value in lines.items()))
    exported = {f"MAHAVISHNU_{name.upper()}": value.partition(" ")[0] for name, value in lines.items()}
    assert WorkflowSettings.load(file, environ={}) == WorkflowSettings()
    assert WorkflowSettings.load(prefix="MAHAVISHNU_", environ=exported) == WorkflowSettings()


@lived
async def test_troubleshooting_a_full_queue_is_relieved_by_archiving_or_clearing(tmp_path: Path) -> None:
    async with App(tmp_path, dlq_max_size=100) as app:
        for number in range(100):
            await kept(app.dlq, f"wf_{number}", max_retries=0 if number < 40 else 3)
        with pytest.raises(ValueError, match=r"Dead letter queue is full \(max_size=100\)\. Please manually process or archive"):
            await kept(app.dlq, "wf_100")
        assert (await app.dlq.get_statistics())["utilization_percent"] == 100.0

        exhausted_tasks = await app.dlq.list_tasks(status=DeadLetterStatus.EXHAUSTED)
        assert len(exhausted_tasks) == 40
        for task in exhausted_tasks:
            await app.dlq.archive_task(task.task_id)
        await kept(app.dlq, "wf_100")
        assert (await app.dlq.get_statistics())["utilization_percent"] == 61.0

        count = await app.dlq.clear_all()
        assert f"Cleared {count} tasks" == "Cleared 61 tasks"


@lived
async def test_troubleshooting_a_processor_that_does_not_run_is_noticed_and_started(tmp_path: Path) -> None:
    async with App(tmp_path) as app:
        await kept(app.dlq, "wf_abc123")
        result = await app.dlq.retry_task("wf_abc123")
        assert result["error"] == "No retry callback configured. Use start_retry_processor() first."
        stats = await app.dlq.get_statistics()
        assert (stats["is_processor_running"], stats["retry_interval_seconds"]) == (False, None)
        await app.start_dlq_processor()
        stats = await app.dlq.get_statistics()
        assert (stats["is_processor_running"], f"{stats['retry_interval_seconds']}s") == (True, "60s")
        assert (await app.dlq.retry_task("wf_abc123"))["success"]


@lived
async def test_troubleshooting_exhausted_tasks_are_grouped_by_category(tmp_path: Path) -> None:
    async with App(tmp_path) as app:
        for number, words in enumerate(("timeout", "timeout", "quota exceeded", "boom")):
            await kept(app.dlq, f"wf_{number}", words, max_retries=0)
        exhausted_tasks = await app.dlq.list_tasks(status=DeadLetterStatus.EXHAUSTED)
        categories = Counter(task.error_category for task in exhausted_tasks if task.error_category)
        assert categories == {"network": 2, "resource": 1, "permanent": 1}


@pytest.mark.parametrize(
    ("strategy", "transient", "permanent"),
    [("automatic", True, True), ("selective", True, False), ("manual", False, False), ("disabled", False, False)],
)
@lived
async def test_practice_1_a_strategy_for_each_kind_of_work(
    tmp_path: Path, strategy: str, transient: bool, permanent: bool
) -> None:
    async with App(tmp_path, dlq_strategy=strategy) as app:
        for words, is_kept in (("service is busy", transient), ("nobody knows", permanent)):
            app.llamaindex.answers = [RuntimeError(words)]
            assert (await app.execute_workflow_parallel(SWEEP, "llamaindex", REPOS))["dlq_enqueued"] is is_kept
        await kept(app.dlq, "by hand")
        assert await app.dlq.get_task("by hand") is not None


@lived
async def test_practice_2_limits_for_each_kind_of_error(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        limits = [(RetryPolicy.EXPONENTIAL, 5), (RetryPolicy.EXPONENTIAL, 3), (RetryPolicy.LINEAR, 2), (RetryPolicy.NEVER, 0)]
        for number, (policy, most) in enumerate(limits):
            task = await kept(dlq, f"wf_{number}", retry_policy=policy, max_retries=most)
            assert (task.retry_policy, task.max_retries, task.status) == (policy, most, "pending" if most else "exhausted")


@lived
async def test_practice_3_a_monitor_warns_by_the_statistics(tmp_path: Path) -> None:
    async with App(tmp_path, dlq_max_size=200) as app:
        for number in range(161):
            await kept(app.dlq, f"wf_{number}", max_retries=0 if number < 101 else 3)
        await app.dlq.retry_task("wf_160", Works())
        for number in (150, 151):
            await app.dlq.retry_task(f"wf_{number}", Works(SLOW))
        await kept(app.dlq, "wf_161")
        stats = await app.dlq.get_statistics()
        warnings = []
        if stats["utilization_percent"] > 80:
            warnings.append(f"DLQ is {stats['utilization_percent']}% full!")
        if (exhausted := stats["status_breakdown"]["exhausted"]) > 100:
            warnings.append(f"{exhausted} exhausted tasks in DLQ!")
        lifetime = stats["lifetime_stats"]
        rate = lifetime["retry_success"] / (lifetime["retry_success"] + lifetime["retry_failed"])
        if rate < 0.5:
            warnings.append(f"Low retry success rate: {rate:.1%}")
        assert warnings == ["DLQ is 80.5% full!", "101 exhausted tasks in DLQ!", "Low retry success rate: 33.3%"]


@lived
async def test_practice_4_metadata_of_any_shape_are_kept(tmp_path: Path) -> None:
    metadata = {
        "workflow_type": "code_sweep",
        "priority": "high",
        "business_unit": "payments",
        "slos": {"max_delay_minutes": 15},
        "on_call_team": "platform-team",
    }
    async with queue(tmp_path) as dlq:
        await dlq.enqueue(task_id="wf_abc123", task=SWEEP, repos=REPOS, error="timeout", metadata=metadata)
    async with queue(tmp_path) as dlq:
        task = await dlq.get_task("wf_abc123")
        assert task is not None
        assert task.metadata == metadata
        assert task.priority > 0


def test_practice_5_tasks_that_have_been_exhausted_for_long_are_archived(tmp_path: Path) -> None:
    async def before() -> None:
        async with queue(tmp_path) as dlq:
            for name in ("old", "new", "pending"):
                await kept(dlq, name, max_retries=3 if name == "pending" else 0)

    async def archive_old_tasks() -> None:
        async with queue(tmp_path) as dlq:
            cutoff = datetime.now(UTC) - timedelta(days=7)
            for task in await dlq.list_tasks(status=DeadLetterStatus.EXHAUSTED):
                if task.failed_at < cutoff:
                    await dlq.archive_task(task.task_id)
            assert [task.task_id for task in await dlq.list_tasks(DeadLetterStatus.ARCHIVED)] == ["old"]
            assert {task.task_id for task in await dlq.list_tasks()} == {"new", "pending"}

    asyncio.run(before())
    ages(tmp_path, old=8, new=6, pending=30)
    asyncio.run(archive_old_tasks())


class Rbac:
    """Somebody's own rights: a set of (user, thing, operation)."""

    def __init__(self, *rights: tuple[str, str, str]) -> None:
        self._rights = set(rights)

    async def check_permission(self, user_id: str, thing: str, operation: str) -> bool:
        return (user_id, thing, operation) in self._rights


@lived
async def test_access_is_checked_before_each_verb(tmp_path: Path) -> None:
    rbac = Rbac(("ann", "dlq", "retry"), ("bob", "dlq", "archive"))

    async def allowed(user_id: str, operation: str) -> bool:
        return operation in ("retry", "archive") and await rbac.check_permission(user_id, "dlq", operation)

    async with App(tmp_path) as app:
        await app.start_dlq_processor()
        await kept(app.dlq, "wf_1")
        await kept(app.dlq, "wf_2")
        for user in ("ann", "bob"):
            if await allowed(user, "retry"):
                assert (await app.dlq.retry_task("wf_1"))["success"]
            if await allowed(user, "archive"):
                assert await app.dlq.archive_task("wf_2")
        assert await app.dlq.list_tasks() == []
        assert not await allowed("ann", "clear")


@lived
async def test_all_that_is_ready_is_processed_in_parallel(tmp_path: Path) -> None:
    async with App(tmp_path, dlq_concurrency=50) as app:
        for number in range(50):
            await kept(app.dlq, f"wf_{number}", retry_policy=RetryPolicy.IMMEDIATE)
        held = Held()
        await app.dlq.start_retry_processor(held)
        await until(held.holds(50))
        held.gate.set()
        for number in range(50):
            await until_it_is(app.dlq, "completed", f"wf_{number}")
