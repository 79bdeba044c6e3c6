"""After a restart everything of the workflow DLQ is there and goes on by itself; after kill -9, too."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from redrive.workflows import DeadLetterStatus
from tests.unit.workflow_use import (
    PATIENCE_SECONDS,
    Works,
    application,
    due,
    failing,
    kept,
    lifetime,
    lived,
    place,
    queue,
    seen,
    until,
    until_it_is,
)

_CHILD = """
import asyncio, os, sys
from redrive.workflows import DeadLetterQueue

def say(word):
    os.write(1, f"{word}\\n".encode())

async def enqueueing(dlq):
    for number in range(100_000):
        task = await dlq.enqueue(f"wf_{number}", {"number": number}, [f"/repo/{number}"], "timeout", retry_policy="immediate")
        say(task.task_id)

async def retrying(dlq):
    async def callback(task, repos):
        say(f"began {task['number']}")
        await asyncio.sleep(0.002 * (task["number"] % 3))
        with open(os.path.join(sys.argv[3], "work"), "a") as work:
            work.write(f"{task['number']}\\n")
        say(f"did {task['number']}")
    await dlq.start_retry_processor(callback, 1)
    await asyncio.Event().wait()

async def holding(dlq):
    async def callback(task, repos):
        say("began")
        await asyncio.Event().wait()
    await dlq.start_retry_processor(callback, 1)
    await asyncio.Event().wait()

asyncio.run(globals()[sys.argv[1]](DeadLetterQueue(store=sys.argv[2])))
"""


def child(what: str, folder: Path, *, lease_seconds: float = 0.5) -> subprocess.Popen[str]:
    """Another process on the same store, whose leases end soon after it does."""
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, what, place(folder), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "REDRIVE_LEASE_SECONDS": str(lease_seconds)},
    )


def killed_after(process: subprocess.Popen[str], lines: int) -> list[str]:
    """Kill -9 when it has said so many things; all that it said."""
    assert process.stdout is not None
    said = [process.stdout.readline().strip() for _ in range(lines)]
    os.kill(process.pid, signal.SIGKILL)
    said += [line.strip() for line in process.stdout.read().splitlines()]
    assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    process.stdout.close()
    return [word for word in said if word]


@lived
async def test_after_a_restart_everything_is_there_and_goes_on(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        await kept(dlq, "waits", metadata={"team": "platform"}, max_retries=5)
        await dlq.retry_task("waits", failing())
        await kept(dlq, "due", retry_policy="immediate")
        await kept(dlq, "exhausted", max_retries=0)
        await kept(dlq, "archived")
        await dlq.archive_task("archived")
        before = {task.task_id: task for status in DeadLetterStatus for task in await dlq.list_tasks(status)}
        figures = await lifetime(dlq)
    async with queue(tmp_path) as dlq:
        assert {task.task_id: task for status in DeadLetterStatus for task in await dlq.list_tasks(status)} == before
        assert await lifetime(dlq) == figures
        callback = Works()
        await dlq.start_retry_processor(callback)
        await until_it_is(dlq, "completed", "due")
        await due(dlq, "waits")
        await until_it_is(dlq, "completed", "waits")
        assert (await seen(dlq, "waits")).total_attempts == 2
        assert len(callback.calls) == 2


@lived
async def test_an_app_that_is_started_again_goes_on_with_what_its_forerunner_left(tmp_path: Path) -> None:
    async with application(tmp_path, failing()) as app:
        answer = await app.execute_workflow_parallel({"type": "code_sweep"}, "llamaindex", ["/a"])
    works = Works()
    async with application(tmp_path, works) as app:
        assert app.dlq is not None
        await due(app.dlq, answer["dlq_task_id"])
        await app.start_dlq_processor()
        await until_it_is(app.dlq, "completed", answer["dlq_task_id"])
        assert works.calls == [({"type": "code_sweep", "adapter": "llamaindex"}, ["/a"])]


@pytest.mark.parametrize("lines", [1, 7, 40])
def test_a_process_killed_while_it_enqueues_has_lost_nothing_that_it_was_told_of(tmp_path: Path, lines: int) -> None:
    said = killed_after(child("enqueueing", tmp_path), lines)

    async def story() -> None:
        async with queue(tmp_path) as dlq:
            tasks = {task.task_id: task for task in await dlq.list_tasks(limit=100_000)}
            assert len(said) >= lines
            assert set(said) <= set(tasks)
            # At most the one that was on its way is there beside them, and it is whole.
            assert len(tasks) - len(said) <= 1
            for task_id, task in tasks.items():
                number = int(task_id.removeprefix("wf_"))
                assert (task.task, task.repos, task.status) == ({"number": number}, [f"/repo/{number}"], "pending")
            assert (await dlq.get_statistics())["queue_size"] == len(tasks)

    asyncio.run(story())


@pytest.mark.parametrize("lines", [1, 8, 25])
def test_a_process_killed_while_it_retries_leaves_its_tasks_to_the_next(tmp_path: Path, lines: int) -> None:
    async def before() -> None:
        async with queue(tmp_path) as dlq:
            for number in range(20):
                await kept(dlq, f"wf_{number}", task={"number": number}, retry_policy="immediate")

    asyncio.run(before())
    killed_after(child("retrying", tmp_path), lines)

    async def after() -> None:
        done = [int(line) for line in (tmp_path / "work").read_text().split()] if (tmp_path / "work").exists() else []
        async with queue(tmp_path) as dlq:
            tasks = [await seen(dlq, f"wf_{number}") for number in range(20)]
            completed = {task.task["number"] for task in tasks if task.status == "completed"}
            # Nothing is said to be done that was not.
            assert completed <= set(done)
            callback = Works()
            await dlq.start_retry_processor(callback, check_interval_seconds=1)
            for number in range(20):
                await until_it_is(dlq, "completed", f"wf_{number}")
            assert {task["number"] for task, _ in callback.calls} == set(range(20)) - completed
            # A kill spends no attempt.
            assert {(await seen(dlq, f"wf_{number}")).retry_count for number in range(20)} == {0}

    asyncio.run(after())


@lived
async def test_what_a_killed_process_was_retrying_comes_free_by_itself(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        await kept(dlq, retry_policy="immediate")
        # So long that it keeps its lease, also when it has to wait for its turn on a busy machine.
        process = await asyncio.to_thread(child, "holding", tmp_path, lease_seconds=3)
        await until_it_is(dlq, "retrying")
        assert "right now" in (await dlq.retry_task("wf_1", Works()))["error"]
        await asyncio.to_thread(killed_after, process, 1)

        async def is_retried() -> bool:
            answer: dict[str, Any] = await dlq.retry_task("wf_1", Works())
            return bool(answer["success"])

        await until(is_retried)
        assert (await seen(dlq)).status == "completed"
