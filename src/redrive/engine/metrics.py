"""Everything redrive measures: one table for Prometheus and OpenTelemetry alike, under the same names.

Labels have few values: never an id, never a fingerprint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from redrive.model.census import Backlog
from redrive.model.item import PartitionStats, Place
from redrive.model.status import Status


class Kind(StrEnum):
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


class Metric(Struct, frozen=True, kw_only=True):
    """What is measured."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    unit: str
    """As UCUM writes it: `s`, `{letter}`."""
    buckets: tuple[float, ...] = ()
    """A histogram's upper bounds."""


class Meter(Protocol):
    """Takes measurements. Every label of the metric is given, and no other. Never raises for a right one, never waits."""

    @property
    def is_heard(self) -> bool:
        """Does it lead anywhere just now? Else it may be spared the trouble."""
        ...

    def add(self, metric: Metric, amount: float, /, **labels: str) -> None:
        """Count this many more."""
        ...

    def observe(self, metric: Metric, value: float, /, **labels: str) -> None:
        """Put one value into a histogram."""
        ...

    def set(self, metric: Metric, value: float, /, **labels: str) -> None:
        """Say what a gauge stands at."""
        ...


class NullMeter:
    """Measures nothing."""

    is_heard = True

    def add(self, metric: Metric, amount: float, /, **labels: str) -> None: ...

    def observe(self, metric: Metric, value: float, /, **labels: str) -> None: ...

    def set(self, metric: Metric, value: float, /, **labels: str) -> None: ...


STORE_CALLS = Metric(
    name="redrive_store_calls_total",
    kind=Kind.COUNTER,
    help="Calls to the store, every try by itself; outcome is ok, cancelled or the error's code.",
    labels=("verb", "outcome"),
    unit="{call}",
)
STORE_CALL_SECONDS = Metric(
    name="redrive_store_call_seconds",
    kind=Kind.HISTOGRAM,
    help="How long calls to the store took, every try by itself.",
    labels=("verb",),
    unit="s",
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
STORE_ITEMS = Metric(
    name="redrive_store_items_total",
    kind=Kind.COUNTER,
    help="Letters, leases and groups that the store answered for.",
    labels=("verb",),
    unit="{item}",
)
LETTERS_HELD = Metric(
    name="redrive_letters_held_total",
    kind=Kind.COUNTER,
    help="Letters held, by how: new, attempt, reopened, duplicate or journaled.",
    labels=("source", "held", "category"),
    unit="{letter}",
)
LETTERS_SETTLED = Metric(
    name="redrive_letters_settled_total",
    kind=Kind.COUNTER,
    help="Claims that ended: completed, redriven, failed or released; lease_lost and missing changed nothing.",
    labels=("outcome",),
    unit="{letter}",
)
MESSAGES_REDRIVEN = Metric(
    name="redrive_messages_redriven_total",
    kind=Kind.COUNTER,
    help="Messages sent back, by what the ledger says of them.",
    labels=("outcome",),
    unit="{message}",
)
LETTERS_RETRIED = Metric(
    name="redrive_letters_retried_total",
    kind=Kind.COUNTER,
    help="Letters whose retry was due: completed, failed, postponed, redriven or released; lease_lost when another had it.",
    labels=("source", "outcome"),
    unit="{letter}",
)
LETTERS_RETAINED = Metric(
    name="redrive_letters_retained_total",
    kind=Kind.COUNTER,
    help="Letters that a retention rule removed (act purge) or put away (archive).",
    labels=("rule", "act"),
    unit="{letter}",
)
BACKLOG = Metric(
    name="redrive_backlog",
    kind=Kind.GAUGE,
    help="What the store has put off, when last asked: texts to index, counts to sum up, bytes to give back.",
    labels=("what",),
    unit="{item}",
)
JOURNAL_LETTERS = Metric(
    name="redrive_journal_letters",
    kind=Kind.GAUGE,
    help="Letters that wait in the local journal for the store to come back.",
    unit="{letter}",
)
LETTERS = Metric(
    name="redrive_letters",
    kind=Kind.GAUGE,
    help="Letters in the store, by status, when last asked.",
    labels=("status",),
    unit="{letter}",
)
QUEUE_ITEMS = Metric(
    name="redrive_queue_items",
    kind=Kind.GAUGE,
    help="Items in queues, by where they stand: ready, leased, scheduled, behind another of their key, or dying.",
    labels=("queue", "place"),
    unit="{item}",
)
ALERTS = Metric(
    name="redrive_alerts_total",
    kind=Kind.COUNTER,
    help="Alerts, for each notifier by itself: sent, failed (given up on) or dropped (too many groups at once).",
    labels=("outcome",),
    unit="{alert}",
)

METRICS = (
    STORE_CALLS,
    STORE_CALL_SECONDS,
    STORE_ITEMS,
    LETTERS_HELD,
    LETTERS_SETTLED,
    MESSAGES_REDRIVEN,
    LETTERS_RETRIED,
    LETTERS_RETAINED,
    BACKLOG,
    JOURNAL_LETTERS,
    QUEUE_ITEMS,
    LETTERS,
    ALERTS,
)


def set_letters(meter: Meter, tally: Mapping[str, int]) -> None:
    """Fill the gauge of letters from a store's tally by status; a status that is not in it has none."""
    for status in Status:
        meter.set(LETTERS, tally.get(status.value, 0), status=status.value)


def set_queue(meter: Meter, queue: str, partitions: Sequence[PartitionStats]) -> None:
    """Fill the gauge of a queue's items; one without partitions has none."""
    for place in Place:
        meter.set(QUEUE_ITEMS, sum(getattr(one, place.value) for one in partitions), queue=queue, place=place.value)


def set_backlog(meter: Meter, backlog: Backlog) -> None:
    """Fill the gauge of what a store has put off."""
    for what in Backlog.__struct_fields__:
        meter.set(BACKLOG, getattr(backlog, what), what=what)
