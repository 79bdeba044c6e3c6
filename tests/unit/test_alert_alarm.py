"""The alarm: people are told once, with the right count, whatever becomes of those who tell them."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from redrive import Policy, exponential, immediate
from redrive.engine import alert as alarm_module
from redrive.engine.alert import KEYS_LIMIT, Alarm
from redrive.engine.bridge import Bridge
from redrive.engine.telemetry import Telemetry
from redrive.model.alert import Alert
from redrive.model.errors import NotifierUnavailable, NotNotified
from redrive.model.letter import Letter
from redrive.model.redaction import Redaction
from redrive.ports.inline import drive
from redrive.testing.kit.samples import START, failure, letter
from tests.unit.receivers import Clock, Counts, Memory
from tests.unit.shell import eventually
from tests.unit.waiting import until

NOW = timedelta()
QUIET = timedelta(minutes=5)
AT_ONCE = Policy(max_attempts=3, backoff=immediate())
DOWN = NotifierUnavailable("memory is down")


def alarm(*notifiers: Any, **given: Any) -> Alarm:
    return Alarm(notifiers, **{"window": NOW, "quiet": QUIET, "retries": AT_ONCE, **given})


def letters(count: int, start: int = 0, **changes: Any) -> list[Letter]:
    return [letter(str(number), **changes) for number in range(start, start + count)]


def other(name: str = "o") -> list[Letter]:
    """A letter of another group."""
    return [letter(name, source="mails", failure=failure(f"shop.{name}"))]


def test_letters_of_one_window_are_one_alert() -> None:
    async def story() -> None:
        memory = Memory()
        bell = alarm(memory, window=timedelta(seconds=60))
        for one in letters(5):
            bell.exhausted([one])
        bell.exhausted(other())
        await bell.close()
        assert [(alert.source, alert.count) for alert in memory.delivered] == [("orders", 5), ("mails", 1)]
        assert len(memory.calls) == 1
        assert memory.is_closed

    asyncio.run(story())


def test_the_window_ends_by_itself() -> None:
    async def story() -> None:
        memory = Memory()
        bell = alarm(memory, window=timedelta(milliseconds=20))
        bell.exhausted(letters(2))
        await until(lambda: memory.delivered)
        assert memory.delivered[0].count == 2
        await bell.close()

    asyncio.run(story())


def test_a_key_is_told_of_once_in_the_quiet_time_and_then_with_how_many_there_were() -> None:
    async def story() -> None:
        memory, clock = Memory(), Clock()
        bell = alarm(memory, clock=clock)
        bell.exhausted(letters(3))
        await until(lambda: memory.delivered)
        for turn in range(4):
            clock.advance(timedelta(minutes=1))
            bell.exhausted(letters(10, start=10 * turn))
            # That the other group was told of shows that this turn was looked at.
            bell.exhausted(other(f"o{turn}"))
            await until(partial(memory.has_told, 2 + turn))
        clock.advance(timedelta(minutes=1))
        bell.exhausted(letters(1, start=90))
        await until(lambda: len(memory.delivered) == 6)
        await bell.close()
        orders = [alert for alert in memory.delivered if alert.source == "orders"]
        assert [(alert.count, alert.since) for alert in orders] == [(3, None), (41, START)]
        assert orders[1].summary.startswith("41 more letters of 'orders' are exhausted")
        assert orders[0].key == orders[1].key
        assert orders[0].id != orders[1].id

    asyncio.run(story())


def test_what_was_held_back_is_told_when_the_quiet_time_ends_also_when_nothing_more_comes() -> None:
    async def story() -> None:
        memory = Memory()
        bell = alarm(memory, quiet=timedelta(milliseconds=100))
        bell.exhausted(letters(1))
        await until(lambda: memory.delivered)
        bell.exhausted(letters(4, start=1))
        await until(lambda: len(memory.delivered) == 2)
        assert memory.times[1] - memory.times[0] > 0.09
        assert memory.delivered[1].count == 4
        await bell.close()

    asyncio.run(story())


def test_closing_sends_what_was_held_back() -> None:
    async def story() -> None:
        memory = Memory()
        bell = alarm(memory)
        bell.exhausted(letters(1))
        await until(lambda: memory.delivered)
        bell.exhausted(letters(7, start=1))
        await bell.close()
        assert [alert.count for alert in memory.delivered] == [1, 7]
        bell.exhausted(letters(1))
        await bell.close()
        assert len(memory.delivered) == 2

    asyncio.run(story())


def test_a_clock_that_is_put_back_makes_nobody_wait() -> None:
    async def story() -> None:
        memory, clock = Memory(), Clock()
        bell = alarm(memory, clock=clock)
        bell.exhausted(letters(1))
        await until(lambda: memory.delivered)
        clock.advance(-timedelta(hours=1))
        bell.exhausted(letters(1))
        await until(lambda: len(memory.delivered) == 2)
        await bell.close()
        assert [alert.count for alert in memory.delivered] == [1, 1]

    asyncio.run(story())


def test_a_target_that_is_down_for_a_while_gets_the_same_alert_again() -> None:
    async def story() -> None:
        memory, counts = Memory(DOWN, DOWN), Counts()
        bell = alarm(memory, telemetry=Telemetry(meters=(counts,)))
        bell.exhausted(letters(2))
        await until(lambda: memory.delivered)
        await bell.close()
        assert len(memory.calls) == 3
        assert memory.calls[0] == memory.calls[1] == memory.calls[2] == memory.delivered
        assert counts.outcomes == {"sent": 1}

    asyncio.run(story())


def test_a_target_that_stays_down_is_given_up_on_with_one_line_and_the_next_alert_counts_those_letters_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        memory, counts, clock = Memory(DOWN, DOWN, DOWN), Counts(), Clock()
        bell = alarm(memory, telemetry=Telemetry(meters=(counts,)), clock=clock)
        bell.exhausted(letters(2))
        await until(lambda: counts.outcomes)
        assert (counts.outcomes, len(memory.calls)) == ({"failed": 1}, AT_ONCE.max_attempts)
        clock.advance(QUIET)
        bell.exhausted(letters(3, start=2))
        await until(lambda: memory.delivered)
        await bell.close()
        assert [(alert.count, alert.since) for alert in memory.delivered] == [(5, None)]
        assert counts.outcomes == {"failed": 1, "sent": 1}

    asyncio.run(story())
    assert [record.getMessage() for record in caplog.records] == ["alerts given up on: 1, tries: 3: memory is down"]


def test_a_target_that_refuses_is_not_asked_again() -> None:
    async def story() -> None:
        memory, counts = Memory(NotNotified("memory refuses")), Counts()
        bell = alarm(memory, telemetry=Telemetry(meters=(counts,)))
        bell.exhausted(letters(1))
        await until(lambda: counts.outcomes)
        await bell.close()
        assert (counts.outcomes, len(memory.calls)) == ({"failed": 1}, 1)

    asyncio.run(story())


def test_only_those_of_a_batch_that_were_not_delivered_are_sent_again() -> None:
    class Picky(Memory):
        async def notify(self, alerts: Sequence[Alert]) -> None:
            self._errors = [NotifierUnavailable("later", alerts=[alerts[-1].id])] if len(self.calls) < 1 else []
            await super().notify(alerts)

    async def story() -> None:
        picky, counts = Picky(), Counts()
        bell = alarm(picky, telemetry=Telemetry(meters=(counts,)), window=timedelta(seconds=60))
        bell.exhausted([*letters(1), *other()])
        await bell.close()
        assert [len(call) for call in picky.calls] == [2, 1]
        assert len(picky.delivered) == 2
        assert counts.outcomes == {"sent": 2}

    asyncio.run(story())


def test_a_target_is_left_alone_for_as_long_as_it_asks() -> None:
    async def story() -> None:
        memory = Memory(NotifierUnavailable("busy", after=timedelta(milliseconds=150)))
        bell = alarm(memory)
        bell.exhausted(letters(1))
        await until(lambda: memory.delivered)
        assert memory.times[1] - memory.times[0] > 0.14
        await bell.close()

    asyncio.run(story())


def test_closing_waits_for_no_backoff_but_tries_once_more() -> None:
    async def story() -> None:
        memory = Memory(DOWN)
        bell = alarm(memory, retries=Policy(max_attempts=3, backoff=exponential(timedelta(hours=1))))
        bell.exhausted(letters(1))
        await until(lambda: memory.calls)
        await bell.close()
        assert (len(memory.calls), len(memory.delivered)) == (2, 1)

    asyncio.run(story())


class Stuck(Memory):
    """Never comes back."""

    async def notify(self, alerts: Sequence[Alert]) -> None:
        self.calls.append(list(alerts))
        await asyncio.Event().wait()


def test_one_notifier_that_hangs_or_breaks_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(alarm_module, "_FLUSH_SECONDS", 0.2)

    async def story() -> None:
        stuck, broken, well = Stuck(), Memory(*[ValueError("hush")] * 9), Memory()
        bell = alarm(stuck, broken, well, clock=Clock())
        bell.exhausted(letters(1))
        await until(lambda: well.delivered and stuck.calls and broken.calls)
        bell.exhausted(other())
        await until(lambda: len(well.delivered) == 2)
        started = time.monotonic()
        await bell.close()
        assert time.monotonic() - started < 5
        assert well.is_closed

    asyncio.run(story())
    said = [record.getMessage() for record in caplog.records]
    assert "alerts given up on: 1, tries: 1: memory raised ValueError" in said
    assert said[-1] == "2 alerts were not sent before the end"
    assert "hush" not in caplog.text


def test_letters_are_shown_redacted() -> None:
    secret = failure("shop.Refused", "card 4111 1111 1111 1111 of bob@example.com was refused")

    async def story() -> None:
        memory = Memory()
        bell = alarm(memory, redaction=Redaction(presets=("cards", "emails")))
        bell.exhausted([letter("1", failure=secret)])
        await bell.close()
        (alert,) = memory.delivered
        assert alert.failure.message == "card [redacted:cards] of [redacted:emails] was refused"
        assert alert.summary.endswith("Refused: card [redacted:cards] of [redacted:emails] was refused")
        assert "bob" not in repr(alert)

    asyncio.run(story())


def test_the_caller_never_hears_of_trouble(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        memory = Memory()
        bell = alarm(memory)
        bell.exhausted([object()])  # type: ignore[list-item]  # on purpose
        bell.exhausted(letters(1))
        await until(lambda: memory.delivered)
        await bell.close()

    def broken(work: Any) -> None:
        raise RuntimeError("no loop")

    asyncio.run(story())
    bell = alarm(Memory())
    bell.start(broken)
    bell.exhausted(letters(1))
    assert [record.getMessage() for record in caplog.records] == ["alert not made"] * 2


def test_without_notifiers_nothing_is_begun() -> None:
    before = threading.active_count()
    bell = alarm()
    bell.exhausted(letters(1))
    asyncio.run(bell.close())
    assert threading.active_count() == before


def test_more_groups_than_anybody_could_read_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        memory, counts = Memory(), Counts()
        bell = alarm(memory, telemetry=Telemetry(meters=(counts,)), window=timedelta(seconds=60))
        many = [letter(str(number), failure=failure(f"shop.E{number}")) for number in range(KEYS_LIMIT + 5)]
        bell.exhausted(many)
        bell.exhausted(many[:3])
        await bell.close()
        assert counts.outcomes == {"dropped": 5, "sent": KEYS_LIMIT}
        assert sum(alert.count for alert in memory.delivered) == KEYS_LIMIT + 3

    asyncio.run(story())
    assert len(caplog.records) == 1


def test_groups_whose_quiet_time_is_over_make_room(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        memory, counts, clock = Memory(), Counts(), Clock()
        bell = alarm(memory, telemetry=Telemetry(meters=(counts,)), clock=clock)
        bell.exhausted([letter(str(number), failure=failure(f"shop.E{number}")) for number in range(KEYS_LIMIT)])
        await until(lambda: len(memory.delivered) == KEYS_LIMIT)
        bell.exhausted(other("early"))
        await until(lambda: counts.outcomes.get("dropped") == 1)
        clock.advance(QUIET)
        bell.exhausted(other("late"))
        await until(lambda: len(memory.delivered) == KEYS_LIMIT + 1)
        await bell.close()

    asyncio.run(story())
    assert len(caplog.records) == 1


def through_a_bridge(bell: Alarm, bridge: Bridge) -> None:
    bell.start(bridge.start)


def by_itself(bell: Alarm, bridge: Bridge) -> None:
    """Nothing is said: it finds a place of its own."""


@pytest.mark.parametrize("started", [through_a_bridge, by_itself])
def test_it_works_for_blocking_code(started: Callable[[Alarm, Bridge], None]) -> None:
    memory, bridge = Memory(), Bridge(inline=True)
    bell = alarm(memory, clock=Clock())
    started(bell, bridge)

    async def verb() -> None:
        bell.exhausted(letters(2))

    drive(verb())
    eventually(lambda: memory.delivered)
    bell.exhausted(letters(3))
    drive(bell.close())
    bridge.close()
    assert [alert.count for alert in memory.delivered] == [2, 3]
    assert memory.is_closed


def test_blocking_code_inside_a_coroutine_closes_without_waiting_for_that_coroutine() -> None:
    async def story() -> None:
        memory = Memory()
        bell = alarm(memory, window=timedelta(seconds=60))

        async def verb() -> None:
            bell.exhausted(letters(2))

        drive(verb())
        drive(bell.close())
        assert [alert.count for alert in memory.delivered] == [2]

    asyncio.run(story())


def test_every_letter_of_many_threads_is_counted_once() -> None:
    memory = Memory()
    bell = alarm(memory, quiet=timedelta(milliseconds=5))

    def work(start: int) -> None:
        for one in letters(200, start=start):
            bell.exhausted([one])

    threads = [threading.Thread(target=work, args=[200 * number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(bell.close())
    assert sum(alert.count for alert in memory.delivered) == 1600


def test_a_later_event_loop_goes_on_with_what_the_former_left() -> None:
    memory = Memory()
    bell = alarm(memory, window=timedelta(seconds=60))

    async def first() -> None:
        bell.exhausted(letters(2))
        await asyncio.sleep(0)

    async def second() -> None:
        bell.exhausted(letters(3, start=2))
        await bell.close()

    asyncio.run(first())
    asyncio.run(second())
    assert [alert.count for alert in memory.delivered] == [5]


def test_what_a_loop_left_while_it_was_sending_is_sent_by_the_next() -> None:
    class Once(Stuck):
        async def notify(self, alerts: Sequence[Alert]) -> None:
            if self.calls:
                await Memory.notify(self, alerts)
            else:
                await super().notify(alerts)

    memory = Once()
    bell = alarm(memory)

    async def first() -> None:
        bell.exhausted(letters(2))
        await until(lambda: memory.calls)

    asyncio.run(first())
    asyncio.run(bell.close())
    assert [alert.count for alert in memory.delivered] == [2]


def test_the_end_of_a_program_waits_for_no_hook() -> None:
    import subprocess
    import sys

    program = (
        "import asyncio, threading\n"
        "from datetime import timedelta\n"
        "from redrive.engine.alert import Alarm\n"
        "from redrive.testing.kit.samples import letter\n"
        "called = threading.Event()\n"
        "def hangs(alert):\n"
        "    called.set()\n"
        "    threading.Event().wait()\n"
        "async def main():\n"
        "    alarm = Alarm([hangs], window=timedelta())\n"
        "    alarm.exhausted([letter('1')])\n"
        "    while not called.is_set():\n"
        "        await asyncio.sleep(0.001)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_child_tells_of_its_own_letters_only() -> None:
    import subprocess
    import sys

    program = (
        "import asyncio, os, warnings\n"
        "from datetime import timedelta\n"
        "from redrive.engine.alert import Alarm\n"
        "from redrive.ports.inline import drive\n"
        "from redrive.testing.kit.samples import letter\n"
        "warnings.simplefilter('ignore')\n"
        "alarm = Alarm([lambda alert: os.write(1, f'{os.getpid() == parent} {alert.count}\\n'.encode())], window=timedelta(hours=1))\n"
        "parent = os.getpid()\n"
        "alarm.exhausted([letter('1')])\n"
        "child = os.fork()\n"
        "alarm.exhausted([letter('2'), letter('3')])\n"
        "drive(alarm.close())\n"
        "if child: os.waitpid(child, 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True)
    assert sorted(done.stdout.splitlines()) == ["False 2", "True 3"]


def test_the_log_is_ours() -> None:
    assert alarm_module.log is logging.getLogger("redrive.alert")
