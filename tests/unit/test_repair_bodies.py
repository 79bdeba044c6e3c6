"""Repairs of bodies that lie in files, grow too large, or were redacted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from redrive import Amendment, Message, Redaction
from redrive.engine.alter import by_function, by_hand
from redrive.ports import LetterStore
from tests.contract.backends import memory_letters, sqlite_letters
from tests.unit.repair_use import EUROS, JSON, found, house, orders, reasons, repaired, tell, undone


@pytest.fixture(params=[memory_letters, sqlite_letters], ids=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LetterStore:
    opened: LetterStore = request.param(tmp_path)
    return opened


def test_large_bodies_in_files_are_repaired_and_put_back(store: LetterStore, tmp_path: Path) -> None:
    async def story() -> None:
        async with house(store, tmp_path / "bodies") as dlq:
            large = msgspec.json.encode({"currency": "ATS", "notes": ["x" * 500]})
            await dlq.capture(Message(body=large, content_type=JSON, id="1"), ValueError("bad"), source="orders")
            assert (await repaired(dlq, EUROS)).done == 1
            one = await found(dlq, "1")
            assert one.body_ref is not None
            assert await dlq.body(one) == large.replace(b"ATS", b"EUR")
            shrunk = by_function(lambda value: {"currency": "EUR"})
            assert (await repaired(dlq, shrunk)).done == 1
            assert (await found(dlq, "1")).body == b'{"currency":"EUR"}'
            assert (await undone(dlq)).done == 1
            back = await found(dlq, "1")
            assert await dlq.body(back) == large
            assert (await undone(dlq)).unchanged == 1

    tell(story())


def test_a_body_that_grows_over_the_limit_without_a_folder_is_refused(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put(orders(3))
            became = await repaired(dlq, by_function(lambda value, letter: ["x" * 500] if letter.source_id == "1" else []))
            assert became.done == 2
            assert reasons(became) == {"the new body has 504 bytes, the limit is 200; raise body_limit": 1}
            assert (await found(dlq, "1")).original is None

    tell(story())


def test_what_the_rules_would_redact_is_refused_before_anything_is_done(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store, redaction=Redaction(presets=("emails",))) as dlq:
            await store.put(orders(1))
            became = await repaired(dlq, by_function(lambda value: value | {"mail": "ann@example.org"}))
            (reason,) = reasons(became)
            assert reason.startswith("the new body would be redacted, and then could not be sent")
            assert await dlq.desk.audit() == []

    tell(story())


def test_marks_of_redaction_must_be_mended_and_do_not_come_back(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store, redaction=Redaction(presets=("emails",))) as dlq:
            message = Message(body=b'{"mail": "ann@example.org", "currency": "ATS"}', content_type=JSON, id="1")
            await dlq.capture(message, ValueError("bad"), source="orders")
            assert (await found(dlq, "1")).redacted == ("body",)
            (reason,) = reasons(await repaired(dlq, EUROS))
            assert reason.startswith("its new body still has a mark where something was redacted")
            assert (await repaired(dlq, by_hand(headers=[("h", b"1")]))).done == 1
            assert (await repaired(dlq, by_function(lambda value: {"mail": None}))).done == 1
            assert (await found(dlq, "1")).redacted == ()
            (reason,) = reasons(await undone(dlq))
            assert reason.endswith("put back, it would be sent with the marks")

    tell(story())


def test_a_header_that_was_mended_does_not_come_back_as_a_mark(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store, redaction=Redaction(headers=("x-token",))) as dlq:
            message = Message(body=b"{}", content_type=JSON, id="1", headers=(("X-Token", b"secret"),))
            await dlq.capture(message, ValueError("bad"), source="orders")
            one = await found(dlq, "1")
            await dlq.amend(Amendment(id=one.id, headers=(("X-Token", b"new"),)), as_given=True)
            (reason,) = reasons(await undone(dlq))
            assert reason.startswith("its headers.x-token was redacted when it came")

    tell(story())
