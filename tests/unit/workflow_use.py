"""How tests use the workflow DLQ: queues on one SQLite file, and callbacks that do as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec

import redrive
from redrive import Amendment
from redrive.workflows import DeadLetterQueue, FailedTask, WorkflowApp, WorkflowSettings
from tests.unit.waiting import until

P = ParamSpec("P")

PATIENCE_SECONDS = 30
TASK = {"type": "code_sweep"}
REPOS = ["/path/to/repo"]
ERROR = "Connection timeout"

SOON = "soon"
redrive.register_backoff(SOON, lambda _: timedelta(milliseconds=1))


def lived(story: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine, on an event loop of its own."""

    @wraps(story)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(story(*args, **kwargs))

    return run


def place(folder: Path) -> str:
    return f"sqlite:{folder}/redrive.db"


def queue(folder: Path, max_size: int = 10_000, **given: Any) -> DeadLetterQueue:
    return DeadLetterQueue(max_size, store=place(folder), **given)


def application(folder: Path, *adapters: Any, **config: Any) -> WorkflowApp:
    """An app whose adapters are named llamaindex, second, third …"""
    names = ("llamaindex", "second", "third")
    return WorkflowApp(dict(zip(names, adapters, strict=False)), WorkflowSettings(**config), store=place(folder))


async def kept(dlq: DeadLetterQueue, task_id: str = "wf_1", error: str | BaseException = ERROR, **given: Any) -> FailedTask:
    """Enqueue a task of which only some things matter."""
    return await dlq.enqueue(task_id, given.pop("task", TASK), given.pop("repos", REPOS), error, **given)


async def seen(dlq: DeadLetterQueue, task_id: str = "wf_1") -> FailedTask:
    task = await dlq.get_task(task_id)
    assert task is not None, f"there is no task {task_id}"
    return task


async def status(dlq: DeadLetterQueue, task_id: str = "wf_1") -> str:
    return (await seen(dlq, task_id)).status


async def lifetime(dlq: DeadLetterQueue) -> dict[str, int]:
    """Of the lifetime figures, those that are not 0."""
    stats = await dlq.get_statistics()
    return {name: count for name, count in stats["lifetime_stats"].items() if count}


async def until_counted(dlq: DeadLetterQueue, **figures: int) -> None:
    """Wait until the lifetime figures are these, and no others: they are written a moment after the fact."""

    async def is_so() -> bool:
        return await lifetime(dlq) == figures

    try:
        await until(is_so)
    except TimeoutError:
        assert await lifetime(dlq) == figures


async def due(dlq: DeadLetterQueue, task_id: str = "wf_1") -> None:
    """Let the time of a task's next retry be now."""
    letter_id = next(letter.id for letter in [one async for one in dlq.letters.find()] if letter.source_id == task_id)
    await dlq.letters.amend(Amendment(id=letter_id, next_retry_at=datetime.now(UTC)))


async def until_it_is(dlq: DeadLetterQueue, wanted: str, task_id: str = "wf_1") -> None:
    async def is_so() -> bool:
        task = await dlq.get_task(task_id)
        return task is not None and task.status == wanted

    await until(is_so)


class Works:
    """A callback that remembers its calls, and answers as it is told: the last answer for ever. An exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers) or [{"status": "completed"}]
        self.calls: list[tuple[dict[str, Any], list[str]]] = []

    async def __call__(self, task: dict[str, Any], repos: list[str]) -> Any:
        self.calls.append((task, repos))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def was_called(self, times: int = 1) -> Callable[[], bool]:
        return lambda: len(self.calls) >= times

    @property
    def types(self) -> list[Any]:
        """Which tasks it was called with, in order."""
        return [task.get("type") for task, _ in self.calls]


class Held:
    """A callback that does not come back until it is let go."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.calls = 0
        self.gate = asyncio.Event()

    async def __call__(self, task: dict[str, Any], repos: list[str]) -> dict[str, str]:
        self.calls += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.gate.wait()
        finally:
            self.inside -= 1
        return {"status": "completed"}

    def holds(self, number: int) -> Callable[[], bool]:
        return lambda: self.inside == number


failing = partial(Works, ConnectionError("still down"))
