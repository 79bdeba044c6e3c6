"""Which queue may be whose dead queue."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.model.errors import QueueRefused
from redrive.model.queue import Queue, ensure_dead_queue_fits, leading_to


def queue(name: str, dead_queue: str = "") -> Queue:
    return Queue(
        id=f"id of {name}",
        name=name,
        dead_queue=dead_queue,
        lease_timeout=timedelta(minutes=1),
        expire_timeout=timedelta(hours=1),
        created_us=1,
        updated_us=1,
        partitions=("here",),
    )


def by_name(*queues: Queue) -> dict[str, Queue]:
    return {one.name: one for one in queues}


@pytest.mark.parametrize(
    ("one", "others"),
    [
        (queue("orders"), by_name()),
        (queue("orders", "dead"), by_name(queue("dead"))),
        (queue("orders", "dead"), by_name(queue("dead"), queue("bills", "dead"))),
        (queue("orders", "dead"), by_name(queue("dead"), queue("orders", "other"), queue("other"))),
        (queue("dead"), by_name(queue("orders", "dead"))),
    ],
    ids=["none", "there", "shared", "changed", "the end itself"],
)
def test_a_dead_queue_that_is_there_and_the_end_of_the_way_fits(one: Queue, others: dict[str, Queue]) -> None:
    assert ensure_dead_queue_fits(one, others) is None  # type: ignore[func-returns-value]  # it raises otherwise


@pytest.mark.parametrize(
    ("one", "others", "sentence"),
    [
        (queue("orders", "orders"), by_name(), "dead_queue cannot reference itself"),
        (queue("orders", "orders"), by_name(queue("orders")), "dead_queue cannot reference itself"),
        (queue("orders", "dead"), by_name(), "dead_queue 'dead' does not exist; create it first"),
        (
            queue("orders", "dead"),
            by_name(queue("dead", "deader"), queue("deader")),
            "dead_queue 'dead' cannot have its own dead_queue",
        ),
        (
            queue("dead", "deader"),
            by_name(queue("orders", "dead"), queue("dead"), queue("deader")),
            "dead_queue 'dead' cannot have its own dead_queue",
        ),
        (queue("a", "b"), by_name(queue("b", "a"), queue("a")), "dead_queue 'b' cannot have its own dead_queue"),
    ],
    ids=["itself", "itself again", "missing", "not the end", "others end here", "a ring"],
)
def test_any_other_is_refused_with_the_reason(one: Queue, others: dict[str, Queue], sentence: str) -> None:
    with pytest.raises(QueueRefused) as caught:
        ensure_dead_queue_fits(one, others)
    assert str(caught.value) == sentence


def test_the_queues_that_lead_to_one_are_named() -> None:
    queues = [queue("a", "dead"), queue("b", "other"), queue("c", "dead"), queue("dead", "dead"), queue("other")]
    assert leading_to("dead", queues) == ["a", "c"]
    assert leading_to("a", queues) == []
