"""The application that shows the wiring: adapters of any kind, the queue behind them, and the processor by its settings."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from redrive import BadSettings
from redrive.workflows import DeadLetterQueue, DLQIntegration, RepositoriesFailed, WorkflowApp, WorkflowSettings
from tests.unit.waiting import until
from tests.unit.workflow_use import REPOS, TASK, Works, application, due, failing, lived, place, queue, seen, until_it_is


def plain(task: dict[str, Any], repos: list[str]) -> dict[str, Any]:
    assert threading.current_thread() is not threading.main_thread()
    return {"swept": repos}


async def coroutine(task: dict[str, Any], repos: list[str]) -> dict[str, Any]:
    return {"swept": repos}


class Plain:
    def __call__(self, task: dict[str, Any], repos: list[str]) -> dict[str, Any]:
        return {"swept": repos}


class Async:
    async def __call__(self, task: dict[str, Any], repos: list[str]) -> dict[str, Any]:
        return {"swept": repos}

    async def method(self, task: dict[str, Any], repos: list[str]) -> dict[str, Any]:
        return {"swept": repos}


def prefixed(prefix: str, task: dict[str, Any], repos: list[str]) -> dict[str, Any]:
    return {"swept": repos}


ADAPTERS: list[Any] = [
    plain,
    coroutine,
    Plain(),
    Async(),
    Async().method,
    partial(prefixed, "x"),
    partial(coroutine),
    lambda task, repos: {"swept": repos},
]


@pytest.mark.parametrize("adapter", ADAPTERS)
@lived
async def test_an_adapter_is_any_callable(tmp_path: Path, adapter: Any) -> None:
    async with application(tmp_path, adapter) as app:
        assert await app.execute_workflow(TASK, "llamaindex", REPOS) == {"swept": REPOS}
        answer = await app.execute_workflow_parallel(task=TASK, adapter_name="llamaindex", repos=["/a", "/b"])
        assert (answer["status"], answer["results"]) == ("completed", [{"swept": ["/a"]}, {"swept": ["/b"]}])


def refusing(task: dict[str, Any], repos: list[str]) -> dict[str, Any]:
    return {"status": "failed", "error": "Connection timeout"}


def generating(task: dict[str, Any], repos: list[str]) -> Any:
    yield repos


def leaving(task: dict[str, Any], repos: list[str]) -> None:
    sys.exit(3)


async def leaving_too(task: dict[str, Any], repos: list[str]) -> None:
    sys.exit(3)


def stopping(task: dict[str, Any], repos: list[str]) -> None:
    raise StopIteration("at the end")


async def cancelled(task: dict[str, Any], repos: list[str]) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("adapter", "told"),
    [
        (refusing, "Connection timeout"),
        (generating, "a generator function does nothing when it is called"),
        (leaving, "the adapter called sys.exit(3)"),
        (leaving_too, "the adapter called sys.exit(3)"),
        (stopping, "StopIteration: at the end"),
        (cancelled, "the workflow was cancelled from within"),
        (failing(), "still down"),
    ],
)
@lived
async def test_however_an_adapter_fails_it_is_kept(tmp_path: Path, adapter: Any, told: str) -> None:
    async with application(tmp_path, adapter) as app:
        answer = await app.execute_workflow_parallel(TASK, "llamaindex", REPOS)
        assert (answer["status"], answer["dlq_enqueued"]) == ("failed", True)
        assert answer["error"].startswith(told)
        assert app.dlq is not None
        assert (await seen(app.dlq, answer["dlq_task_id"])).error.startswith(told)


@lived
async def test_execute_workflow_raises_what_its_adapter_raises(tmp_path: Path) -> None:
    async with application(tmp_path, failing(), refusing) as app:
        with pytest.raises(ConnectionError, match="still down"):
            await app.execute_workflow(TASK, "llamaindex", REPOS)
        with pytest.raises(Exception, match="Connection timeout"):
            await app.execute_workflow(TASK, "second", REPOS)
        assert app.dlq is not None
        assert await app.dlq.list_tasks() == []


@lived
async def test_an_adapter_that_there_is_not_is_told_with_the_nearest(tmp_path: Path) -> None:
    async with application(tmp_path, plain) as app:
        with pytest.raises(BadSettings, match=r"there is no adapter 'lamaindex'; did you mean llamaindex\?"):
            await app.execute_workflow(TASK, "lamaindex", REPOS)
        answer = await app.execute_workflow_parallel(TASK, "lamaindex", REPOS)
        assert (answer["status"], answer["error_type"]) == ("failed", "BadSettings")
    async with application(tmp_path) as app:
        with pytest.raises(BadSettings, match="there is no adapter 'x'; there is none"):
            await app.execute_workflow(TASK, "x")


@lived
async def test_repositories_are_worked_on_side_by_side(tmp_path: Path) -> None:
    all_here = asyncio.Barrier(3)

    async def adapter(task: dict[str, Any], repos: list[str]) -> list[str]:
        await all_here.wait()
        return repos

    async with application(tmp_path, adapter) as app:
        async with asyncio.timeout(30):
            answer = await app.execute_workflow_parallel(TASK, "llamaindex", ["/a", "/b", "/c"])
        assert answer["results"] == [["/a"], ["/b"], ["/c"]]


@lived
async def test_only_the_repositories_that_failed_are_enqueued(tmp_path: Path) -> None:
    async def adapter(task: dict[str, Any], repos: list[str]) -> None:
        if repos != ["/b"]:
            raise TimeoutError(f"{repos[0]} does not answer")

    async with application(tmp_path, adapter) as app:
        answer = await app.execute_workflow_parallel(TASK, "llamaindex", ["/a", "/b", "/c"])
        assert (answer["status"], answer["error_type"]) == ("failed", RepositoriesFailed.__name__)
        assert answer["error"].startswith("2 of 3 repositories failed")
        assert app.dlq is not None
        task = await seen(app.dlq, answer["dlq_task_id"])
        # What they failed with says what kind of failure it was.
        assert (task.repos, task.error_category, task.retry_policy) == (["/a", "/c"], "network", "exponential")


@pytest.mark.parametrize("repos", [None, []])
@lived
async def test_without_repositories_there_is_one_call(tmp_path: Path, repos: list[str] | None) -> None:
    adapter = failing()
    async with application(tmp_path, adapter) as app:
        answer = await app.execute_workflow_parallel(TASK, "llamaindex", repos)
        assert adapter.calls == [(TASK, [])]
        assert app.dlq is not None
        assert (await seen(app.dlq, answer["dlq_task_id"])).repos == []


@lived
async def test_what_failed_comes_back_through_its_adapter_by_itself(tmp_path: Path) -> None:
    first, second = Works(), Works(ConnectionError("down"), {"status": "completed"})
    async with application(tmp_path, first, second) as app:
        assert app.dlq is not None
        await app.start_dlq_processor()
        answer = await app.execute_workflow_parallel(TASK, "second", REPOS, user_id="ann")
        assert answer["dlq_enqueued"]
        await due(app.dlq, answer["dlq_task_id"])
        await until_it_is(app.dlq, "completed", answer["dlq_task_id"])
        assert (len(first.calls), second.calls[1]) == (0, ({**TASK, "adapter": "second"}, REPOS))


@lived
async def test_a_task_that_names_no_adapter_goes_to_the_first(tmp_path: Path) -> None:
    first, second = Works(), Works()
    async with application(tmp_path, first, second) as app:
        assert app.dlq is not None
        await app.start_dlq_processor()
        await app.dlq.enqueue("wf_1", TASK, REPOS, "timeout", retry_policy="immediate")
        await until_it_is(app.dlq, "completed")
        assert (len(first.calls), len(second.calls)) == (1, 0)


@lived
async def test_a_retried_workflow_that_fails_again_is_still_one_task(tmp_path: Path) -> None:
    async with application(tmp_path, failing()) as app:
        assert app.dlq is not None
        await app.start_dlq_processor()
        answer = await app.execute_workflow_parallel(TASK, "llamaindex", REPOS)
        for count in (1, 2, 3):
            assert not (await app.dlq.retry_task(answer["dlq_task_id"]))["success"]
            (task,) = await app.dlq.list_tasks()
            assert (task.retry_count, task.total_attempts) == (count, count + 1)
        assert task.status == "exhausted"


@lived
async def test_a_callback_of_ones_own_that_executes_the_workflow_makes_no_second_task(tmp_path: Path) -> None:
    async with application(tmp_path, failing()) as app:
        assert app.dlq is not None
        answer = await app.execute_workflow_parallel(TASK, "llamaindex", REPOS)

        async def again(task: dict[str, Any], repos: list[str]) -> Any:
            return await app.execute_workflow_parallel(task, "llamaindex", repos)

        assert not (await app.dlq.retry_task(answer["dlq_task_id"], again))["success"]
        assert len(await app.dlq.list_tasks()) == 1


@lived
async def test_the_processor_is_started_and_stopped_as_the_settings_say(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "redrive.workflows")
    async with application(tmp_path, plain, dlq_retry_interval_seconds=30) as app:
        assert isinstance(app.dlq, DeadLetterQueue)
        assert isinstance(app.dlq_integration, DLQIntegration)
        await app.start_dlq_processor()
        stats = await app.dlq.get_statistics()
        assert (stats["is_processor_running"], stats["retry_interval_seconds"]) == (True, 30)
        await app.stop_dlq_processor()
        assert not (await app.dlq.get_statistics())["is_processor_running"]
    assert caplog.messages == ["DLQ retry processor started (interval=30s)", "DLQ retry processor stopped"]


@lived
async def test_a_processor_that_is_turned_off_is_not_started(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "redrive.workflows")
    async with application(tmp_path, plain, dlq_retry_processor_enabled=False) as app:
        assert app.dlq is not None
        await app.start_dlq_processor()
        assert not app.dlq.is_processor_running
    assert caplog.messages == ["DLQ retry processor disabled in configuration"]


@lived
async def test_starting_the_processor_twice_is_told_and_harms_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with application(tmp_path, plain) as app:
        assert app.dlq is not None
        await app.start_dlq_processor()
        assert not caplog.messages or "running already" not in caplog.messages[-1]
        await app.start_dlq_processor()
        assert any("running already" in message for message in caplog.messages)
        assert app.dlq.is_processor_running
        await app.stop_dlq_processor()
        assert not app.dlq.is_processor_running
        await app.stop_dlq_processor()


@lived
async def test_without_a_queue_workflows_run_and_fail_in_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "redrive.workflows")
    monkeypatch.chdir(tmp_path)
    async with application(tmp_path, plain, failing(), dlq_enabled=False) as app:
        assert (app.dlq, app.dlq_integration) == (None, None)
        await app.start_dlq_processor()
        assert (await app.execute_workflow_parallel(TASK, "llamaindex", REPOS))["status"] == "completed"
        answer = await app.execute_workflow_parallel(TASK, "second", REPOS)
        assert (answer["status"], answer["error"], answer["dlq_enqueued"]) == ("failed", "still down", False)
        await app.stop_dlq_processor()
    assert caplog.messages == []
    assert list(tmp_path.iterdir()) == []


@lived
async def test_the_strategy_of_the_settings_is_the_integrations(tmp_path: Path) -> None:
    async with application(tmp_path, failing(), dlq_strategy="manual") as app:
        answer = await app.execute_workflow_parallel(TASK, "llamaindex", REPOS)
        assert (answer["status"], answer["dlq_enqueued"]) == ("failed", False)


@lived
async def test_stopping_while_a_plain_adapter_works_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from datetime import timedelta

    import redrive
    import redrive.workflows.queue as module

    monkeypatch.setattr(module, "Pace", partial(redrive.Pace, grace=timedelta(milliseconds=10)))
    started, go_on, is_done = threading.Event(), threading.Event(), threading.Event()

    def slow(task: dict[str, Any], repos: list[str]) -> None:
        started.set()
        go_on.wait(30)
        is_done.set()

    async with application(tmp_path, slow) as app:
        assert app.dlq is not None
        await app.dlq.enqueue("wf_1", TASK, REPOS, "timeout", retry_policy="immediate")
        await app.start_dlq_processor()
        await asyncio.to_thread(started.wait, 30)
        stop = asyncio.create_task(app.stop_dlq_processor())
        # It was told to end, in vain: had it come to its end before, it would have worked.
        await until(lambda: "handlers that do not end" in caplog.text)
        go_on.set()
        await stop
        # Given back before it was done, it could have been run twice at a time.
        assert is_done.is_set()
        assert (await seen(app.dlq)).status == "pending"


@lived
async def test_an_app_closes_the_queue_that_it_opened(tmp_path: Path) -> None:
    app = WorkflowApp({"llamaindex": plain}, WorkflowSettings(), store=place(tmp_path))
    await app.start_dlq_processor()
    assert app.dlq is not None
    await app.close()
    assert not app.dlq.is_processor_running
    async with queue(tmp_path) as dlq:
        assert await dlq.list_tasks() == []
