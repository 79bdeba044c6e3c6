"""Exhausted tasks of the workflow DLQ: people are told of each once, by whatever they listen to."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from redrive import wiring
from redrive.engine.alert import Alarm
from redrive.model.alert import Alert
from tests.unit.receivers import Answer, Memory, receiving
from tests.unit.waiting import until
from tests.unit.workflow_use import SOON, Works, failing, kept, lived, queue, until_it_is

KEY = "R0123456789abcdefR0123456789abcd"


@lived
async def test_an_exhausted_task_raises_one_alert(tmp_path: Path) -> None:
    alerts: list[Alert] = []
    async with queue(tmp_path, alerts=[alerts.append]) as dlq:
        await dlq.start_retry_processor(failing())
        await kept(dlq, retry_policy=SOON, max_retries=2)
        await until_it_is(dlq, "exhausted")
        await until(lambda: bool(alerts))
    (alert,) = alerts
    assert (alert.source, alert.count, alert.failure.message) == ("workflows", 1, "still down")
    assert alert.summary == "1 letter of 'workflows' is exhausted: ConnectionError: still down"


@lived
async def test_a_task_without_retries_raises_one_alert_at_once(tmp_path: Path) -> None:
    alerts: list[Alert] = []
    async with queue(tmp_path, alerts=[alerts.append]) as dlq:
        await kept(dlq, retry_policy="never", max_retries=0)
        await kept(dlq, retry_policy="never", max_retries=0)
    assert [alert.count for alert in alerts] == [1]


@lived
async def test_retries_by_hand_that_use_the_last_one_up_raise_one_alert(tmp_path: Path) -> None:
    memory = Memory()
    async with queue(tmp_path, alerts=[memory]) as dlq:
        await kept(dlq, max_retries=2)
        await dlq.retry_task("wf_1", failing())
        assert memory.delivered == []
        await dlq.retry_task("wf_1", failing())
    assert [alert.count for alert in memory.delivered] == [1]
    assert memory.is_closed


@lived
async def test_tasks_that_work_or_may_still_raise_none(tmp_path: Path) -> None:
    memory = Memory()
    async with queue(tmp_path, alerts=[memory]) as dlq:
        await kept(dlq, "wf_1", max_retries=2)
        await dlq.retry_task("wf_1", failing())
        await dlq.retry_task("wf_1", Works())
        await kept(dlq, "wf_2", retry_policy="never")
        await dlq.archive_task("wf_2")
    assert memory.calls == []


@lived
async def test_many_tasks_that_fail_alike_are_one_alert_with_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # They must come within one window, however slowly they are kept.
    monkeypatch.setitem(Alarm.__init__.__kwdefaults__, "window", timedelta(minutes=5))
    memory = Memory()
    async with queue(tmp_path, alerts=[memory]) as dlq:
        for number in range(20):
            await kept(dlq, f"wf_{number}", max_retries=0)
    assert [alert.count for alert in memory.delivered] == [20]


@lived
async def test_a_hook_that_fails_costs_no_task(tmp_path: Path) -> None:
    def broken(alert: Alert) -> None:
        raise RuntimeError("the pager is at home")

    async with queue(tmp_path, alerts=[broken]) as dlq:
        task = await kept(dlq, max_retries=0)
        assert task.status == "exhausted"
    async with queue(tmp_path) as dlq:
        assert len(await dlq.list_tasks()) == 1


@lived
async def test_a_webhook_is_told(tmp_path: Path) -> None:
    with receiving() as receiver:
        async with queue(tmp_path, alerts=[wiring.notifier(receiver.url())]) as dlq:
            await kept(dlq, max_retries=0)
        (request,) = receiver.requests
    assert (request.method, request.json["source"], request.json["count"]) == ("POST", "workflows", 1)


@lived
async def test_an_incident_is_triggered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving(Answer(status=202, body=b'{"status":"success"}')) as receiver:
        monkeypatch.setenv("REDRIVE_ALERTS", f"pagerduty://{KEY}@127.0.0.1:{receiver.port}?scheme=http")
        async with queue(tmp_path) as dlq:
            await dlq.start_retry_processor(failing())
            await kept(dlq, retry_policy=SOON, max_retries=1)
            await until_it_is(dlq, "exhausted")
            await until(lambda: bool(receiver.requests))
        (request,) = receiver.requests
    assert (request.json["routing_key"], request.json["event_action"]) == (KEY, "trigger")
    assert request.json["payload"]["source"] == "workflows"
