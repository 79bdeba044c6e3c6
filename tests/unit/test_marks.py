"""Marks on a message are believed only when they can be true."""

from __future__ import annotations

from redrive import Held, Message, Status, blocking
from redrive.model.letter import headers
from redrive.model.message import REDRIVE_GENERATION, REDRIVE_ID, REDRIVE_SOURCE_ID

BAD = ValueError("bad")


def marked(body: bytes, *, redrive_id: object, generation: int, source_id: str | None = None, id: str | None = None) -> Message:
    marks: dict[str, object] = {REDRIVE_ID: redrive_id, REDRIVE_GENERATION: generation}
    if source_id is not None:
        marks[REDRIVE_SOURCE_ID] = source_id
    return Message(body=body, id=id, headers=headers(marks))


def test_a_mark_of_another_source_makes_a_letter_of_its_own() -> None:
    with blocking.open("memory:") as dlq:
        honest = dlq.capture(b"order", BAD, source="orders", id="o-1").letter
        forged = marked(b"evil", redrive_id=honest.id, generation=999_999, source_id="o-1")
        captured = dlq.capture(forged, BAD, source="public-webhook")
        assert captured.held is Held.NEW
        assert captured.letter.id != honest.id
        assert dlq.get(honest.id) == honest


def test_a_mark_without_its_source_id_is_believed_only_with_the_messages_own_id() -> None:
    with blocking.open("memory:") as dlq:
        first = dlq.capture(b"order", BAD, source="orders", id="o-1").letter
        assert dlq.capture(marked(b"order", redrive_id=first.id, generation=1), BAD, source="orders").held is Held.NEW
        again = marked(b"order", redrive_id=first.id, generation=1, id="o-1")
        assert dlq.capture(again, BAD, source="orders").held is Held.REOPENED


def test_a_generation_that_was_never_reached_counts_as_the_next() -> None:
    with blocking.open("memory:") as dlq:
        first = dlq.capture(b"order", BAD, source="orders", id="o-1").letter
        dlq.capture(marked(b"order", redrive_id=first.id, generation=999_999, id="o-1"), BAD, source="orders")
        assert dlq.get(first.id).generation == 2
        assert dlq.capture(b"order", BAD, source="orders", id="o-1").held is Held.ATTEMPT


def test_a_letter_that_is_reopened_with_other_content_keeps_the_original() -> None:
    with blocking.open("memory:") as dlq:
        first = dlq.capture(b"order", BAD, source="orders", id="o-1").letter
        dlq.redrive(lambda order: None, source="orders")
        assert dlq.get(first.id).status is Status.COMPLETED
        assert dlq.capture(b"another", BAD, source="orders", id="o-1").held is Held.REOPENED
        letter = dlq.get(first.id)
    assert letter.body == b"another"
    assert letter.original is not None
    assert letter.original.body == b"order"
