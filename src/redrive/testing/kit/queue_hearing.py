"""Who waits for something to be ready hears of it again after a cut, a silence or an outage."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from redrive.model.errors import StoreUnavailable
from redrive.ports.queues import QueueStore
from redrive.testing.kit.clerk import Run
from redrive.testing.kit.crowd import HOUR
from redrive.testing.kit.lines import PATIENCE, SHORT, SOON, At, within
from redrive.testing.kit.queue_lines import QueueLines, QueueRemote, own
from redrive.testing.kit.queue_samples import ORDERS, fresh
from redrive.testing.kit.samples import START
from redrive.testing.proxy import Proxy

_HEARD_SECONDS = 10.0
_CALM_SECONDS = 0.1
_AGAIN_SECONDS = 0.05


class QueueRehearing(QueueLines):
    """A store that was deaf for a while."""

    @pytest.fixture
    def listener(self, remote: QueueRemote, name: str, line: Proxy, run: Run) -> Iterator[QueueStore]:
        """Who waits, at the far end of the line."""
        store = remote.listener(At(host=line.host, port=line.port, name=name, timeout=PATIENCE))
        yield store
        run(store.close())

    def test_who_waits_hears_of_changes_again_after_its_connections_were_cut(
        self, listener: QueueStore, other: QueueStore, line: Proxy, run: Run
    ) -> None:
        run(hears(listener, other))
        for _ in range(3):
            line.cut()
            run(hears(listener, other))

    def test_who_waits_on_a_silent_line_is_let_go_in_time_and_hears_again_when_it_flows(
        self, listener: QueueStore, other: QueueStore, line: Proxy, run: Run
    ) -> None:
        for _ in range(2):
            # The first time nothing is connected yet, and the second time all is.
            line.stall()
            assert not within(SOON, lambda: run(listener.changed(SHORT))).is_unknown
            line.flow()
            run(hears(listener, other))


async def hears(listener: QueueStore, other: QueueStore) -> None:
    """Who waits for long, while nobody changes anything, is let go when somebody does."""
    async with asyncio.timeout(_HEARD_SECONDS):
        while True:
            waiting = asyncio.ensure_future(listener.changed(HOUR))
            await asyncio.wait([waiting], timeout=_CALM_SECONDS)
            if not waiting.done():
                break
            # It may return early, or tell that it could not listen; then one waits again.
            with suppress(StoreUnavailable):
                await waiting
        while not waiting.done():
            # Into a queue in which nothing was ready, and again: who begins to wait at the instant of a put may miss it.
            await other.put(own(ORDERS), [fresh("news")], now=START)
            await asyncio.wait([waiting], timeout=_AGAIN_SECONDS)
        await waiting
