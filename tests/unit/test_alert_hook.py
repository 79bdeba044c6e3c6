"""The hook: any function that takes an alert is told, and harms nobody when it fails."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from redrive import Policy, immediate
from redrive.engine.alert import Alarm
from redrive.engine.hook import Hook
from redrive.model.alert import Alert
from redrive.model.errors import NotifierUnavailable, NotNotified
from redrive.ports.notifier import Notifier
from redrive.testing.kit.samples import letter
from tests.unit.receivers import Memory, an_alert
from tests.unit.waiting import until

ONE, TWO, THREE = (an_alert(name, source=name) for name in "123")


def notify(function: Any, *alerts: Alert) -> None:
    hook: Notifier = Hook(function)
    asyncio.run(hook.notify(alerts))


def test_a_plain_function_is_called_in_a_thread_and_a_coroutine_function_on_the_loop() -> None:
    seen: list[tuple[Alert, bool]] = []

    def plain(alert: Alert) -> None:
        seen.append((alert, threading.current_thread() is threading.main_thread()))

    async def awaited(alert: Alert) -> None:
        plain(alert)

    notify(plain, ONE, TWO)
    notify(awaited, ONE)
    notify(lambda alert: awaited(alert), TWO)
    assert seen == [(ONE, False), (TWO, False), (ONE, True), (TWO, True)]


def test_a_hook_has_a_name_that_people_know() -> None:
    assert Hook(notify).name.endswith("test_alert_hook:notify")
    assert Hook(partial(print)).name == "hook functools:partial"
    assert repr(Hook(print, name="my hook")) == "<Hook my hook>"


@pytest.mark.parametrize("error", [ValueError("hush"), SystemExit(3), StopIteration("hush"), asyncio.CancelledError("hush")])
@pytest.mark.parametrize("is_async", [False, True])
def test_an_alert_on_which_it_raises_is_given_up_on_and_the_others_are_told(error: BaseException, is_async: bool) -> None:
    seen: list[Alert] = []

    def plain(alert: Alert) -> None:
        if alert is TWO:
            raise error
        seen.append(alert)

    async def awaited(alert: Alert) -> None:
        plain(alert)

    with pytest.raises(NotNotified) as raised:
        notify(awaited if is_async else plain, ONE, TWO, THREE)
    assert seen == [ONE, THREE]
    assert (raised.value.alerts, raised.value.transient) == ({TWO.id}, False)
    assert "hush" not in str(raised.value)


def test_it_may_ask_to_be_called_again_later() -> None:
    def busy(alert: Alert) -> None:
        if alert is TWO:
            raise NotifierUnavailable("busy", after=timedelta(seconds=3))

    with pytest.raises(NotifierUnavailable) as raised:
        notify(busy, ONE, TWO, THREE)
    assert (raised.value.alerts, raised.value.after) == ({TWO.id, THREE.id}, timedelta(seconds=3))


def test_a_hook_that_raises_or_hangs_harms_nobody() -> None:
    async def story() -> None:
        released = threading.Event()
        well, seen = Memory(), list[Alert]()

        def raises(alert: Alert) -> None:
            raise ValueError("bad")

        def hangs(alert: Alert) -> None:
            released.wait(30)

        alarm = Alarm([raises, hangs, well, seen.append], window=timedelta(), retries=Policy(backoff=immediate()))
        alarm.exhausted([letter("1")])
        await until(lambda: well.delivered and seen)
        assert [alert.key for alert in well.delivered] == [alert.key for alert in seen]
        released.set()
        await alarm.close()

    asyncio.run(story())
