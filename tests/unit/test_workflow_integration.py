"""The integration: which workflows that fail are enqueued, how, and what is told of it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from redrive import BadSettings, NotHeld, Rule
from redrive.workflows import (
    DeadLetterQueue,
    DLQIntegration,
    DLQIntegrationStrategy,
    ErrorCategory,
    ErrorRecoveryManager,
    WorkflowApp,
    WorkflowSettings,
    create_dlq_integration,
)
from tests.unit.workflow_use import REPOS, TASK, Works, lifetime, lived, place, queue, seen

BY_CATEGORY: dict[ErrorCategory, tuple[Exception, str, int]] = {
    ErrorCategory.TRANSIENT: (RuntimeError("rate limit reached"), "exponential", 5),
    ErrorCategory.NETWORK: (TimeoutError(), "exponential", 3),
    ErrorCategory.RESOURCE: (MemoryError(), "linear", 2),
    ErrorCategory.PERMISSION: (PermissionError("no"), "never", 0),
    ErrorCategory.VALIDATION: (RuntimeError("malformed input"), "never", 0),
    ErrorCategory.PERMANENT: (RuntimeError("boom"), "never", 0),
}
HOPEFUL = (ErrorCategory.TRANSIENT, ErrorCategory.NETWORK, ErrorCategory.RESOURCE)
NOTHING = {
    "workflows_executed": 0,
    "workflows_failed": 0,
    "auto_enqueued": 0,
    "manually_enqueued": 0,
    "skipped_permanent": 0,
    "skipped_permission": 0,
    "enqueue_rate": 0.0,
}


class Application:
    """What somebody's own application needs to have."""

    def __init__(self, dlq: DeadLetterQueue | None, *answers: Any) -> None:
        self.dlq = dlq
        self.error_recovery_manager = ErrorRecoveryManager()
        self.works = Works(*answers)

    async def execute_workflow(self, task: dict[str, Any], adapter_name: str, repos: list[str] | None = None) -> Any:
        return await self.works({**task, "by": adapter_name}, repos or [])


def counted(integration: DLQIntegration) -> dict[str, Any]:
    """Of its statistics, those that are not 0."""
    figures = integration.get_statistics()
    return {name: figures[name] for name in NOTHING if figures[name]}


@lived
async def test_it_is_made_directly_or_awaited(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        app = Application(dlq)
        for integration in (create_dlq_integration(app), await create_dlq_integration(app)):
            assert isinstance(integration, DLQIntegration)
            assert integration.strategy is DLQIntegrationStrategy.AUTOMATIC
            assert integration.get_statistics() == {**NOTHING, "strategy": "automatic"}


@lived
async def test_a_workflow_that_works_is_answered_for_and_nothing_is_kept(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        app = Application(dlq, {"swept": 2}, "done", None)
        integration = create_dlq_integration(app)
        answer = await integration.execute_with_dlq(TASK, "llamaindex", REPOS)
        assert (answer["status"], answer["swept"]) == ("completed", 2)
        assert app.works.calls == [({**TASK, "by": "llamaindex"}, REPOS)]
        assert (await integration.execute_with_dlq(TASK, "llamaindex"))["result"] == "done"
        assert (await integration.execute_with_dlq(TASK, "llamaindex"))["result"] is None
        assert await dlq.list_tasks() == []
        assert counted(integration) == {"workflows_executed": 3}


@pytest.mark.parametrize("category", list(ErrorCategory))
@lived
async def test_automatic_enqueues_all_by_the_table(tmp_path: Path, category: ErrorCategory) -> None:
    error, policy, max_retries = BY_CATEGORY[category]
    async with queue(tmp_path) as dlq:
        integration = create_dlq_integration(Application(dlq, error))
        answer = await integration.execute_with_dlq(TASK, "llamaindex", REPOS, "ann")
        task = await seen(dlq, answer["dlq_task_id"])
        assert answer == {
            "workflow_id": task.task_id,
            "status": "failed",
            "error": str(error) or type(error).__name__,
            "error_type": type(error).__name__,
            "dlq_enqueued": True,
            "dlq_task_id": task.task_id,
            "retry_policy": policy,
            "max_retries": max_retries,
        }
        assert (task.task["type"], task.repos, task.error_category) == ("code_sweep", REPOS, category)
        assert (task.retry_policy, task.max_retries) == (policy, max_retries)
        assert task.status == ("pending" if max_retries else "exhausted")
        assert task.metadata == {"adapter": "llamaindex", "user_id": "ann"}
        assert counted(integration) == {"workflows_executed": 1, "workflows_failed": 1, "auto_enqueued": 1, "enqueue_rate": 1.0}


@pytest.mark.parametrize("category", list(ErrorCategory))
@lived
async def test_selective_enqueues_what_a_retry_could_mend(tmp_path: Path, category: ErrorCategory) -> None:
    error, policy, max_retries = BY_CATEGORY[category]
    async with queue(tmp_path) as dlq:
        integration = create_dlq_integration(Application(dlq, error))
        integration.set_strategy(DLQIntegrationStrategy.SELECTIVE)
        answer = await integration.execute_with_dlq(TASK, "llamaindex", REPOS)
        if category in HOPEFUL:
            assert (answer["dlq_enqueued"], answer["retry_policy"], answer["max_retries"]) == (True, policy, max_retries)
            assert counted(integration)["auto_enqueued"] == 1
            return
        assert (answer["status"], answer["dlq_enqueued"]) == ("failed", False)
        assert (answer["dlq_task_id"], answer["retry_policy"], answer["max_retries"]) == (None, None, None)
        assert "dlq_error" not in answer
        assert await dlq.list_tasks() == []
        skipped = "skipped_permission" if category is ErrorCategory.PERMISSION else "skipped_permanent"
        assert counted(integration) == {"workflows_executed": 1, "workflows_failed": 1, skipped: 1}


@pytest.mark.parametrize("strategy", [DLQIntegrationStrategy.MANUAL, "disabled"])
@lived
async def test_manual_and_disabled_enqueue_nothing_by_themselves(tmp_path: Path, strategy: str) -> None:
    async with queue(tmp_path) as dlq:
        integration = create_dlq_integration(Application(dlq, TimeoutError("slow")), strategy)
        answer = await integration.execute_with_dlq(TASK, "llamaindex", REPOS)
        assert (answer["status"], answer["error"], answer["dlq_enqueued"]) == ("failed", "slow", False)
        assert await dlq.list_tasks() == []
        assert counted(integration) == {"workflows_executed": 1, "workflows_failed": 1}


@lived
async def test_under_manual_what_is_enqueued_explicitly_is_kept(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        integration = create_dlq_integration(Application(dlq), DLQIntegrationStrategy.MANUAL)
        task = await integration.enqueue("wf_1", TASK, REPOS, "disk quota exceeded", metadata={"by": "ann"})
        assert (task.retry_policy, task.max_retries, task.error_category) == ("linear", 2, "resource")
        task = await integration.enqueue("wf_2", TASK, REPOS, "boom", error_category="network", max_retries=9)
        assert (task.retry_policy, task.max_retries, task.error_category) == ("exponential", 9, "network")
        await dlq.enqueue("wf_3", TASK, REPOS, "timeout")
        assert len(await dlq.list_tasks()) == 3
        assert counted(integration) == {"manually_enqueued": 2}


@lived
async def test_under_disabled_nothing_is_enqueued_and_the_caller_is_told(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        integration = create_dlq_integration(Application(dlq), "disabled")
        with pytest.raises(NotHeld, match=r"turned off \(its strategy is 'disabled'\); the failure is still the caller's"):
            await integration.enqueue("wf_1", TASK, REPOS, "timeout")
        with pytest.raises(NotHeld, match=r"turned off \(dlq_enabled\)"):
            await create_dlq_integration(Application(None)).enqueue("wf_1", TASK, REPOS, "timeout")
        assert await dlq.list_tasks() == []


@lived
async def test_a_strategy_that_there_is_not_is_told_with_the_nearest(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        integration = create_dlq_integration(Application(dlq))
        with pytest.raises(BadSettings, match=r"'selectiv' is no strategy; did you mean selective\?"):
            integration.set_strategy("selectiv")
        assert integration.strategy is DLQIntegrationStrategy.AUTOMATIC


@lived
async def test_the_strategy_may_change_while_it_runs(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        integration = create_dlq_integration(Application(dlq, RuntimeError("boom")))
        answers = []
        for strategy in DLQIntegrationStrategy:
            integration.set_strategy(strategy)
            answers.append((await integration.execute_with_dlq(TASK, "llamaindex", REPOS))["dlq_enqueued"])
        assert answers == [True, False, False, False]
        assert integration.get_statistics() == {
            "workflows_executed": 4,
            "workflows_failed": 4,
            "auto_enqueued": 1,
            "manually_enqueued": 0,
            "skipped_permanent": 1,
            "skipped_permission": 0,
            "enqueue_rate": 0.25,
            "strategy": "disabled",
        }


@pytest.mark.parametrize(
    "answer", [{"status": "failed", "error": "Connection timeout"}, {"success": False, "error": "Connection timeout"}]
)
@lived
async def test_a_workflow_that_says_it_failed_has_failed(tmp_path: Path, answer: dict[str, Any]) -> None:
    async with queue(tmp_path) as dlq:
        told = await create_dlq_integration(Application(dlq, answer)).execute_with_dlq(TASK, "llamaindex", REPOS)
        assert (told["status"], told["error"], told["dlq_enqueued"]) == ("failed", "Connection timeout", True)
        assert (await seen(dlq, told["dlq_task_id"])).error_category == "network"


@lived
async def test_a_workflow_that_cancels_itself_has_failed_but_one_that_is_cancelled_has_not(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        integration = create_dlq_integration(Application(dlq, asyncio.CancelledError()))
        answer = await integration.execute_with_dlq(TASK, "llamaindex", REPOS)
        assert (answer["status"], answer["dlq_enqueued"]) == ("failed", True)
        assert await dlq.clear_all() == 1

        async def long(task: object, adapter: object, repos: object) -> None:
            running.set()
            await asyncio.Event().wait()

        running = asyncio.Event()
        call = asyncio.create_task(integration.execute_with_dlq(TASK, "llamaindex", REPOS, execute=long))
        await running.wait()
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        assert await dlq.list_tasks() == []


@lived
async def test_a_full_queue_costs_no_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with queue(tmp_path, 1) as dlq:
        integration = create_dlq_integration(Application(dlq, TimeoutError("slow")))
        assert (await integration.execute_with_dlq(TASK, "llamaindex", REPOS))["dlq_enqueued"]
        with caplog.at_level(logging.ERROR, "redrive.workflows"):
            answer = await integration.execute_with_dlq(TASK, "llamaindex", REPOS)
        assert (answer["status"], answer["error"], answer["dlq_enqueued"]) == ("failed", "slow", False)
        assert answer["dlq_error"].startswith("Dead letter queue is full (max_size=1).")
        assert "could not be enqueued" in caplog.text
        assert counted(integration)["enqueue_rate"] == 0.5


@lived
async def test_a_store_that_cannot_be_used_costs_no_answer(tmp_path: Path) -> None:
    (tmp_path / "redrive.db").write_bytes(b"this is no database, " * 100)
    async with queue(tmp_path) as dlq:
        answer = await create_dlq_integration(Application(dlq, TimeoutError("slow"))).execute_with_dlq(TASK, "llamaindex", REPOS)
        assert (answer["status"], answer["error"], answer["dlq_enqueued"]) == ("failed", "slow", False)
        assert answer["dlq_error"]


@lived
async def test_without_a_queue_a_failure_is_told_and_nothing_else(tmp_path: Path) -> None:
    integration = create_dlq_integration(Application(None, TimeoutError("slow")))
    answer = await integration.execute_with_dlq(TASK, "llamaindex", REPOS)
    assert (answer["status"], answer["dlq_enqueued"], "dlq_error" in answer) == ("failed", False, False)


@lived
async def test_a_retried_workflow_that_fails_again_makes_no_second_letter(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        app = Application(dlq, TimeoutError("slow"))
        integration = create_dlq_integration(app)
        first = await integration.execute_with_dlq(TASK, "llamaindex", REPOS)

        async def again(task: dict[str, Any], repos: list[str]) -> Any:
            return await integration.execute_with_dlq(task, task["adapter"], repos)

        answer = await dlq.retry_task(first["dlq_task_id"], again)
        assert (answer["success"], answer["error"]) == (False, "slow")
        (task,) = await dlq.list_tasks()
        assert (task.task_id, task.retry_count, task.total_attempts) == (first["dlq_task_id"], 1, 2)
        assert (await lifetime(dlq))["enqueued_total"] == 1
        app.works.answers = [{"status": "completed"}]
        answer = await dlq.retry_task(task.task_id, again)
        assert answer["result"]["workflow_id"] == task.task_id
        assert await dlq.list_tasks() == []


@lived
async def test_what_a_retry_has_set_off_is_enqueued_by_itself_once_the_retry_is_over(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        integration = create_dlq_integration(Application(dlq, TimeoutError("slow")))
        over = asyncio.Event()
        later: list[asyncio.Task[dict[str, Any]]] = []

        async def afterwards() -> dict[str, Any]:
            await over.wait()
            return await integration.execute_with_dlq({"type": "report"}, "llamaindex", [])

        async def again(task: dict[str, Any], repos: list[str]) -> None:
            later.append(asyncio.create_task(afterwards()))

        await dlq.enqueue("wf_1", TASK, REPOS, "timeout")
        assert (await dlq.retry_task("wf_1", again))["success"]
        over.set()
        answer = await later[0]
        assert answer["dlq_enqueued"]
        assert (await seen(dlq, answer["dlq_task_id"])).task["type"] == "report"


@lived
async def test_a_task_goes_back_to_the_adapter_that_failed_whatever_it_names_itself(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        integration = create_dlq_integration(Application(dlq, TimeoutError("slow")))
        answer = await integration.execute_with_dlq({"adapter": "usb", "type": "print"}, "llamaindex", REPOS)
        assert (await seen(dlq, answer["dlq_task_id"])).task["adapter"] == "llamaindex"


@pytest.mark.parametrize("category", list(ErrorCategory))
@lived
async def test_errors_are_classified_by_type_or_by_words(category: ErrorCategory) -> None:
    manager = ErrorRecoveryManager()
    error, policy, max_retries = BY_CATEGORY[category]
    assert await manager.classify_error(error) is category
    retry = await manager.default_retry(error)
    assert (retry.policy, retry.max_retries) == (policy, max_retries)


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("Rate limit exceeded", "transient"),
        ("service busy, try later", "transient"),
        ("Connection timeout", "network"),
        ("SSL handshake failed", "network"),
        ("disk full", "resource"),
        ("Access denied", "permission"),
        ("invalid input", "validation"),
        ("something else", "permanent"),
        ("the author has no information", "permanent"),
        ("", "permanent"),
    ],
)
@lived
async def test_what_is_left_of_an_error_is_classified_by_whole_words(text: str, category: str) -> None:
    assert await ErrorRecoveryManager().classify_error(text) == category


@lived
async def test_rules_of_ones_own_come_first(tmp_path: Path) -> None:
    manager = ErrorRecoveryManager([Rule(category=ErrorCategory.TRANSIENT, message="boom")])
    assert await manager.classify_error(RuntimeError("boom")) is ErrorCategory.TRANSIENT
    assert await manager.classify_error("boom") is ErrorCategory.TRANSIENT
    async with DeadLetterQueue(store=place(tmp_path)) as dlq:
        app = Application(dlq, RuntimeError("boom"))
        app.error_recovery_manager = manager
        answer = await create_dlq_integration(app).execute_with_dlq(TASK, "llamaindex", REPOS)
        assert (await seen(dlq, answer["dlq_task_id"])).error_category == "transient"


@lived
async def test_more_retries_can_be_asked_for_in_the_settings(tmp_path: Path) -> None:
    """Where too many tasks are exhausted, the guide says to raise `dlq_default_max_retries`."""
    answers = Works(ConnectionError("x"), PermissionError("x"))
    async with WorkflowApp({"a": answers}, WorkflowSettings(dlq_default_max_retries=7), store=place(tmp_path)) as app:
        answer = await app.execute_workflow_parallel(TASK, "a", REPOS[:1])
        assert (answer["retry_policy"], answer["max_retries"]) == ("exponential", 7)
        answer = await app.execute_workflow_parallel(TASK, "a", REPOS[:1])
        assert (answer["retry_policy"], answer["max_retries"]) == ("never", 0)
