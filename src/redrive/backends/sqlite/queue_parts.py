"""The partitions that a transaction looks at: each is read once and, if it changed, written once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import datetime

from msgspec import Struct, field, msgpack

from redrive.backends.sqlite.queue_rows import Inserts, Values
from redrive.backends.sqlite.rows import read_all
from redrive.model.errors import QueueGone
from redrive.model.item import OVERDUE_US, PartitionStats
from redrive.model.ksuid import positions
from redrive.model.queue import Shard

NEVER_US = 1 << 62
_SECOND = 1_000_000
_MINT = 64


class Lane(Struct, array_like=True, gc=False):
    """Where a priority stands: what is up to the cursor is leased, what is beyond is ready."""

    cursor: str = ""
    ready: int = 0
    leased: int = 0


class State(Struct, array_like=True):
    """A partition as a whole. Sums are kept as seconds and microseconds, for together they would not fit."""

    last: str = ""
    lanes: dict[int, Lane] = field(default_factory=dict)
    """Those that have items."""
    scheduled: int = 0
    behind: int = 0
    dying: int = 0
    created_s: int = 0
    created_us: int = 0
    """Summed over all but the scheduled."""
    leased_s: int = 0
    leased_us: int = 0
    """Summed over the leased: when they were leased."""
    latest_us: int = 0
    """No ready item expires after this."""
    has_early: bool = False
    """There may be ready items that expire before one that stands ahead of them."""
    keys: int = 0
    """Keys that have an item."""
    next_due_us: int = 0
    at_us: int = 0
    """The last instant at which it was changed, by the store's own clock."""


class Part:
    """A partition within a transaction. Whoever changes its state says so."""

    __slots__ = ("due_us", "is_changed", "is_gone", "minted", "number", "partition", "queue", "state")

    def __init__(self, queue: str, partition: int, number: int = 0, state: State | None = None, *, is_gone: bool = False) -> None:
        self.queue = queue
        self.partition = partition
        self.number = number
        """What names it in other tables; 0: it has no row yet."""
        self.state = state or State()
        self.is_gone = is_gone
        self.is_changed = False
        self.due_us = OVERDUE_US if self.state.dying else self.state.next_due_us
        """What its row says."""
        self.minted: list[str] = []

    @property
    def ready(self) -> int:
        return sum(lane.ready for lane in self.state.lanes.values())

    @property
    def leased(self) -> int:
        return sum(lane.leased for lane in self.state.lanes.values())

    @property
    def total(self) -> int:
        """All but the scheduled."""
        return self.ready + self.leased + self.state.behind + self.state.dying

    def lane(self, number: int) -> Lane:
        found = self.state.lanes.get(number)
        if found is None:
            found = self.state.lanes[number] = Lane()
        return found

    def created(self, created_us: int, count: int = 1) -> None:
        """So many more (or fewer) that were created then."""
        self.state.created_s += count * (created_us // _SECOND)
        self.state.created_us += count * (created_us % _SECOND)

    def was_leased(self, leased_us: int, count: int) -> None:
        """So many more (or fewer) that were leased then."""
        self.state.leased_s += count * (leased_us // _SECOND)
        self.state.leased_us += count * (leased_us % _SECOND)

    def due(self, at_us: int) -> None:
        """Something is due then, unless it is 0."""
        if at_us and not 0 < self.state.next_due_us <= at_us:
            self.state.next_due_us = at_us

    def position(self, now_us: int) -> str:
        """A new id, the highest."""
        if not self.minted:
            self.minted = positions(self.state.last, _MINT, now_us)[::-1]
        self.state.last = self.minted.pop()
        return self.state.last

    def positions(self, count: int, now_us: int) -> list[str]:
        self.minted = []
        ids = positions(self.state.last, count, now_us)
        if ids:
            self.state.last = ids[-1]
        return ids

    def stats(self, now_us: int) -> PartitionStats:
        state, total, leased = self.state, self.total, self.leased
        created_us, leased_us = state.created_s * _SECOND + state.created_us, state.leased_s * _SECOND + state.leased_us
        return PartitionStats(
            partition=self.partition,
            total=total,
            leased=leased,
            ready=self.ready,
            scheduled=state.scheduled,
            behind=state.behind,
            dying=state.dying,
            average_age_us=max(now_us - created_us // total, 0) if total else 0,
            average_leased_age_us=max(now_us - leased_us // leased, 0) if leased else 0,
        )

    def tidy(self) -> None:
        """Forget what only mattered to items that are gone."""
        state = self.state
        for number in [number for number, lane in state.lanes.items() if not lane.ready and not lane.leased]:
            del state.lanes[number]
        if not state.lanes:
            state.latest_us, state.has_early = 0, False
            if not state.scheduled:
                state.next_due_us = 0


_state = msgpack.Decoder(State).decode
_encoded = msgpack.Encoder().encode


class Parts:
    """What a transaction knows of partitions, and the rows it has yet to write."""

    def __init__(self, connection: sqlite3.Connection, clock: Callable[[int, datetime | None], int]) -> None:
        self.connection = connection
        self._clock = clock
        self._known: dict[str, dict[int, Part]] = {}
        self._passed_us = 0
        self._at_us = 0
        self.inserts = Inserts(connection)
        self.ahead: dict[tuple[int, int], tuple[list[str], list[Values]]] = {}
        """Ready items that were read for the next to lease, by partition and lane. Empty it when items move or go."""

    def of(self, shard: Shard) -> list[Part]:
        """The shard's partitions. Raises `QueueGone`."""
        return [self.at(shard.queue, partition) for partition in shard.partitions]

    def at(self, queue: str, partition: int) -> Part:
        known = self._known.get(queue)
        if known is None:
            known = self._known[queue] = self._read(queue)
        part = known.get(partition)
        if part is None:
            part = known[partition] = Part(queue, partition)
        if part.is_gone:
            raise QueueGone(f"queue '{queue}' was deleted")
        return part

    def known(self, queue: str, partition: int) -> Part:
        """The partition, gone or not."""
        try:
            return self.at(queue, partition)
        except QueueGone:
            return self._known[queue][partition]

    def now(self, given: datetime | None) -> int:
        """The instant at which a request is done. To be asked after its partitions were: it is never before what they saw."""
        now_us = self._clock(self._passed_us, given)
        if given is None:
            self._at_us = now_us
        return now_us

    def number(self, part: Part) -> int:
        """What names the partition in other tables; from now on it has a row."""
        if not part.number:
            sql = "INSERT INTO queue_parts (queue, partition, state) VALUES (?, ?, ?)"
            part.number = self.connection.execute(sql, [part.queue, part.partition, _encoded(part.state)]).lastrowid or 0
            part.is_changed = True
        return part.number

    def flush(self) -> None:
        """Write everything."""
        self.inserts.flush()
        for parts in self._known.values():
            for part in parts.values():
                if part.is_changed:
                    self._write(part)

    def _write(self, part: Part) -> None:
        part.tidy()
        state = part.state
        state.at_us = max(state.at_us, self._at_us)
        # Whoever looks what is due next finds first what somebody gave up and did not live to move.
        due_us = OVERDUE_US if state.dying else state.next_due_us
        if due_us == part.due_us:
            self.connection.execute("UPDATE queue_parts SET state = ? WHERE part = ?", [_encoded(state), part.number])
        else:
            self.connection.execute(
                "UPDATE queue_parts SET state = ?, next_due_us = ? WHERE part = ?",
                [_encoded(state), due_us or None, part.number],
            )
        part.is_changed, part.due_us = False, due_us

    def _read(self, queue: str) -> dict[int, Part]:
        found = {}
        sql = "SELECT part || ' ' || partition || ' ' || is_gone AS note, state AS data FROM queue_parts WHERE queue = ?"
        for note, data in read_all(self.connection, sql, [queue]):
            number, partition, is_gone = map(int, note.split(" "))
            state = _state(data)
            found[partition] = Part(queue, partition, number, state, is_gone=bool(is_gone))
            self._passed_us = max(self._passed_us, state.at_us)
        return found
