"""Holding: large bodies go to files and come back whole, or are refused; nothing is ever cut."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

import redrive
from redrive import BodyTooLarge, Held, Letter, Message, NotHeld, Policy, Status, StoreCorrupt, StoreError, blocking
from redrive.engine.extract import arguments
from redrive.model.amendment import Amended, Amendment
from redrive.model.query import EVERYTHING

LIMIT = 1_000
BAD = ValueError("bad")


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_BODY_LIMIT", str(LIMIT))


@pytest.fixture
def dlq(tmp_path: Path, small_limit: None) -> Iterator[blocking.DeadLetters]:
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as opened:
        yield opened


def files(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "redrive.db.bodies"
    return sorted(folder.iterdir()) if folder.exists() else []


def test_a_body_at_the_limit_stays_in_the_letter(dlq: blocking.DeadLetters, tmp_path: Path) -> None:
    dlq.capture(b"x" * LIMIT, BAD, source="orders")
    (letter,) = dlq.find()
    assert (letter.body, letter.body_ref, letter.body_size) == (b"x" * LIMIT, None, LIMIT)
    assert files(tmp_path) == []


def test_a_body_over_the_limit_lies_whole_in_a_file_beside_the_database(dlq: blocking.DeadLetters, tmp_path: Path) -> None:
    body = os.urandom(LIMIT + 1)
    dlq.capture(body, BAD, source="orders")
    (letter,) = dlq.find()
    (file,) = files(tmp_path)
    assert letter.body_ref is not None
    assert (letter.body, letter.body_size) == (b"", LIMIT + 1)
    assert (letter.body_ref.name, letter.body_ref.sha256) == (file.name, hashlib.sha256(body).hexdigest())
    assert file.read_bytes() == body
    assert dlq.body(letter) == body


def test_it_survives_another_opening(dlq: blocking.DeadLetters, tmp_path: Path) -> None:
    body = os.urandom(5 * LIMIT)
    id = dlq.capture(body, BAD, source="orders").letter.id

    async def later() -> bytes:
        async with redrive.open(f"sqlite:{tmp_path}/redrive.db") as again:
            return await again.body(await again.get(id))

    assert asyncio.run(later()) == body


def test_a_large_body_goes_back_as_it_came(dlq: blocking.DeadLetters) -> None:
    body = os.urandom(10 * LIMIT)
    received: list[bytes] = []
    dlq.capture(body, BAD, source="orders")
    report = dlq.redrive(received.append, query=EVERYTHING)
    assert report.entries == {"confirmed": 1}
    assert received == [body]


def test_a_large_call_goes_back_with_its_arguments(dlq: blocking.DeadLetters) -> None:
    received: list[object] = []

    @dlq.guard(source="orders", policy=Policy(max_attempts=1))
    def handle(text: str, *, number: int) -> None:
        received.append((text, number))
        if len(received) == 1:
            raise BAD

    handle("ü" * LIMIT, number=7)
    assert dlq.redrive(handle, query=EVERYTHING).entries == {"confirmed": 1}
    assert received == [("ü" * LIMIT, 7)] * 2


def test_a_store_without_a_folder_refuses_it_with_one_clear_sentence(small_limit: None) -> None:
    with blocking.open("memory:") as dlq:
        with pytest.raises(BodyTooLarge) as refused:
            dlq.capture(b"x" * (LIMIT + 1), BAD, source="orders", id="o-1")
        assert dlq.letters.count() == 0
    sentence = str(refused.value)
    assert "'o-1' from 'orders' has 1001 bytes, the limit is 1000" in sentence
    assert "raise body_limit" in sentence
    assert isinstance(refused.value, NotHeld)


def test_a_guard_over_such_a_store_raises_it_whatever_was_chosen(small_limit: None) -> None:
    with blocking.open("memory:") as dlq:
        for after in ("swallow", "raise", "verdict"):

            @dlq.guard(source="orders", after=after)
            def handle(order: bytes) -> None:
                raise BAD

            with pytest.raises(BodyTooLarge):
                handle(b"x" * (LIMIT + 1))


def test_a_batch_is_held_whole_or_not_at_all(small_limit: None) -> None:
    with blocking.open("memory:") as dlq:
        letters = [letter_with(b"small"), letter_with(b"x" * (LIMIT + 1))]
        with pytest.raises(BodyTooLarge):
            dlq.hold(letters)
        assert dlq.letters.count() == 0


def letter_with(body: bytes) -> Letter:
    with blocking.open("memory:") as elsewhere:
        return replace(elsewhere.capture(b"", BAD, source="orders").letter, body=body)


def test_holding_nothing_answers_nothing(dlq: blocking.DeadLetters, tmp_path: Path) -> None:
    assert dlq.hold([]) == []
    assert not (tmp_path / "redrive.db").exists()


def test_holding_the_same_large_letter_twice_keeps_one_file(dlq: blocking.DeadLetters, tmp_path: Path) -> None:
    letter = letter_with(b"y" * (2 * LIMIT))
    assert dlq.hold([letter]) == [Held.NEW]
    assert dlq.hold([letter]) == [Held.DUPLICATE]
    assert len(files(tmp_path)) == 1


def test_a_body_that_was_tampered_with_is_not_sent(dlq: blocking.DeadLetters, tmp_path: Path) -> None:
    dlq.capture(b"a" * (2 * LIMIT), BAD, source="orders", id="1")
    dlq.capture(b"b" * (2 * LIMIT), BAD, source="orders", id="2")
    (letter,) = [letter for letter in dlq.find() if letter.source_id == "1"]
    assert letter.body_ref is not None
    (tmp_path / "redrive.db.bodies" / letter.body_ref.name).write_bytes(b"c" * (2 * LIMIT))
    with pytest.raises(StoreCorrupt, match="is not what was kept"):
        dlq.body(letter)
    received: list[bytes] = []
    report = dlq.redrive(received.append, query=EVERYTHING)
    assert report.entries == {"confirmed": 1, "failed": 1}
    assert received == [b"b" * (2 * LIMIT)]
    assert {one.source_id: one.status for one in dlq.find()} == {"1": Status.PENDING, "2": Status.COMPLETED}


def test_a_body_that_is_missing_is_named(dlq: blocking.DeadLetters, tmp_path: Path) -> None:
    dlq.capture(b"a" * (2 * LIMIT), BAD, source="orders")
    (file,) = files(tmp_path)
    file.unlink()
    (letter,) = dlq.find()
    with pytest.raises(StoreError, match=file.name):
        dlq.body(letter)


def test_a_folder_that_cannot_be_made_means_not_held(dlq: blocking.DeadLetters, tmp_path: Path) -> None:
    (tmp_path / "redrive.db.bodies").write_text("a file is in the way")
    with pytest.raises(NotHeld, match=r"the body of message 'o-1' could not be kept: .*redrive\.db\.bodies"):
        dlq.capture(b"a" * (2 * LIMIT), BAD, source="orders", id="o-1")
    assert dlq.letters.count() == 0
    assert dlq.capture(b"small", BAD, source="orders", id="o-2").held is Held.NEW


def test_purging_takes_the_files_along(dlq: blocking.DeadLetters, tmp_path: Path) -> None:
    for number in range(5):
        dlq.capture(bytes([number]) * (2 * LIMIT), BAD, source="orders")
    assert len(files(tmp_path)) == 5
    assert dlq.purge(EVERYTHING, batch=2) == 5
    assert (files(tmp_path), dlq.letters.count()) == ([], 0)


def test_the_original_of_an_amended_large_body_stays(dlq: blocking.DeadLetters, tmp_path: Path) -> None:
    body = b"a" * (2 * LIMIT)
    id = dlq.capture(body, BAD, source="orders").letter.id
    assert dlq.letters.amend([Amendment(id=id, body=b"mended")]) == [Amended.DONE]
    letter = dlq.get(id)
    assert letter.original is not None
    assert dlq.body(letter) == b"mended"
    assert letter.original.body_ref is not None
    assert (files(tmp_path)[0]).read_bytes() == body
    dlq.purge(EVERYTHING)
    assert files(tmp_path) == []


def test_a_redriven_letter_that_is_reopened_with_another_large_body_keeps_the_latest(dlq: blocking.DeadLetters) -> None:
    first = dlq.capture(Message(body=b"1" * (2 * LIMIT), id="7"), BAD, source="orders")
    dlq.redrive(lambda body: None, query=EVERYTHING)
    again = dlq.capture(Message(body=b"2" * (2 * LIMIT), id="7"), BAD, source="orders")
    assert (first.held, again.held) == (Held.NEW, Held.REOPENED)
    assert dlq.body(dlq.get(first.letter.id)) == b"2" * (2 * LIMIT)


def test_headers_tags_and_ids_by_hand_are_kept(dlq: blocking.DeadLetters) -> None:
    message = Message(body=b"x", id="of the message", headers=(("a", b"1"),))
    letter = dlq.capture(
        message, BAD, source="orders", id="by hand", headers={"b": "2", "c": b"\xff"}, tags=["t"], metadata={"m": 1}
    ).letter
    assert letter.source_id == "by hand"
    assert letter.headers == (("a", b"1"), ("b", b"2"), ("c", b"\xff"))
    assert (letter.tags, letter.metadata) == (("t",), {"m": 1})
    assert arguments(message) is message
