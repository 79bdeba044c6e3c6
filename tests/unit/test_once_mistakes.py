"""Mistakes with `redrive.once`: each is told in one sentence, and leaves no receipt behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import redrive
from redrive import BadSettings, Message
from tests.unit.databases import BLOCKING, POSTGRES, Shop, message


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(getattr(request, "param", "sqlite"), tmp_path)
    yield shop
    shop.drop()


@pytest.mark.parametrize("shop", BLOCKING, indirect=True)
def test_a_connection_that_is_in_a_transaction_is_refused_and_left_as_it_is(shop: Shop) -> None:
    with closing(shop.connection()) as db:

        @redrive.once(db)
        def ship(message: Message, db: Any) -> None:
            shop.write(db, "x")

        shop.write(db, "before")
        with pytest.raises(BadSettings, match="in a transaction already"):
            ship(message())
        db.commit()
        ship(message())
    assert shop.rows() == ["before", "x"]


def test_a_handler_that_ends_the_transaction_itself_is_told(shop: Shop) -> None:
    @redrive.once(shop.opened, name="ship")
    def ship(message: Message, db: Any) -> None:
        shop.write(db, "x")
        db.commit()
        shop.write(db, "y")

    with pytest.raises(BadSettings, match="'ship' ended the transaction that its receipt belongs to"):
        ship(message())
    assert shop.rows() == ["x"]
    assert shop.rows("sqlite_master", "name").count("redrive_receipts") == 1
    assert shop.receipts == []


@POSTGRES
@pytest.mark.parametrize("shop", ["psycopg"], indirect=True)
def test_so_it_is_on_postgresql(shop: Shop) -> None:
    @redrive.once(shop.opened, name="ship")
    def ship(message: Message, db: Any) -> None:
        shop.write(db, "x")
        db.execute("COMMIT")

    with pytest.raises(BadSettings, match="'ship' ended the transaction that its receipt belongs to"):
        ship(message())

    @redrive.once(shop.opened, name="bill")
    def bill(message: Message, db: Any) -> None:
        db.commit()

    with pytest.raises(psycopg.ProgrammingError, match="commit"):
        bill(message())
    assert shop.receipts == [("ship", "1")]


@pytest.mark.parametrize("shop", [pytest.param("psycopg", marks=POSTGRES)], indirect=True)
def test_a_connection_needs_a_handler_of_its_kind(shop: Shop) -> None:
    def blocking(message: Message, db: Any) -> None: ...

    async def coroutine(message: Message, db: Any) -> None: ...

    with closing(shop.connection()) as db, pytest.raises(BadSettings, match=r"psycopg\.Connection needs a plain function"):
        redrive.once(db)(coroutine)

    async def story() -> None:
        async with await shop.async_connection() as db:
            with pytest.raises(BadSettings, match=r"psycopg\.AsyncConnection needs a coroutine function"):
                redrive.once(db)(blocking)
            with pytest.raises(BadSettings, match="needs a coroutine function"):
                redrive.once(lambda: db)(blocking)(message())

    asyncio.run(story())


def test_what_is_no_connection_is_told_at_once(shop: Shop) -> None:
    with pytest.raises(BadSettings, match=r"cannot use a str; give it a connection \(asyncpg"):
        redrive.once("shop.db")
    with pytest.raises(BadSettings, match=r"use @dlq.once\(\)"):
        redrive.once(redrive.open("memory:"))
    with pytest.raises(BadSettings, match="keep must be a timedelta longer than nothing, got 30"):
        redrive.once(shop.opened, keep=30)  # type: ignore[arg-type]

    @redrive.once(lambda: "shop.db")
    def ship(message: Message, db: Any) -> None: ...

    with pytest.raises(BadSettings, match="cannot use a str"):
        ship(message())


def test_a_handler_that_has_no_place_for_the_connection_is_told(shop: Shop) -> None:
    once = redrive.once(shop.opened)
    with pytest.raises(BadSettings, match=r"must take the connection as its last parameter: def ship\(message, connection\)"):

        @once
        def ship(message: Message) -> None: ...

    with pytest.raises(BadSettings, match="as its last parameter"):

        @once
        def switched(db: Any, message: Message) -> None: ...

    with pytest.raises(BadSettings, match="is a generator"):

        @once
        def generated(message: Message, db: Any) -> Iterator[int]:
            yield 1

    with pytest.raises(BadSettings, match="name for its receipts"):
        redrive.once(shop.opened, name="two\nlines")(lambda message, db: None)


def test_a_plain_function_that_gives_a_coroutine_is_told(shop: Shop) -> None:
    async def work() -> None: ...

    @redrive.once(shop.opened)
    def ship(message: Message, db: Any) -> Any:
        return work()

    with pytest.raises(BadSettings, match="make it an async def"):
        ship(message())
    assert shop.receipts == []


def test_a_delivery_without_identity_is_refused_by_name(shop: Shop) -> None:
    @redrive.once(shop.opened, name="ship")
    def ship(order: Any, db: Any) -> None:
        shop.write(db, "x")

    for delivery in ({"order": 1}, message(None), message("")):
        with pytest.raises(BadSettings, match=r"'ship' works once, but nothing identifies this delivery.*key="):
            ship(delivery)
    assert shop.rows() == []


def test_a_handler_that_calls_another_on_its_own_connection_is_told_and_does_not_wait_for_itself(shop: Shop) -> None:
    with closing(shop.connection()) as db:
        once = redrive.once(db)

        @once
        def pack(message: Message, db: Any) -> None: ...

        @once
        def ship(message: Message, db: Any) -> None:
            pack(message)

        with pytest.raises(BadSettings, match="in a transaction already"):
            ship(message())

        @once
        async def pack_async(message: Message, db: Any) -> None: ...

        @once
        async def ship_async(message: Message, db: Any) -> None:
            await asyncio.gather(pack_async(message))

        async def story() -> None:
            async with asyncio.timeout(20):
                with pytest.raises(BadSettings, match="in a transaction already"):
                    await ship_async(message())
                await pack_async(message())

        asyncio.run(story())
        pack(message("2"))
    assert len(shop.receipts) == 2
