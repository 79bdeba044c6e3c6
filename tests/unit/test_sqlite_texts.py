"""The index of tracebacks and bodies on SQLite: what it finds while letters come, change and go, and how it is made anew."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import redrive.blocking
from redrive.backends.sqlite import sifting, texts, upkeep
from redrive.blocking import Letters
from redrive.model.amendment import Amended, Amendment
from redrive.model.letter import Letter
from redrive.model.query import EVERYTHING, And, Field, Is, Not, Order, Query, Text
from redrive.model.status import Act, Status
from redrive.model.texts import Where
from redrive.testing import failure, letter

WORDS = ("amber", "birch", "cedar", "denim", "ebony")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Letters]:
    monkeypatch.setattr(texts, "_FEW_GHOSTS", 3)
    with redrive.blocking.open(f"sqlite:{tmp_path / 'letters.db'}") as dlq:
        yield dlq.letters


def test_large_texts_are_indexed_a_few_at_a_time(store: Letters) -> None:
    """Who captures meanwhile waits for one step."""
    large = b"heron " + bytes(700_000)
    store.put([letter(str(number), body=large) for number in range(3)])
    assert [store.tidy(10).texts for _ in range(3)] == [2, 1, 0]
    store.amend([Amendment(id=letter(str(number)).id, body=large + b"!") for number in range(3)])
    assert [store.tidy(10).texts for _ in range(3)] == [2, 1, 0]
    assert store.count(Text("heron", Where.BODY)) == 3


def test_a_body_that_stays_the_same_is_not_written_again(tmp_path: Path) -> None:
    with redrive.blocking.open(f"sqlite:{tmp_path / 'letters.db'}") as dlq:
        dlq.letters.put([letter(body=bytes(900_000))])
    with redrive.blocking.open(f"sqlite:{tmp_path / 'letters.db'}") as dlq:
        log = tmp_path / "letters.db-wal"
        assert dlq.letters.amend([Amendment(id=letter().id, act=Act.ARCHIVE)]) == [Amended.DONE]
        assert log.stat().st_size < 100_000
        assert dlq.letters.amend([Amendment(id=letter().id, metadata={"seen": 1})]) == [Amended.DONE]
        # What is equal need not be the same.
        assert dlq.letters.amend([Amendment(id=letter().id, metadata={"seen": True})]) == [Amended.DONE]
        (found,) = dlq.letters.get([letter().id])
        assert found is not None
        assert (found.status, found.metadata["seen"] is True) == (Status.ARCHIVED, True)


class Book:
    """Does something to a store, and knows what its letters say."""

    def __init__(self, store: Letters, seed: int) -> None:
        self.store = store
        self.chance = random.Random(seed)
        self.known: dict[str, Letter] = {}
        self.made = self.turned = 0

    def put(self) -> None:
        new = [self._new() for _ in range(self.chance.randint(1, 8))]
        self.store.put(new)
        self.known |= {one.source_id: one for one in new}

    def change(self) -> None:
        if self.known:
            one = self.chance.choice(list(self.known.values()))
            body = self._body()
            assert self.store.amend([Amendment(id=one.id, body=body)]) == [Amended.DONE]
            self.known[one.source_id] = letter(one.source_id, body=body)

    def purge(self) -> None:
        some = self.chance.sample(list(self.known.values()), self.chance.randint(0, len(self.known)))
        gone = self.store.purge(EVERYTHING, limit=len(some), among=[one.id for one in some]) if some else []
        assert len(gone) == len(some)
        for one in some:
            del self.known[one.source_id]

    def tidy(self) -> None:
        self.store.tidy(self.chance.randint(1, 6))

    def check(self) -> None:
        """Nothing is found that is not there; what is not found is told of."""
        for word in WORDS:
            for query in (
                Text(word, Where.BODY),
                Text(word, Where.ANYWHERE),
                And((Text(word, Where.BODY), Is(Field.SOURCE, "orders"))),
            ):
                self._check(query, word)
            # As it is looked for in one letter after another.
            self._check(Not(Not(Text(word, Where.BODY))), word)
        self._turn_pages(And((Text(self.chance.choice(WORDS), Where.BODY), Text("no answer", Where.ANYWHERE))))

    def _turn_pages(self, query: Query) -> None:
        """Page by page there is what there is at once."""
        order = self.chance.choice([Order.NEWEST, Order.OLDEST, Order.UPDATED])
        after, turned = None, []
        while True:
            page = self.store.find(query, order=order, limit=2, after=after)
            turned += page.letters
            if (after := page.next) is None:
                break
        assert turned == list(self.store.find(query, order=order, limit=1000).letters)
        self.turned += len(turned)

    def _check(self, query: Query, word: str) -> None:
        page = self.store.find(query, limit=1000)
        found = {one.source_id for one in page.letters}
        there = {name for name, one in self.known.items() if word.encode() in one.body}
        assert found <= there
        assert len(there - found) <= page.unsearched
        assert 0 <= page.unsearched <= len(self.known)

    def _new(self) -> Letter:
        self.made += 1
        return letter(str(self.made), body=self._body())

    def _body(self) -> bytes:
        return " ".join(self.chance.sample(WORDS, 2)).encode()


@pytest.mark.parametrize("seed", range(12))
def test_what_is_found_is_there_and_what_is_not_found_is_told_of(
    store: Letters, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        monkeypatch.setattr(texts, "FEW", 0)  # every word is common: letters are gone through in their order
        monkeypatch.setattr(sifting, "_LEAST", 1)
        monkeypatch.setattr(sifting, "_TIMES", 1)
        monkeypatch.setattr(sifting, "_GAP", 3)
    book = Book(store, seed)
    deeds = [book.put, book.put, book.change, book.purge, book.tidy, book.tidy, book.tidy]
    for _ in range(80):
        book.chance.choice(deeds)()
        book.check()
    while store.tidy(5):
        pass
    assert (store.find(Text("amber", Where.BODY))).unsearched == 0
    book.check()
    assert book.turned


def test_an_index_of_letters_that_are_gone_is_made_anew_while_it_is_searched(store: Letters, tmp_path: Path) -> None:
    store.put([letter(str(number), body=f"common word{number}".encode()) for number in range(40)])
    while store.tidy(100):
        pass
    gone = store.purge(EVERYTHING, limit=30)
    assert len(gone) == 30
    assert store.tidy(0).texts == 10, "all that are left are to be indexed anew"
    assert store.tidy(3).texts == 7, "of the ten that are left, three are in the new index"
    for _ in range(2):
        page = store.find(Text("common", Where.BODY))
        assert (len(page.letters), page.unsearched) == (10, 0)
        while store.tidy(3):
            pass
    with sqlite3.connect(tmp_path / "letters.db") as connection:
        assert connection.execute("SELECT letters, ghosts, former, former_letters FROM indexed").fetchone() == (10, 0, 0, 0)
        assert connection.execute("SELECT count(*) FROM former_texts_data WHERE id > 10").fetchone() == (0,)
        connection.execute("INSERT INTO letter_texts (letter_texts) VALUES ('integrity-check')")
        connection.execute("INSERT INTO former_texts (former_texts) VALUES ('integrity-check')")


def test_texts_are_searched_while_what_is_left_of_an_index_is_removed_page_by_page(
    store: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_PAGES", 2)
    store.put(
        [letter(str(number), body=f"common {' '.join(f'w{number}x{at}' for at in range(300))}".encode()) for number in range(40)]
    )
    while store.tidy(100).texts:
        pass
    store.purge(EVERYTHING, limit=30)
    steps = 0
    while store.tidy(100):
        steps += 1
        page = store.find(And((Text("common", Where.BODY), Not(Text("rare", Where.TRACEBACK)))))
        assert (len(page.letters), page.unsearched) == (10, 0)
    assert steps > 5


def test_messages_are_merged_a_little_at_a_time(store: Letters, tmp_path: Path) -> None:
    for number in range(600):
        store.put([letter(str(number), failure=failure(message=f"no answer to request {number}"))])
    ids = [one.id for one in store.find(limit=300).letters]
    for id in ids:
        assert store.purge(EVERYTHING, limit=1, among=[id])
    with sqlite3.connect(tmp_path / "letters.db") as connection:
        (parts,) = connection.execute("SELECT count(DISTINCT segid) FROM message_words_idx").fetchone()
        assert parts < 64, "each of 900 transactions has added one; SQLite itself would merge, all at once, at 64 of a kind"
        connection.execute("INSERT INTO message_words (message_words, rank) VALUES ('integrity-check', 1)")
    left = store.find(Text("no answer to request"), limit=1000).letters
    assert len(left) == 300
    for one in left[::50]:
        assert [found.id for found in store.find(Text(one.failure.message)).letters] == [one.id]


def test_messages_are_found_on_every_shelf(store: Letters, tmp_path: Path) -> None:
    """The index numbers its words by shelves of 131,072 letters; here a letter lies on each of a few, far apart."""
    shelves, said = (0, 1, 2, 700), failure(message="no answer from birch, or cedar")
    for shelf in shelves:
        if shelf:
            with sqlite3.connect(tmp_path / "letters.db") as connection:
                connection.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'letters'", [shelf << 17])
        store.put([letter(f"{shelf}", failure=said), letter(f"other of {shelf}", failure=failure(message="birch or no cedar"))])

    def found(query: Query) -> set[str]:
        return {one.source_id for one in store.find(query).letters}

    everywhere = {str(shelf) for shelf in shelves}
    assert found(Text("BIRCH or cedar")) == everywhere
    assert found(Text("cedar")) == everywhere | {f"other of {shelf}" for shelf in shelves}
    assert found(And((Text("cedar"), Not(Text("answer"))))) == {f"other of {shelf}" for shelf in shelves}
    assert found(Text("0")) == found(Text("cedar 0")) == found(Text("cedar_0")) == set(), "a shelf's number is not a word"
    (gone,) = store.purge(And((Is(Field.SOURCE_ID, "0"), Text("answer"))))
    assert gone.source_id == "0"
    assert found(Text("birch or cedar")) == everywhere - {"0"}
    with sqlite3.connect(tmp_path / "letters.db") as connection:
        connection.execute("INSERT INTO message_words (message_words, rank) VALUES ('integrity-check', 1)")
