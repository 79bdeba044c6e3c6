"""The ledger on SQLite, sheet by sheet, against one that is a dictionary."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from redrive.backends.sqlite import ledger
from redrive.backends.sqlite.schema import empty
from redrive.model.operation import DEPARTED, TO_BE_SENT, UNDECIDED, Entry, LedgerRow

_START = datetime(2026, 1, 1, tzinfo=UTC)
_OPERATIONS = [UUID(int=1), UUID(int=2**128 - 1)]

_rows = st.builds(
    LedgerRow,
    operation=st.sampled_from(_OPERATIONS),
    # Around the edges of sheets, and far away.
    number=st.one_of(st.integers(0, 3), st.integers(250, 262), st.integers(510, 514), st.just(1_000_000)),
    letter=st.integers(0, 2**128 - 1).map(lambda number: UUID(int=number)),
    generation=st.sampled_from([0, 1, 2, 2**31, 2**40]),
    entry=st.sampled_from(Entry),
    at=st.integers(-(10**9), 10**9).map(lambda seconds: _START + timedelta(seconds=seconds, microseconds=7)),
    detail=st.sampled_from(["", "it is archived", "größer, \x00 and 'quoted'"]),
)
_among = st.sampled_from([None, TO_BE_SENT, UNDECIDED, DEPARTED, {Entry.FAILED}, {Entry.CHOSEN, Entry.SENT}, set[Entry]()])


@given(
    batches=st.lists(st.lists(_rows, max_size=30), max_size=8),
    among=_among,
    after=st.sampled_from([-1, 0, 2, 255, 256, 511, 999_999, 1_000_000]),
    limit=st.integers(0, 40),
)
def test_it_says_what_was_written_last_of_each_letter(
    batches: list[list[LedgerRow]], among: set[Entry] | None, after: int, limit: int
) -> None:
    kept: dict[tuple[UUID, int], LedgerRow] = {}
    connection = empty()
    for batch in batches:
        # As two who write at once: both in one transaction, the one after the other.
        ledger.record(connection, [batch[::2], batch[1::2]])
        kept.update({(row.operation, row.number): row for row in batch[::2] + batch[1::2]})
    for operation in _OPERATIONS:
        ours = sorted((row for row in kept.values() if row.operation == operation), key=lambda row: row.number)
        wanted = [row for row in ours if row.number > after and (among is None or row.entry in among)]
        assert ledger.rows_of(connection, operation, among, limit, after) == wanted[:limit]
        counts = {entry: sum(row.entry is entry for row in ours) for entry in Entry}
        assert ledger.tally(connection, operation) == {entry: count for entry, count in counts.items() if count}
    gone, other = _OPERATIONS
    ledger.drop(connection, gone)
    assert ledger.rows_of(connection, gone, None, 100, -1) == []
    assert ledger.tally(connection, gone) == {}
    assert sum(ledger.tally(connection, other).values()) == sum(row.operation == other for row in kept.values())
    connection.close()
