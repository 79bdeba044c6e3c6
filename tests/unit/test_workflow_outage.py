"""While the store of the workflow DLQ is down: tasks wait in the journal, never in memory, or the caller is told."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from redrive import NotHeld, StoreUnavailable
from redrive.backends.memory import MemoryDesk, MemoryLetters
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.journal import Journal, pending
from redrive.workflows import DeadLetterQueue, WorkflowApp, WorkflowSettings
from tests.unit.waiting import until
from tests.unit.workflow_use import Works, kept, lifetime, lived, seen, until_it_is

NAME = "opensearch://search.example.com/mahavishnu_dlq"


class Remote:
    """A store across a network, which can be down; also its desk can be there."""

    def __init__(self, port: Any) -> None:
        self._port = port
        self.is_down = False

    def __getattr__(self, verb: str) -> Any:
        attribute = getattr(self._port, verb)
        if not inspect.iscoroutinefunction(attribute) or verb == "close":
            return attribute

        async def call(*args: Any, **kwargs: Any) -> Any:
            if self.is_down:
                raise StoreUnavailable("search.example.com does not answer")
            return await attribute(*args, **kwargs)

        return call


class Scene:
    """A remote store with its desk, a journal, and queues over them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.letters, self.desk = Remote(MemoryLetters()), Remote(MemoryDesk())

    def queue(self, max_size: int = 10_000, *, has_journal: bool = True) -> DeadLetterQueue:
        journal = Journal(self.folder, NAME) if has_journal else None
        return DeadLetterQueue(max_size, store=DeadLetters(self.letters, self.desk, journal=journal))

    def down(self, is_down: bool = True) -> None:
        self.letters.is_down = self.desk.is_down = is_down


@lived
async def test_a_task_goes_to_the_journal_and_from_there_to_the_store_when_it_is_back(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    dlq = scene.queue()
    assert await dlq.health() == {"status": "healthy", "store_error": None, "journaled_tasks": 0}
    scene.down()
    task = await kept(dlq, retry_policy="immediate")
    assert (task.task_id, task.status) == ("wf_1", "pending")
    health = await dlq.health()
    assert (health["status"], health["journaled_tasks"]) == ("degraded", 1)
    assert "does not answer" in health["store_error"]
    # It is on the disk, not in memory.
    assert pending(tmp_path) != []
    scene.down(False)
    await until(lambda: dlq.letters.journaled == 0)
    assert await seen(dlq) == task
    assert (await dlq.health())["status"] == "healthy"
    await dlq.start_retry_processor(Works())
    await until_it_is(dlq, "completed")
    await dlq.letters.close()


@lived
async def test_figures_wait_until_their_desk_is_back(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    dlq = scene.queue()
    scene.down()
    await kept(dlq, "wf_1")
    await kept(dlq, "wf_2")
    scene.down(False)
    await until(lambda: dlq.letters.journaled == 0)
    assert await lifetime(dlq) == {"enqueued_total": 2}
    assert await lifetime(scene.queue()) == {}
    await kept(dlq, "wf_3")
    assert await lifetime(scene.queue()) == {"enqueued_total": 3}
    scene.desk.is_down = True
    await kept(dlq, "wf_4")
    scene.desk.is_down = False
    await dlq.close()
    assert await lifetime(scene.queue()) == {"enqueued_total": 4}
    await dlq.letters.close()


@lived
async def test_what_a_process_left_in_its_journal_is_put_by_the_next(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.down()
    dlq = scene.queue()
    await kept(dlq)
    await dlq.letters.close()
    scene.down(False)
    dlq = scene.queue()
    await kept(dlq, "wf_2")
    assert {task.task_id for task in await dlq.list_tasks()} == {"wf_1", "wf_2"}
    await dlq.letters.close()


@lived
async def test_a_full_queue_takes_tasks_while_nobody_can_say_that_it_is_full(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    dlq = scene.queue(1)
    await kept(dlq, "wf_1")
    scene.down()
    # Not lost: the limit is there to make people look, not to lose failures.
    await kept(dlq, "wf_2")
    scene.down(False)
    await until(lambda: dlq.letters.journaled == 0)
    with pytest.raises(ValueError, match="full"):
        await kept(dlq, "wf_3")
    await dlq.letters.close()


@lived
async def test_without_a_journal_the_caller_is_told_and_the_failure_is_still_the_callers(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    dlq = scene.queue(2, has_journal=False)
    scene.down()
    for turn in range(5):
        with pytest.raises(NotHeld, match="does not answer"):
            await kept(dlq, f"wf_{turn}")
    with pytest.raises(StoreUnavailable):
        await dlq.get_statistics()
    scene.down(False)
    await kept(dlq, "wf_1")
    await kept(dlq, "wf_2")
    await dlq.letters.close()


@lived
async def test_a_workflow_that_could_not_be_kept_is_answered_for(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.down()
    async with WorkflowApp({"llamaindex": Works(TimeoutError("slow"))}, WorkflowSettings(), store="memory:") as app:
        app.dlq = scene.queue(has_journal=False)
        answer = await app.execute_workflow_parallel({}, "llamaindex", [])
        assert (answer["status"], answer["error"], answer["dlq_enqueued"]) == ("failed", "slow", False)
        assert "does not answer" in answer["dlq_error"]


@lived
async def test_dependencies_do_not_keep_a_task_from_the_journal(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    dlq = scene.queue()
    scene.down()
    assert (await kept(dlq, depends_on=["a"])).depends_on == ["a"]
    scene.down(False)
    await until(lambda: dlq.letters.journaled == 0)
    assert (await seen(dlq)).depends_on == ["a"]
    await dlq.letters.close()


@lived
async def test_the_processor_goes_on_when_the_store_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import timedelta

    from redrive.engine import processor

    monkeypatch.setattr(processor, "AFTER_ERROR", timedelta(milliseconds=10))
    scene = Scene(tmp_path)
    dlq = scene.queue()
    await dlq.start_retry_processor(Works(), check_interval_seconds=0.01)
    scene.down()
    await kept(dlq, retry_policy="immediate")
    scene.down(False)
    await until_it_is(dlq, "completed")
    await dlq.stop_retry_processor()
    await dlq.letters.close()
