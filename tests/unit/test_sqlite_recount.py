"""How SQLite compares its counts with its letters: what that takes of memory, and that nothing is missed by letting go early."""

from __future__ import annotations

import sqlite3
import tracemalloc
from contextlib import closing
from datetime import timedelta

from redrive import Letter, Status
from redrive.backends.sqlite import counts, recount
from redrive.testing import START, failure, letter
from tests.unit.sqlite_use import filled

HOUR = timedelta(hours=1)
STATUSES = (Status.PENDING, Status.EXHAUSTED, Status.COMPLETED)


def numbered(count: int) -> list[Letter]:
    """Hardly two of them are of one source, error, hour, group and status, but there are few of each."""
    return [
        letter(
            str(number),
            source=f"source {number % 23}",
            at=START + (number % 19) * HOUR,
            failure=failure(f"errors.E{number % 17}", fingerprint=f"group {number % 13}"),
            status=STATUSES[number % 3],
        )
        for number in range(count)
    ]


def peak(connection: sqlite3.Connection) -> int:
    """How many bytes Python has at most while the letters are counted."""
    tracemalloc.start()
    try:
        assert recount.miscounted(connection).differences.miscounts == []
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_goes_by_the_counts_and_not_by_the_letters() -> None:
    with closing(filled(numbered(2000))) as few, closing(filled(numbered(8000))) as many:
        peak(few)
        assert peak(many) < 1.3 * peak(few)


def test_what_is_noted_of_right_counts_is_let_go_of_with_them() -> None:
    with closing(filled(numbered(500))) as connection:
        counts.fold(connection)
        assert counts.waiting(connection) == 0
        connection.execute("DELETE FROM letters WHERE source_id = '7'")
        assert {one.kept - one.real for one in recount.miscounted(connection).differences.miscounts} == {1}
        repaired = recount.miscounted(connection)
        counts.note(connection, repaired.differences.change)
        assert counts.waiting(connection) == 1
        assert recount.miscounted(connection).differences.miscounts == []


def test_of_two_who_put_counts_right_one_compares_them_anew() -> None:
    with closing(filled(numbered(60))) as connection:
        connection.execute("DELETE FROM letters WHERE source_id = '7'")
        one, other = recount.miscounted(connection), recount.miscounted(connection)
        assert one.differences.miscounts == other.differences.miscounts != []
        assert recount.repaired(connection, [one, other]) == [True, False]
        assert recount.repaired(connection, [other]) == [False]
        assert recount.miscounted(connection).differences.miscounts == []


def test_a_group_that_is_kept_without_any_letter_is_a_miscount() -> None:
    with closing(filled(numbered(60))) as connection:
        counts.fold(connection)
        connection.execute("INSERT INTO groups SELECT 'other', fingerprint, 0, 0, 0, 0, 1, 0, 0, 5, 5, hours FROM groups LIMIT 1")
        (name,) = connection.execute("SELECT fingerprint FROM groups WHERE namespace = 'other'").fetchone()
        told = {one.what for one in recount.miscounted(connection).differences.miscounts}
        assert {f"group {name} of namespace other, {what}" for what in ("completed", "first seen", "last seen")} < told
        recount.repaired(connection, [recount.miscounted(connection)])
        assert recount.miscounted(connection).differences.miscounts == []
        counts.fold(connection)
        assert connection.execute("SELECT count(*) FROM groups WHERE namespace = 'other'").fetchone() == (0,)
