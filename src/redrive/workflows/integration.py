"""The integration: workflows that fail go to the dead letter queue, as the strategy says."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Protocol, Self
from uuid import uuid4

from redrive.engine.call import HandlerRefused, refusal
from redrive.engine.describe import message_of
from redrive.model.errors import NotHeld, RedriveError
from redrive.workflows.callback import retried_here
from redrive.workflows.names import DLQIntegrationStrategy, ErrorCategory, chosen
from redrive.workflows.queue import DeadLetterQueue
from redrive.workflows.recovery import ErrorRecoveryManager
from redrive.workflows.task import FailedTask

log = logging.getLogger("redrive.workflows")

_HOPELESS = {
    ErrorCategory.PERMISSION: "skipped_permission",
    ErrorCategory.VALIDATION: "skipped_permanent",
    ErrorCategory.PERMANENT: "skipped_permanent",
}
"""What the selective strategy leaves alone, and where that is counted."""

_COUNTED = (
    "workflows_executed",
    "workflows_failed",
    "auto_enqueued",
    "manually_enqueued",
    "skipped_permanent",
    "skipped_permission",
)

Execute = Callable[[dict[str, Any], str, list[str]], Awaitable[Any]]


class RepositoriesFailed(ExceptionGroup[Exception]):
    """The work on some repositories failed; it worked on the others, which need not be done again."""

    repos: list[str]

    @classmethod
    def of(cls, repos: list[str], errors: list[Exception], tried: int) -> RepositoriesFailed:
        failed = cls(f"{len(repos)} of {tried} repositories failed", errors)
        failed.repos = repos
        return failed


class App(Protocol):
    """What the integration needs of an application."""

    dlq: DeadLetterQueue | None
    error_recovery_manager: ErrorRecoveryManager

    async def execute_workflow(self, task: dict[str, Any], adapter_name: str, repos: list[str] | None = None) -> Any: ...


class DLQIntegration:
    """Made by `create_dlq_integration(app)`, with or without `await`."""

    def __init__(self, app: App, strategy: DLQIntegrationStrategy | str = DLQIntegrationStrategy.AUTOMATIC) -> None:
        self._app = app
        self._counts: Counter[str] = Counter()
        self.set_strategy(strategy)

    def __await__(self) -> Generator[Any, None, Self]:
        return self._itself().__await__()

    async def _itself(self) -> Self:
        return self

    @property
    def strategy(self) -> DLQIntegrationStrategy:
        return self._strategy

    def set_strategy(self, strategy: DLQIntegrationStrategy | str) -> None:
        """Say from now on which failures are enqueued."""
        self._strategy = chosen(DLQIntegrationStrategy, strategy, "strategy")

    async def execute_with_dlq(
        self,
        task: dict[str, Any],
        adapter_name: str,
        repos: list[str] | None = None,
        user_id: str | None = None,
        *,
        execute: Execute | None = None,
    ) -> dict[str, Any]:
        """Execute a workflow. One that fails is answered for with `status: failed` and whether it was enqueued; none raises.

        `execute` does the work; without it, the app's `execute_workflow`.
        """
        workflow_id = retried_here() or f"wf_{uuid4().hex[:12]}"
        self._counts["workflows_executed"] += 1
        try:
            result = await (execute or self._app.execute_workflow)(task, adapter_name, repos or [])
        except Exception as error:
            return await self._failed(workflow_id, task, adapter_name, repos or [], error, user_id)
        except asyncio.CancelledError:
            if (caller := asyncio.current_task()) is None or caller.cancelling():
                raise
            # Nobody cancelled this call: the workflow did so to itself, which is a failure like any other.
            cancelled = HandlerRefused("the workflow was cancelled from within")
            return await self._failed(workflow_id, task, adapter_name, repos or [], cancelled, user_id)
        if (why := refusal(result)) is not None:
            return await self._failed(workflow_id, task, adapter_name, repos or [], HandlerRefused(why), user_id)
        return {
            "workflow_id": workflow_id,
            "status": "completed",
            **(result if isinstance(result, Mapping) else {"result": result}),
        }

    async def enqueue(
        self, task_id: str, task: dict[str, Any], repos: Sequence[str] | None, error: str | BaseException, **how: Any
    ) -> FailedTask:
        """Enqueue by hand, unless all is turned off (`NotHeld`); the arguments are those of `DeadLetterQueue.enqueue`."""
        if self._app.dlq is None or self._strategy is DLQIntegrationStrategy.DISABLED:
            how_so = "dlq_enabled" if self._app.dlq is None else "its strategy is 'disabled'"
            raise NotHeld(f"the dead letter queue is turned off ({how_so}); the failure is still the caller's")
        told = how.pop("error_category", None) or await self._app.error_recovery_manager.classify_error(error)
        category = chosen(ErrorCategory, told, "error category")
        retry = self._app.dlq.defaults.of(category)
        how = {"retry_policy": retry.policy, "max_retries": retry.max_retries, **how}
        kept = await self._app.dlq.enqueue(task_id, task, repos, error, error_category=category, **how)
        self._counts["manually_enqueued"] += 1
        return kept

    def get_statistics(self) -> dict[str, Any]:
        """What this integration has seen since it was made."""
        counts: dict[str, Any] = {name: self._counts[name] for name in _COUNTED}
        failed = counts["workflows_failed"]
        return {**counts, "enqueue_rate": counts["auto_enqueued"] / failed if failed else 0.0, "strategy": self._strategy.value}

    async def _failed(
        self, workflow_id: str, task: dict[str, Any], adapter_name: str, repos: list[str], error: Exception, user_id: str | None
    ) -> dict[str, Any]:
        self._counts["workflows_failed"] += 1
        repos = error.repos if isinstance(error, RepositoriesFailed) else repos
        kept, why_not = await self._enqueued(workflow_id, task, adapter_name, repos, error, user_id)
        answer = {
            "workflow_id": workflow_id,
            "status": "failed",
            "error": message_of(error) or type(error).__name__,
            "error_type": type(error).__name__,
            "dlq_enqueued": kept is not None,
            "dlq_task_id": kept.task_id if kept else None,
            "retry_policy": kept.retry_policy if kept else None,
            "max_retries": kept.max_retries if kept else None,
        }
        return answer if why_not is None else {**answer, "dlq_error": why_not}

    async def _enqueued(
        self, workflow_id: str, task: dict[str, Any], adapter_name: str, repos: list[str], error: Exception, user_id: str | None
    ) -> tuple[FailedTask | None, str | None]:
        """The task as it was kept; or None, and why it should have been but could not."""
        dlq = self._app.dlq
        if dlq is None or retried_here() is not None:
            # What is being retried is in the queue already, and its own letter tells of this failure.
            return None, None
        category = await self._app.error_recovery_manager.classify_error(error)
        if not self._is_wanted(category):
            return None, None
        retry = dlq.defaults.of(category)
        try:
            kept = await dlq.enqueue(
                task_id=workflow_id,
                # Last, since it is by this that the retry finds the way back to the adapter that failed.
                task={**task, "adapter": adapter_name},
                repos=repos,
                error=error,
                retry_policy=retry.policy,
                max_retries=retry.max_retries,
                error_category=category,
                metadata={"adapter": adapter_name, **({"user_id": user_id} if user_id else {})},
            )
        except RedriveError as refused:
            log.exception("Workflow %s failed and could not be enqueued", workflow_id)
            return None, str(refused)
        self._counts["auto_enqueued"] += 1
        log.warning(
            "Workflow %s failed and was enqueued (category=%s, policy=%s, max_retries=%d)",
            workflow_id,
            category.value,
            retry.policy,
            retry.max_retries,
        )
        return kept, None

    def _is_wanted(self, category: ErrorCategory) -> bool:
        match self._strategy:
            case DLQIntegrationStrategy.AUTOMATIC:
                return True
            case DLQIntegrationStrategy.SELECTIVE:
                if (skipped := _HOPELESS.get(category)) is not None:
                    self._counts[skipped] += 1
                return skipped is None
            case DLQIntegrationStrategy.MANUAL | DLQIntegrationStrategy.DISABLED:
                return False


def create_dlq_integration(app: App, strategy: DLQIntegrationStrategy | str = DLQIntegrationStrategy.AUTOMATIC) -> DLQIntegration:
    """The integration for an application; it may be awaited too."""
    return DLQIntegration(app, strategy)
