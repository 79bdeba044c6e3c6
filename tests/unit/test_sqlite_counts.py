"""Counts that SQLite keeps: wrong ones are found and put right, while others write."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

import redrive.blocking
from redrive.blocking import Letters
from redrive.model.query import Field, GroupOrder, Is, Text
from redrive.model.texts import Where
from redrive.testing import START, failure, letter

HOUR = timedelta(hours=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Letters]:
    with redrive.blocking.open(f"sqlite:{tmp_path / 'letters.db'}") as dlq:
        yield dlq.letters


def tidy(store: Letters) -> None:
    while store.tidy():
        pass


def fill(store: Letters, count: int, *, start: int = 0) -> None:
    store.put(
        [
            letter(str(number), at=START + (number % 7) * HOUR, failure=failure(fingerprint=f"group {number % 5}"))
            for number in range(start, start + count)
        ]
    )


def falsify(place: Path, *statements: str) -> None:
    connection = sqlite3.connect(place / "letters.db", isolation_level=None)
    for statement in statements:
        assert connection.execute(statement).rowcount, statement
    connection.close()


def size(path: Path) -> int:
    """Of the file, with all that was in its log. The store may be copying that just now, and then has to be waited for."""
    connection = sqlite3.connect(path, isolation_level=None)
    while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        pass
    connection.close()
    return path.stat().st_size


WRONGS = {
    "UPDATE counts SET count = count + 3 WHERE facet = 'all'": {"all letters, pending"},
    "DELETE FROM counts WHERE facet = 'source'": {"source orders, pending"},
    "INSERT INTO counts VALUES ('error', 'other', 'E', 'archived', 2)": {"error E of namespace other, archived"},
    "UPDATE groups SET pending = pending - 1, archived = 5 WHERE fingerprint = 'group 1'": {
        "group group 1, pending",
        "group group 1, archived",
    },
    "UPDATE groups SET hours = (SELECT hours FROM groups WHERE fingerprint = 'group 0') WHERE fingerprint = 'group 2'": {
        "group group 2, hour 2025-01-01 14:00",
        "group group 2, hour 2025-01-01 16:00",
    },
    "UPDATE groups SET hours = NULL WHERE fingerprint = 'group 2'": {
        f"group group 2, hour 2025-01-01 {hour}:00" for hour in range(12, 19)
    },
    "UPDATE groups SET first_seen = first_seen + 1 WHERE fingerprint = 'group 3'": {"group group 3, first seen"},
    "UPDATE groups SET last_seen = 0 WHERE fingerprint = 'group 3'": {"group group 3, last seen"},
    "DELETE FROM groups WHERE fingerprint = 'group 4'": {
        "group group 4, pending",
        "group group 4, first seen",
        "group group 4, last seen",
        *(f"group group 4, hour 2025-01-01 {hour}:00" for hour in range(12, 19)),
    },
}


@pytest.mark.parametrize("wrong", WRONGS)
def test_a_wrong_count_is_found_and_put_right(store: Letters, tmp_path: Path, wrong: str) -> None:
    fill(store, 100)
    tidy(store)
    right = store.groups(order=GroupOrder.COUNT), store.tally(Field.STATUS), store.tally(Field.SOURCE)
    falsify(tmp_path, wrong)
    assert {one.what for one in store.recount()} == WRONGS[wrong]
    assert {one.what for one in store.recount(repair=True)} == WRONGS[wrong]
    assert store.recount() == []
    tidy(store)
    assert store.recount() == []
    assert (store.groups(order=GroupOrder.COUNT), store.tally(Field.STATUS), store.tally(Field.SOURCE)) == right


def test_a_wrong_count_keeps_no_letter_from_being_held(store: Letters, tmp_path: Path) -> None:
    fill(store, 20)
    tidy(store)
    falsify(tmp_path, "UPDATE groups SET pending = pending + 1 WHERE fingerprint = 'group 1'")
    gone = store.purge(Is(Field.GROUP, "group 1"))
    for number in range(100):
        store.put([letter(f"later {number}")])
    tidy(store)
    assert len(gone) == 4
    assert store.count() == 20 - 4 + 100
    assert {one.what for one in store.recount(repair=True)} >= {"group group 1, pending"}
    assert store.recount() == []


def test_a_miscount_tells_what_is_kept_and_what_is_there(store: Letters, tmp_path: Path) -> None:
    fill(store, 100)
    tidy(store)
    falsify(tmp_path, "UPDATE counts SET count = 7 WHERE facet = 'all'")
    (wrong,) = store.recount()
    assert (wrong.kept, wrong.real) == (7, 100)
    assert store.count() == 7


def test_counts_are_put_right_while_others_write(store: Letters, tmp_path: Path) -> None:
    fill(store, 2000)
    tidy(store)
    falsify(
        tmp_path, "UPDATE counts SET count = count + 3 WHERE facet = 'all'", "DELETE FROM groups WHERE fingerprint = 'group 4'"
    )
    is_over = False

    def write() -> int:
        written = 2000
        while not is_over:
            fill(store, 20, start=written)
            written += 20
            store.purge(Is(Field.GROUP, "group 4"), limit=3)
        return written

    with ThreadPoolExecutor() as pool:
        writer = pool.submit(write)
        assert store.recount(repair=True)
        is_over = True
        assert writer.result() > 2000
    assert store.recount() == []


def test_what_is_noted_and_not_summed_up_is_in_every_answer(store: Letters, tmp_path: Path) -> None:
    for number in range(10):
        fill(store, 10, start=10 * number)
    noted = (store.tidy(0)).counts
    assert noted == 10
    answers = [
        store.count(),
        store.tally(Field.GROUP),
        store.groups(),
        store.groups(order=GroupOrder.COUNT),
    ]
    tidy(store)
    assert (store.tidy(0)).counts == 0
    assert [
        store.count(),
        store.tally(Field.GROUP),
        store.groups(),
        store.groups(order=GroupOrder.COUNT),
    ] == answers


def test_notes_do_not_pile_up(store: Letters, tmp_path: Path) -> None:
    for number in range(150):
        fill(store, 1, start=number)
        assert (store.tidy(0)).counts < 64
    assert store.recount() == []


def test_space_is_given_back_when_letters_are_gone(store: Letters, tmp_path: Path) -> None:
    path = tmp_path / "letters.db"
    store.put([letter(str(number), body=b"x" * 20_000) for number in range(500)])
    full = size(path)
    assert full > 500 * 20_000
    assert len(store.purge(Is(Field.SOURCE, "orders"), limit=1000)) == 500
    assert (store.tidy(0)).space > 9_000_000
    tidy(store)
    assert size(path) < full / 5


def test_a_number_that_was_used_before_is_indexed_for_the_letter_that_has_it_now(store: Letters, tmp_path: Path) -> None:
    store.put([letter("first", body=b"old words")])
    tidy(store)
    store.purge(Is(Field.SOURCE_ID, "first"))
    store.put([letter("second", body=b"new words")])
    assert (store.find(Text("new words", Where.BODY))).unsearched == 1
    tidy(store)
    assert [one.source_id for one in (store.find(Text("words", Where.BODY))).letters] == ["second"]
    assert (store.find(Text("old", Where.BODY))).letters == ()
