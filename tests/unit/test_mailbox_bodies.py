"""Bodies of mailboxes: what is sent comes out as it was, of the type that the mailbox has."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar
from uuid import UUID, uuid4

import pydantic
import pytest
from msgspec import Struct

from redrive.mailboxes import DeadLetter, SerializationError, message_of
from redrive.queues import item
from tests.unit.mailbox_use import Invoice, Order, one_of, used

T = TypeVar("T")


class Address(pydantic.BaseModel):
    street: str
    floor: int = 0


class Parcel(Struct, frozen=True):
    address: Address
    at: datetime
    weights: list[float] = []
    seal: bytes = b""


class Box(Struct, Generic[T], frozen=True):
    inside: T
    request_id: UUID | None = None


NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Order, Order(7, "fragile")),
        (Invoice, Invoice(7, ("a", "b"))),
        (Address, Address(street="Main", floor=3)),
        (Parcel, Parcel(address=Address(street="Main"), at=NOW)),
        (Parcel, Parcel(address=Address(street="Main"), at=NOW, weights=[1.5, float("inf")], seal=b"\xff\x00")),
        (Box[Order], Box(Order(1))),
        (Box[Address], Box(Address(street="Main"))),
        (str, "plain text, ünïcode"),
        (bytes, b"\xff\x00 raw"),
        (int, 7),
        (dict[str, int], {"a": 1}),
        (list[Order], [Order(1), Order(2)]),
        (Order | None, None),
        (Any, {"a": [1, None, "x"]}),
        (Any, "text"),
        (Any, b"\xff"),
        (Any, None),
        (Any, {"raw": b"\x00"}),
    ],
    ids=str,
)
def test_a_body_comes_out_as_it_was_sent(kind: Any, body: Any) -> None:
    async def whole() -> None:
        async with used("memory:") as use:
            box = use.place.mailbox("box", kind)
            await box.send(body)
            received = await one_of(box)
            assert received.body == body
            assert type(received.body) is type(body)

    asyncio.run(whole())


class Unwritable:
    pass


@pytest.mark.parametrize("body", [Unwritable(), {"deep": [Unwritable()]}, lambda: None])
def test_what_cannot_be_written_is_not_sent(body: Any) -> None:
    async def whole() -> None:
        async with used("memory:") as use:
            box = use.place.mailbox("box")
            with pytest.raises(SerializationError, match=r"cannot be written; give plain data, a msgspec struct"):
                await box.send(body)
            assert await box.approximate_count() == 0

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("kind", "payload", "encoding"),
    [
        (Order, b'{"number": "seven"}', "application/json"),
        (Order, b"\xff\xfe", ""),
        (Order, b"not JSON", "text/plain"),
        (Address, b'{"floor": 1}', "application/json"),
        (str, b"\xff\xfe", "text/plain"),
        (DeadLetter[Order], b'{"number": 7}', "application/json"),
    ],
    ids=str,
)
def test_a_body_of_another_kind_is_told_of_when_it_is_read_and_can_be_settled(kind: Any, payload: bytes, encoding: str) -> None:
    async def whole() -> None:
        async with used("memory:") as use:
            box = use.place.mailbox("box", kind)
            assert await box.approximate_count() == 0
            await use.queues.produce("box", [item(payload, encoding=encoding), item(b"after it")])
            bad, good = await box.receive(max_messages=2)
            with pytest.raises(SerializationError, match=rf"^Message '{bad.id}' of mailbox 'box' is no "):
                _ = bad.body
            assert bad.raw.body == payload, "the bytes are there as they came"
            await bad.acknowledge()
            await good.nack()
            assert await box.approximate_count() == 1

    asyncio.run(whole())


def test_json_that_somebody_else_put_there_without_saying_so_is_read_as_json() -> None:
    async def whole() -> None:
        async with used("memory:") as use:
            assert await use.orders().approximate_count() == 0
            await use.queues.produce("orders", [item('{"number": 7}')])
            assert (await one_of(use.orders())).body == Order(7)

    asyncio.run(whole())


def test_bodies_are_of_types_that_can_be_read() -> None:
    async def whole() -> None:
        async with used("memory:") as use:
            with pytest.raises(SerializationError, match=r"^bodies cannot be of type "):
                use.place.mailbox("box", dict[int, Order] | list[int] | set[str])

    asyncio.run(whole())


def test_the_id_of_a_request_goes_with_its_message() -> None:
    async def whole() -> None:
        async with used("memory:") as use:
            box, id = use.place.mailbox("box", Box[int]), uuid4()
            await box.send(Box(1, request_id=id), reply_to="answers")
            raw = message_of(await one_of(box))
            assert (raw.origin.request_id, raw.origin.reply_to, raw.origin.topic) == (str(id), "answers", "box")

    asyncio.run(whole())
