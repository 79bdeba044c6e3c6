"""The workflow DLQ's verbs: what goes in, how it is seen, found, archived and cleared away."""

from __future__ import annotations

import inspect
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import redrive
from redrive.workflows import DeadLetterQueue, DeadLetterStatus, Defaults, ErrorCategory, FailedTask, RetryPolicy
from tests.unit.waiting import until
from tests.unit.workflow_use import ERROR, REPOS, TASK, Works, kept, lifetime, lived, place, queue, seen, status

MINUTE = timedelta(minutes=1)
NEAR = timedelta(seconds=30)


def test_the_queue_is_made_as_its_guide_makes_it() -> None:
    parameters = inspect.signature(DeadLetterQueue).parameters
    first = list(parameters.values())[:3]
    assert [(one.name, one.default) for one in first] == [
        ("max_size", 10_000),
        ("opensearch_client", None),
        ("observability_manager", None),
    ]
    assert all(one.kind is one.POSITIONAL_OR_KEYWORD for one in first)
    assert parameters["store"].kind is inspect.Parameter.KEYWORD_ONLY


@lived
async def test_without_a_store_the_settings_say_where_tasks_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with DeadLetterQueue() as dlq:
        await kept(dlq)
    assert (tmp_path / "redrive.db").is_file()
    monkeypatch.setenv("REDRIVE_STORE", f"sqlite:{tmp_path}/elsewhere.db")
    async with DeadLetterQueue() as dlq:
        assert await dlq.get_task("wf_1") is None
        await kept(dlq)
    assert (tmp_path / "elsewhere.db").is_file()


@lived
async def test_a_client_and_a_store_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(redrive.BadSettings, match="an opensearch_client or a store, not both"):
        DeadLetterQueue(opensearch_client=object(), store=place(tmp_path))


@lived
async def test_a_task_is_seen_as_it_was_enqueued(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        answer = await dlq.enqueue(
            task_id="wf_abc123",
            task=TASK,
            repos=REPOS,
            error="Connection timeout",
            retry_policy=RetryPolicy.LINEAR,
            max_retries=5,
            metadata={"team": "platform", "slos": {"max_delay_minutes": 15}},
            error_category="resource",
        )
        found = await seen(dlq, "wf_abc123")
        assert answer == found
        assert isinstance(found, FailedTask)
        assert (found.task_id, found.task, found.repos) == ("wf_abc123", TASK, REPOS)
        assert (found.error, found.last_error, found.error_category) == (ERROR, ERROR, "resource")
        assert (found.retry_count, found.max_retries, found.retry_policy) == (0, 5, RetryPolicy.LINEAR)
        assert (found.status, found.total_attempts) == (DeadLetterStatus.PENDING, 1)
        assert found.metadata == {"team": "platform", "slos": {"max_delay_minutes": 15}}
        assert abs(found.failed_at - datetime.now(UTC)) < NEAR
        assert found.next_retry_at == found.failed_at + timedelta(minutes=5)
        assert found.updated_at is not None
        assert json.loads(json.dumps(found.to_dict()))["failed_at"] == found.failed_at.isoformat()


@lived
async def test_what_is_not_said_is_as_the_guide_has_it(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        task = await dlq.enqueue("wf_1", TASK, REPOS, ERROR)
        assert (task.retry_policy, task.max_retries, task.metadata, task.priority) == ("exponential", 3, {}, 0)
        assert task.next_retry_at == task.failed_at + MINUTE
        # The words of the error say what it was.
        assert task.error_category == "network"


@lived
async def test_a_queue_may_have_defaults_of_its_own(tmp_path: Path) -> None:
    async with queue(tmp_path, defaults=Defaults(retry_policy="linear", max_retries=1)) as dlq:
        task = await kept(dlq)
        assert (task.retry_policy, task.max_retries) == ("linear", 1)
        task = await kept(dlq, "wf_2", retry_policy="never", max_retries=0)
        assert (task.retry_policy, task.max_retries) == ("never", 0)


@pytest.mark.parametrize("policy", list(RetryPolicy))
@lived
async def test_the_first_retry_comes_as_the_policy_says(tmp_path: Path, policy: RetryPolicy) -> None:
    waits = {"never": None, "linear": 5 * MINUTE, "exponential": MINUTE, "immediate": timedelta()}
    async with queue(tmp_path) as dlq:
        task = await kept(dlq, retry_policy=policy)
        wait = waits[policy]
        assert task.next_retry_at == (None if wait is None else task.failed_at + wait)


@pytest.mark.parametrize(
    ("policy", "minutes"), [("linear", [10, 15, 20, 25]), ("exponential", [2, 4, 8, 16, 32, 60, 60]), ("never", [None, None])]
)
@lived
async def test_each_failed_retry_puts_the_next_one_off_as_the_formula_says(
    tmp_path: Path, policy: str, minutes: list[int | None]
) -> None:
    async with queue(tmp_path) as dlq:
        await kept(dlq, retry_policy=policy, max_retries=100)
        for count, wait in enumerate(minutes, 1):
            # The breaker would deny what fails too often in a row; this one works in between.
            await kept(dlq, f"well_{count}")
            assert (await dlq.retry_task(f"well_{count}", Works()))["success"]
            await dlq.retry_task("wf_1", Works(ConnectionError("down")))
            task = await seen(dlq)
            assert task.retry_count == count
            if wait is None:
                assert task.next_retry_at is None
            else:
                assert task.next_retry_at is not None
                assert task.updated_at is not None
                assert abs(task.next_retry_at - task.updated_at - wait * MINUTE) < NEAR


@lived
async def test_an_immediate_retry_that_failed_comes_back_with_the_next_cycle(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        callback = Works(ConnectionError("down"))
        await dlq.start_retry_processor(callback, check_interval_seconds=60)
        await kept(dlq, retry_policy="immediate")

        async def has_failed() -> bool:
            return (await seen(dlq)).retry_count == 1

        await until(has_failed)
        task = await seen(dlq)
        assert task.next_retry_at is not None
        assert task.updated_at is not None
        assert abs(task.next_retry_at - task.updated_at - MINUTE) < NEAR


@lived
async def test_the_same_id_twice_is_one_letter_that_tells_of_both_failures(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        await kept(dlq, error="Connection timeout")
        again = await kept(dlq, error="disk quota exceeded")
        assert [task.task_id for task in await dlq.list_tasks()] == ["wf_1"]
        assert (again.error, again.last_error, again.total_attempts) == ("Connection timeout", "disk quota exceeded", 2)
        assert again == await seen(dlq)
        assert await lifetime(dlq) == {"enqueued_total": 1}


@lived
async def test_a_task_that_worked_and_fails_again_begins_anew(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        await kept(dlq, error="first")
        await dlq.retry_task("wf_1", Works(ConnectionError("down")))
        await dlq.retry_task("wf_1", Works())
        task = await kept(dlq, error="another day")
        assert (task.status, task.retry_count, task.error, task.last_error) == ("pending", 0, "another day", "another day")
        assert task == await seen(dlq)
        assert await lifetime(dlq) == {"enqueued_total": 2, "manually_retried": 2, "retry_failed": 1, "retry_success": 1}


@lived
async def test_an_error_may_be_the_exception_itself(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        silent = await kept(dlq, "wf_1", TimeoutError())
        assert (silent.error_category, silent.error) == ("network", "TimeoutError")
        assert (await kept(dlq, "wf_2", PermissionError("no"))).error_category == "permission"
        assert (await kept(dlq, "wf_3", ValueError("boom"), error_category=ErrorCategory.TRANSIENT)).error_category == "transient"


@lived
async def test_tasks_are_listed_newest_first_by_status_category_and_number(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        for number in range(5):
            await kept(dlq, f"wf_{number}", "disk full" if number % 2 else "timeout", max_retries=0 if number == 4 else 3)
        await dlq.retry_task("wf_0", Works())
        await dlq.archive_task("wf_1")

        async def listed(**given: object) -> list[str]:
            return [task.task_id for task in await dlq.list_tasks(**given)]  # type: ignore[arg-type]

        assert await listed() == ["wf_4", "wf_3", "wf_2"]
        assert await listed(status=DeadLetterStatus.PENDING, limit=100) == ["wf_3", "wf_2"]
        assert await listed(status="exhausted") == ["wf_4"]
        assert await listed(status=DeadLetterStatus.COMPLETED) == ["wf_0"]
        assert await listed(status=DeadLetterStatus.ARCHIVED) == ["wf_1"]
        assert await listed(status=DeadLetterStatus.RETRYING) == []
        assert await listed(error_category=ErrorCategory.RESOURCE) == ["wf_3"]
        assert await listed(status="pending", error_category="network") == ["wf_2"]
        assert await listed(limit=2) == ["wf_4", "wf_3"]
        assert await listed(limit=0) == []


@lived
async def test_more_tasks_than_a_page_holds_are_all_listed_and_all_cleared(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        for number in range(1_001):
            await kept(dlq, f"wf_{number}")
        assert len(await dlq.list_tasks()) == 100
        assert len({task.task_id for task in await dlq.list_tasks(limit=2_000)}) == 1_001
        assert await dlq.clear_all() == 1_001
        assert await dlq.list_tasks() == []


@lived
async def test_a_task_that_is_not_there_is_none(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        assert await dlq.get_task("wf_1") is None
        assert await dlq.archive_task("wf_1") is False
        assert await dlq.clear_all() == 0
        assert await dlq.list_tasks() == []


@lived
async def test_an_archived_task_is_out_of_the_queue_and_in_the_record(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        await kept(dlq)
        assert await dlq.archive_task("wf_1") is True
        assert await dlq.list_tasks() == []
        assert await status(dlq) == DeadLetterStatus.ARCHIVED
        assert await dlq.archive_task("wf_1") is False
        assert await lifetime(dlq) == {"enqueued_total": 1, "archived": 1}


@lived
async def test_clearing_takes_all_out_of_the_queue_and_leaves_the_record(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        await kept(dlq, "wf_1")
        await kept(dlq, "wf_2", max_retries=0)
        await kept(dlq, "wf_3")
        await kept(dlq, "wf_4")
        await dlq.archive_task("wf_3")
        await dlq.retry_task("wf_4", Works())
        assert await dlq.clear_all() == 2
        assert await dlq.clear_all() == 0
        assert await dlq.get_task("wf_1") is None
        assert (await dlq.get_statistics())["queue_size"] == 0
        assert (await status(dlq, "wf_3"), await status(dlq, "wf_4")) == ("archived", "completed")
        # What was cleared away by mistake is not gone.
        assert await dlq.letters.count(redrive.Is(redrive.Field.STATUS, "discarded")) == 2


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"task_id": ""}, "a task needs an id of its own that is a text, got ''"),
        ({"task_id": 7}, "a task needs an id of its own that is a text, got 7"),
        ({"task": "code_sweep"}, "task 'wf_1' must be a dict, got str"),
        ({"repos": "/path/to/repo"}, "the repos of task 'wf_1' must be a list of texts, got the text '/path/to/repo'"),
        ({"max_retries": -1}, "max_retries of task 'wf_1' must be a whole number from 0, got -1"),
        ({"max_retries": "3"}, "max_retries of task 'wf_1' must be a whole number from 0, got '3'"),
        ({"retry_policy": "expnential"}, "'expnential' is no retry policy; did you mean exponential?"),
        ({"error_category": "netwrk"}, "'netwrk' is no error category; did you mean network?"),
        ({"priority": "hihg"}, "'hihg' is no priority; did you mean high?, or a number"),
        ({"depends_on": "wf_0"}, "depends_on of task 'wf_1' must be a list of task ids, got the text 'wf_0'"),
    ],
)
@lived
async def test_a_mistake_gets_one_clear_sentence_and_nothing_is_kept(
    tmp_path: Path, given: dict[str, object], sentence: str
) -> None:
    async with queue(tmp_path) as dlq:
        call = {"task_id": "wf_1", "task": TASK, "repos": REPOS, "error": ERROR, **given}
        with pytest.raises(redrive.BadSettings) as raised:
            await dlq.enqueue(**call)  # type: ignore[arg-type]  # mistakes
        assert str(raised.value) == sentence
        assert await dlq.list_tasks() == []


@lived
async def test_a_status_that_there_is_not_is_told_with_the_nearest(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq:
        with pytest.raises(redrive.BadSettings, match=r"'pendign' is no status; did you mean pending\?"):
            await dlq.list_tasks(status="pendign")
        with pytest.raises(redrive.BadSettings, match=r"'netwrk' is no error category; did you mean network\?"):
            await dlq.list_tasks(error_category="netwrk")


@lived
async def test_two_queues_in_one_store_go_by_their_sources(tmp_path: Path) -> None:
    async with queue(tmp_path) as dlq, queue(tmp_path, source="nightly") as other:
        await kept(dlq, "wf_1", "timeout")
        await kept(other, "wf_1", "disk full")
        assert [task.error for task in await dlq.list_tasks()] == ["timeout"]
        assert [task.error for task in await other.list_tasks()] == ["disk full"]
        assert await other.clear_all() == 1
        assert await status(dlq) == "pending"
        assert await lifetime(other) == {"enqueued_total": 1}
