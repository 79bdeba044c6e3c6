"""`WorkflowApp`: a small application that shows how the queue is wired into one. Its adapters are any callables."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from redrive.engine.call import HandlerRefused, refusal
from redrive.model.errors import BadSettings
from redrive.model.hint import hint
from redrive.workflows.integration import DLQIntegration, RepositoriesFailed, create_dlq_integration
from redrive.workflows.observed import Observability
from redrive.workflows.queue import DeadLetterQueue, Defaults
from redrive.workflows.recovery import ErrorRecoveryManager
from redrive.workflows.settings import WorkflowSettings

log = logging.getLogger("redrive.workflows")

Adapter = Callable[[dict[str, Any], list[str]], Any]
"""Does a workflow's work on some repositories: async or plain, called with the task and them."""


class WorkflowApp:
    """Executes workflows by adapters; those that fail go to `dlq`, and come back through the same adapter."""

    def __init__(
        self,
        adapters: Mapping[str, Adapter] | None = None,
        config: WorkflowSettings | None = None,
        *,
        opensearch_client: Any = None,
        observability: Observability | None = None,
        store: str | None = None,
        recovery: ErrorRecoveryManager | None = None,
    ) -> None:
        self.config = config or WorkflowSettings.load()
        self.adapters = dict(adapters or {})
        self.error_recovery_manager = recovery or ErrorRecoveryManager()
        self.logger = log
        self.dlq: DeadLetterQueue | None = None
        self._integration = create_dlq_integration(self, self.config.dlq_strategy)
        self.dlq_integration: DLQIntegration | None = self._integration if self.config.dlq_enabled else None
        if self.config.dlq_enabled:
            self.dlq = DeadLetterQueue(
                max_size=self.config.dlq_max_size,
                opensearch_client=opensearch_client,
                observability_manager=observability,
                store=store or self.config.dlq_store or None,
                defaults=Defaults(
                    retry_policy=self.config.dlq_default_retry_policy,
                    max_retries=self.config.dlq_default_max_retries,
                    concurrency=self.config.dlq_concurrency,
                ),
                fail_on_opensearch_unavailable=self.config.dlq_fail_on_opensearch_unavailable,
            )

    async def execute_workflow(self, task: dict[str, Any], adapter_name: str, repos: list[str] | None = None) -> Any:
        """Do the work in one call of the adapter; what it raises is raised."""
        return await self._done(self._adapter(adapter_name), task, repos or [])

    async def execute_workflow_parallel(
        self, task: dict[str, Any], adapter_name: str, repos: list[str] | None = None, user_id: str | None = None
    ) -> dict[str, Any]:
        """Do the work on all repositories side by side. When it fails on some, those are enqueued, and the answer says so.

        Without a queue the answer is the same, only that nothing is enqueued.
        """
        return await self._integration.execute_with_dlq(task, adapter_name, repos, user_id, execute=self._each)

    async def start_dlq_processor(self) -> None:
        """Retry what failed, if the settings say so."""
        if self.dlq is None:
            return
        if not self.config.dlq_retry_processor_enabled:
            self.logger.info("DLQ retry processor disabled in configuration")
            return
        await self.dlq.start_retry_processor(callback=self._again, check_interval_seconds=self.config.dlq_retry_interval_seconds)
        self.logger.info(f"DLQ retry processor started (interval={self.config.dlq_retry_interval_seconds}s)")

    async def stop_dlq_processor(self) -> None:
        if self.dlq is not None:
            await self.dlq.stop_retry_processor()
            self.logger.info("DLQ retry processor stopped")

    async def close(self) -> None:
        """Stop retrying, and let go of the queue's store."""
        if self.dlq is not None:
            await self.dlq.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def _again(self, task: dict[str, Any], repos: list[str]) -> dict[str, Any]:
        """The retry callback: the same adapter, with the same task."""
        adapter = task.get("adapter") or next(iter(self.adapters), "")
        return await self._each(task, str(adapter), repos)

    async def _each(self, task: dict[str, Any], adapter_name: str, repos: list[str]) -> dict[str, Any]:
        """The work on each repository by itself, all at once; without repositories, one call."""
        adapter = self._adapter(adapter_name)
        parts = [[repo] for repo in repos] or [[]]
        results = await asyncio.gather(*(self._done(adapter, task, part) for part in parts), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, Exception):
                raise result
        errors = {number: result for number, result in enumerate(results) if isinstance(result, Exception)}
        if not errors:
            return {"results": results}
        if len(parts) == 1:
            raise errors[0]
        raise RepositoriesFailed.of([repos[number] for number in errors], list(errors.values()), len(repos))

    async def _done(self, adapter: Adapter, task: dict[str, Any], repos: list[str]) -> Any:
        try:
            result = await adapter(task, repos) if inspect.iscoroutinefunction(adapter) else await _aside(adapter, task, repos)
            if inspect.isawaitable(result):
                result = await result
        except SystemExit as exited:
            raise _left(exited) from exited
        if inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise HandlerRefused("a generator function does nothing when it is called; wrap it in a function that runs it")
        if (why := refusal(result)) is not None:
            raise HandlerRefused(why)
        return result

    def _adapter(self, name: str) -> Adapter:
        try:
            return self.adapters[name]
        except KeyError:
            known = hint(name, self.adapters) if self.adapters else "there is none"
            raise BadSettings(f"there is no adapter '{name}'; {known}") from None


def _left(exited: SystemExit) -> HandlerRefused:
    """An adapter that ends is no reason to end the program."""
    return HandlerRefused(f"the adapter called sys.exit({exited.code!r})")


async def _aside(adapter: Adapter, task: dict[str, Any], repos: list[str]) -> Any:
    """Call a plain adapter in a thread. When cancelled, wait for it: nobody may think that it is done before it is."""

    def called() -> Any:
        try:
            return adapter(task, repos)
        except StopIteration as error:
            # asyncio cannot carry one from one thread to another.
            raise RuntimeError(f"StopIteration: {error}") from error
        except SystemExit as exited:
            raise _left(exited) from exited

    running = asyncio.ensure_future(asyncio.to_thread(called))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
