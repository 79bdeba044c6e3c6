"""The workflow DLQ on OpenSearch: its index and queries, restarts, outages, and a node that is killed under load."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from opensearchpy import AsyncOpenSearch

from dev.engines.engine import Running
from dev.engines.registry import ENGINES
from redrive import NotHeld
from redrive.model.errors import StoreUnavailable
from redrive.testing.watcher import until
from redrive.workflows import DeadLetterQueue, DeadLetterStatus, RetryPolicy
from tests.unit.workflow_use import lived

INDEX = "mahavishnu_dlq"
TASK = {"type": "code_sweep", "depth": 3}
PATIENCE = 60


pytestmark = [pytest.mark.engine("opensearch", own=True), pytest.mark.xdist_group("workflow-opensearch")]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def node() -> Iterator[Running]:
    """A node of these tests' own, to be killed and restarted."""
    with ENGINES["opensearch"].make() as running:
        yield running


@pytest.fixture(autouse=True)
def at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One folder for desk and journal, since a store belongs to one desk."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))


@asynccontextmanager
async def opened(url: str, **given: Any) -> AsyncIterator[tuple[AsyncOpenSearch, DeadLetterQueue]]:
    """A client of the application's, and the queue that uses it."""
    async with AsyncOpenSearch(url, timeout=10) as client, DeadLetterQueue(1000, client, **given) as dlq:
        yield client, dlq


async def found(client: AsyncOpenSearch, query: dict[str, Any]) -> set[str]:
    await client.indices.refresh(index=INDEX)
    answer = await client.search(index=INDEX, body={"query": query, "size": 1000})
    return {name for hit in answer["hits"]["hits"] if (name := hit["_source"]["task_id"]) in ("wf_1", "wf_2", "wf_3")}


@lived
async def test_tasks_are_where_the_guide_says_and_are_there_after_a_restart(node: Running) -> None:
    async with opened(node.url, source="first") as (client, dlq):
        await dlq.enqueue("wf_1", TASK, ["/a", "/b"], "Connection timeout", RetryPolicy.EXPONENTIAL, 5, {"team": "payments"})
        await dlq.enqueue("wf_2", TASK, [], "rate limit", "linear", 2)
        await dlq.enqueue("wf_3", TASK, [], "forbidden", "never", 0)
        await dlq.enqueue("wf_1", TASK, ["/a", "/b"], "Connection reset")
        assert await found(client, {"term": {"status.keyword": "exhausted"}}) == {"wf_3"}
        assert await found(client, {"term": {"error_category.keyword": "transient"}}) == {"wf_2"}
        assert await found(client, {"range": {"next_retry_at": {"lte": "now+1h"}}}) == {"wf_1", "wf_2"}
        (hit,) = (await client.search(index=INDEX, body={"query": {"term": {"task_id": "wf_1"}}}))["hits"]["hits"]
        view = {name: value for name, value in hit["_source"].items() if name != "redrive"}
        assert (view["task"], view["repos"], view["metadata"]) == (TASK, ["/a", "/b"], {"team": "payments"})
        assert (view["error"], view["last_error"], view["total_attempts"]) == ("Connection reset", "Connection reset", 2)
        assert (view["retry_policy"], view["retry_count"], view["max_retries"]) == ("exponential", 0, 5)
        assert datetime.fromisoformat(view["failed_at"]) > datetime.now(UTC) - timedelta(minutes=5)
        before = await dlq.get_statistics()
        assert (before["queue_size"], before["lifetime_stats"]["enqueued_total"]) == (3, 3)
    await asyncio.to_thread(node.kill)
    await asyncio.to_thread(node.start)
    ran: list[str] = []

    async def again(task: dict[str, Any], repos: list[str]) -> dict[str, Any]:
        ran.append(",".join(repos))
        return {"status": "completed"}

    async with opened(node.url, source="first") as (client, dlq):
        assert await dlq.get_statistics() == before
        assert {task.task_id for task in await dlq.list_tasks()} == {"wf_1", "wf_2", "wf_3"}
        await dlq.enqueue("wf_4", TASK, ["/now"], "timeout", "immediate")
        await dlq.start_retry_processor(again)
        assert await asyncio.to_thread(until, lambda: ran == ["/now"], timedelta(seconds=PATIENCE))
        assert (await dlq.retry_task("wf_1"))["success"]
        await dlq.stop_retry_processor()
        assert ran == ["/now", "/a,/b"]
        assert await dlq.archive_task("wf_3")
        assert [task.task_id for task in await dlq.list_tasks(DeadLetterStatus.COMPLETED)] == ["wf_4", "wf_1"]
        assert await dlq.clear_all() == 1
        assert (await dlq.get_statistics())["queue_size"] == 0


@lived
async def test_while_the_node_is_down_tasks_wait_in_the_journal_and_health_says_so(node: Running) -> None:
    async with opened(node.url, source="second") as (_, dlq):
        await dlq.enqueue("soon", TASK, [], "timeout")
        assert (await dlq.health())["status"] == "healthy"
        await asyncio.to_thread(node.kill)
        kept = await dlq.enqueue("later", TASK, [], "timeout")
        assert (kept.task_id, kept.status) == ("later", DeadLetterStatus.PENDING)
        health = await dlq.health()
        assert (health["status"], health["journaled_tasks"]) == ("degraded", 1)
        assert "OpenSearch" in health["store_error"]
        with pytest.raises(StoreUnavailable):
            await dlq.list_tasks()
        async with opened(node.url, source="second", fail_on_opensearch_unavailable=True) as (_, strict):
            with pytest.raises(NotHeld, match="do not acknowledge the source"):
                await strict.enqueue("never", TASK, [], "timeout")
        await asyncio.to_thread(node.start)
        assert await asyncio.to_thread(until, lambda: dlq.letters.journaled == 0, timedelta(seconds=PATIENCE))
        assert (await dlq.health())["status"] == "healthy"
        assert {task.task_id for task in await dlq.list_tasks()} == {"soon", "later"}
        assert (await dlq.get_statistics())["lifetime_stats"]["enqueued_total"] == 2


@lived
async def test_a_node_that_is_killed_and_restarted_under_load_loses_no_task(node: Running) -> None:
    ran: Counter[str] = Counter()
    stop = asyncio.Event()

    async def again(task: dict[str, Any], repos: list[str]) -> dict[str, Any]:
        ran[task["name"]] += 1
        return {"success": True}

    os.environ["REDRIVE_LEASE_SECONDS"] = "5"
    try:
        async with opened(node.url, source="third") as (_, dlq):
            await dlq.start_retry_processor(again, check_interval_seconds=1)
            names: list[str] = []

            async def produce(who: int) -> None:
                while not stop.is_set():
                    name = f"{who}/{len(names)}"
                    names.append(name)
                    await dlq.enqueue(name, {"name": name}, [], "timeout", RetryPolicy.IMMEDIATE, 9)

            producers = [asyncio.create_task(produce(who)) for who in range(3)]
            assert await asyncio.to_thread(until, lambda: len(ran) > 20, timedelta(seconds=PATIENCE))
            await asyncio.to_thread(node.kill)
            assert await asyncio.to_thread(until, lambda: dlq.letters.journaled > 5, timedelta(seconds=PATIENCE))
            await asyncio.to_thread(node.start)
            stop.set()
            await asyncio.gather(*producers)
            assert await asyncio.to_thread(until, lambda: set(ran) == set(names), timedelta(seconds=2 * PATIENCE))
            await dlq.stop_retry_processor()
            assert (await dlq.get_statistics())["status_breakdown"]["retrying"] == 0
    finally:
        del os.environ["REDRIVE_LEASE_SECONDS"]
