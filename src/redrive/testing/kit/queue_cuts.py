"""A line to queues that is cut in the middle of a request or of an answer: a step is made once or not at all, and found out."""

from __future__ import annotations

from functools import partial

import pytest

from redrive.testing.kit.instants import CUTS, cutting, measured
from redrive.testing.kit.lines import PATIENCE, ended, within
from redrive.testing.kit.queue_clerk import QueueClerk
from redrive.testing.kit.queue_lines import QueueLines
from redrive.testing.kit.queue_steps import STEPS, Putting, Step, looks
from redrive.testing.kit.samples import START
from redrive.testing.proxy import Proxy


class QueueCuts(QueueLines):
    """Connections that are reset at the worst instant."""

    @pytest.mark.parametrize("kind", STEPS)
    def test_a_step_whose_connection_is_cut_is_made_once_or_not_at_all(
        self, kind: type[Step], store: QueueClerk, witness: QueueClerk, line: Proxy
    ) -> None:
        for _ in range(2):
            step = kind()
            step.prepare(witness)
            size = measured(line, partial(step.call, store))
        for each in CUTS:
            with cutting(each) as cut:
                step = kind()
                step.prepare(witness)
                cut(line, *size)
                told = ended(partial(step.call, store))
                assert not told.is_done, "the cut met nothing"
                # The same store, the next call: it need not be opened again.
                step.prove(store, witness, told)
                store.now = START

    def test_idle_connections_that_are_cut_are_replaced(self, store: QueueClerk, witness: QueueClerk, line: Proxy) -> None:
        for _ in range(10):
            step = Putting()
            line.cut()
            step.prove(store, witness, ended(partial(step.call, store)))

    @pytest.mark.parametrize("towards_server", [False, True], ids=["towards_the_client", "towards_the_server"])
    def test_half_closed_connections_are_replaced(
        self, towards_server: bool, hasty: QueueClerk, witness: QueueClerk, line: Proxy
    ) -> None:
        for _ in range(5):
            step = Putting()
            line.half_close(towards_server=towards_server)
            step.prove(hasty, witness, within(PATIENCE, partial(step.call, hasty)))

    def test_while_connections_are_refused_nothing_is_changed_and_then_it_goes_on(
        self, store: QueueClerk, witness: QueueClerk, line: Proxy
    ) -> None:
        steps = [kind() for kind in STEPS]
        for step in steps:
            step.prepare(witness)
        line.refuse()
        line.cut()
        # The first call may meet the connection that was cut; what follows finds nobody to talk to.
        ended(store.check)
        for look in looks(store.store):
            assert within(PATIENCE, partial(store.run, look)).is_undone
        told = [within(PATIENCE, partial(step.call, store)) for step in steps]
        assert all(one.is_undone for one in told)
        line.accept()
        for step, one in zip(steps, told, strict=True):
            store.now = START
            step.prove(store, witness, one)
