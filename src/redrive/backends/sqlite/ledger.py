"""The ledger on SQLite: some hundred rows on a sheet, which is read and written as one.

A million letters are chosen, meant, sent and confirmed one batch after another. As a row of the table each, they would cost more than
all the rest; a sheet costs as much as one of them.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice
from uuid import UUID

from msgspec import Struct, msgpack

from redrive.backends.sqlite.rows import filled, marks, pieces, read_all, write_rows
from redrive.model.ids import uuid_of
from redrive.model.instant import instant, micros
from redrive.model.operation import TO_BE_SENT, UNDECIDED, Entry, LedgerRow

_ROWS = 256
"""On a sheet. Fewer cost more where a million are sent, more where a single one is heard of."""

_MARKS = {
    Entry.CHOSEN: ord("c"),
    Entry.INTENDED: ord("i"),
    Entry.SENT: ord("s"),
    Entry.CONFIRMED: ord("k"),
    Entry.FAILED: ord("f"),
    Entry.UNKNOWN: ord("u"),
    Entry.SKIPPED: ord("x"),
}
_ENTRIES = {mark: entry for entry, mark in _MARKS.items()}
_NONE = 0
"""The mark of a row that is not there."""

_COLUMNS = ("operation", "sheet", *(entry.value for entry in _MARKS), "data")
_REPLACE = f"ON CONFLICT (operation, sheet) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _COLUMNS[2:])}"


class _Stored(Struct, array_like=True):
    letters: bytes
    generations: bytes
    marks: bytes
    instants: bytes
    details: dict[int, str]


_decode = msgpack.Decoder(_Stored).decode


class _Sheet:
    """Rows side by side: what each column says of the first, the second and so on."""

    def __init__(self, stored: _Stored | None = None) -> None:
        self.letters = bytearray(stored.letters if stored else 16 * _ROWS)
        self.generations = array("q", stored.generations if stored else bytes(8 * _ROWS))
        self.marks = bytearray(stored.marks if stored else _ROWS)
        self.instants = array("q", stored.instants if stored else bytes(8 * _ROWS))
        self.details = stored.details if stored else {}

    def write(self, rows: Sequence[LedgerRow]) -> None:
        letters, generations, marks, instants, details = self.letters, self.generations, self.marks, self.instants, self.details
        at, moment = None, 0
        for row in rows:
            place = row.number % _ROWS
            if row.at is not at:
                at, moment = row.at, micros(row.at)
            letters[16 * place : 16 * place + 16] = row.letter.int.to_bytes(16)
            generations[place] = row.generation
            marks[place] = _MARKS[row.entry]
            instants[place] = moment
            if row.detail:
                details[place] = row.detail
            elif details:
                details.pop(place, None)

    def columns(self) -> tuple[int | bytes, ...]:
        """What stands in the table beside the operation and the sheet's number."""
        stored = _Stored(
            letters=bytes(self.letters),
            generations=self.generations.tobytes(),
            marks=bytes(self.marks),
            instants=self.instants.tobytes(),
            details=self.details,
        )
        return (*map(self.marks.count, _MARKS.values()), msgpack.encode(stored))


def record(connection: sqlite3.Connection, requests: list[Sequence[LedgerRow]]) -> list[None]:
    """Write rows; one that is there already is replaced."""
    by_operation: dict[bytes, dict[int, list[LedgerRow]]] = {}
    for row in chain.from_iterable(requests):
        by_operation.setdefault(row.operation.bytes, {}).setdefault(row.number // _ROWS, []).append(row)
    changed = []
    for operation, by_sheet in by_operation.items():
        known = _known(connection, operation, by_sheet)
        for number, rows in by_sheet.items():
            sheet = _Sheet(known.get(number))
            sheet.write(rows)
            changed.append((operation, number, *sheet.columns()))
    write_rows(connection, "ledger", _COLUMNS, changed, _REPLACE)
    return [None] * len(requests)


def _known(connection: sqlite3.Connection, operation: bytes, numbers: Collection[int]) -> dict[int, _Stored]:
    known: dict[int, _Stored] = {}
    for some in pieces(list(numbers)):
        sql = f"SELECT sheet AS note, data FROM ledger WHERE operation = ? AND sheet IN ({marks(len(some))})"
        known |= {int(number): _decode(data) for number, data in read_all(connection, sql, [operation, *filled(some)])}
    return known


def rows_of(
    connection: sqlite3.Connection, operation: UUID, entries: Collection[Entry] | None, limit: int, after: int
) -> list[LedgerRow]:
    """An operation's rows by their number, after the given one; of these entries alone, if they are given."""
    # Spelt as the indexes are, so that no sheet is read that has none of them.
    among = ""
    if entries is not None and TO_BE_SENT.issuperset(entries):
        among = "AND chosen + intended > 0"
    elif entries is not None and UNDECIDED.issuperset(entries):
        among = "AND sent + unknown > 0"
    sql = f"SELECT sheet, data FROM ledger WHERE operation = ? AND sheet >= ? {among} ORDER BY sheet"
    wanted = set(_ENTRIES if entries is None else map(_MARKS.__getitem__, entries))
    sheets = connection.execute(sql, [operation.bytes, (after + 1) // _ROWS])
    found = (row for number, data in sheets for row in _read(operation, number, _decode(data), wanted, after))
    return list(islice(found, limit))


def _read(operation: UUID, sheet: int, stored: _Stored, wanted: set[int], after: int) -> Iterator[LedgerRow]:
    letters, generations, instants = stored.letters, array("q", stored.generations), array("q", stored.instants)
    moment, at = -1, instant(0)
    for place in range(max(0, after + 1 - sheet * _ROWS), _ROWS):
        mark = stored.marks[place]
        if mark == _NONE or mark not in wanted:
            continue
        if instants[place] != moment:
            moment = instants[place]
            at = instant(moment)
        yield LedgerRow(
            operation=operation,
            number=sheet * _ROWS + place,
            letter=uuid_of(int.from_bytes(letters[16 * place : 16 * place + 16])),
            generation=generations[place],
            entry=_ENTRIES[mark],
            at=at,
            detail=stored.details.get(place, ""),
        )


def tally(connection: sqlite3.Connection, operation: UUID) -> dict[Entry, int]:
    """How many rows there are of each entry."""
    sums = ", ".join(f"total({entry})" for entry in _MARKS)
    counts = connection.execute(f"SELECT {sums} FROM ledger WHERE operation = ?", [operation.bytes]).fetchone()
    return {entry: int(count) for entry, count in zip(_MARKS, counts, strict=True) if count}


def drop(connection: sqlite3.Connection, operation: UUID) -> None:
    connection.execute("DELETE FROM ledger WHERE operation = ?", [operation.bytes])
