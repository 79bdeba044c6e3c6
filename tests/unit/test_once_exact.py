"""`redrive.once` on the handler's own database: effect and receipt are there together, or neither is."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive import BadSettings, Message
from tests.unit.databases import ASYNC, BLOCKING, POSTGRES, Shop, message
from tests.unit.test_blocking import in_threads
from tests.unit.waiting import until


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(getattr(request, "param", "sqlite"), tmp_path)
    yield shop
    shop.drop()


blocking_drivers = pytest.mark.parametrize("shop", BLOCKING, indirect=True)
async_drivers = pytest.mark.parametrize("shop", ASYNC, indirect=True)


@blocking_drivers
def test_a_second_delivery_is_not_worked_again(shop: Shop) -> None:
    @redrive.once(shop.opened, name="ship")
    def ship(message: Message, db: Any) -> str:
        shop.write(db, str(message.id))
        return "shipped"

    assert ship(message("1")) == "shipped"
    assert ship(message("1")) is None
    assert ship(message=message("2")) == "shipped"
    assert shop.rows() == ["1", "2"]
    assert shop.receipts == [("ship", "1"), ("ship", "2")]


@async_drivers
def test_it_is_the_same_for_coroutine_functions(shop: Shop) -> None:
    async def story() -> None:
        async with shop.where() as where:

            @redrive.once(where, name="ship")
            async def ship(message: Message, db: Any) -> str:
                await shop.write_async(db, str(message.id))
                return "shipped"

            assert await ship(message("1")) == "shipped"
            assert await ship(message("1")) is None
            assert await ship(message("2")) == "shipped"

    asyncio.run(story())
    assert shop.rows() == ["1", "2"]
    assert shop.receipts == [("ship", "1"), ("ship", "2")]


@blocking_drivers
def test_what_fails_leaves_neither_effect_nor_receipt_and_works_later(shop: Shop) -> None:
    is_down = True

    @redrive.once(shop.opened)
    def ship(message: Message, db: Any) -> str:
        shop.write(db, str(message.id))
        if is_down:
            raise ConnectionError("down")
        return "shipped"

    with pytest.raises(ConnectionError, match="down"):
        ship(message())
    assert shop.rows() == []
    is_down = False
    assert ship(message()) == "shipped"
    assert shop.rows() == ["1"]


@async_drivers
def test_so_does_a_coroutine_function_also_when_it_is_cancelled(shop: Shop) -> None:
    async def story() -> None:
        async with shop.where() as where:
            has_begun = asyncio.Event()
            error: Exception | None = ConnectionError("down")

            @redrive.once(where)
            async def ship(message: Message, db: Any) -> str:
                await shop.write_async(db, str(message.id))
                has_begun.set()
                if error is not None:
                    raise error
                await asyncio.sleep(0 if is_quick else 3600)
                return "shipped"

            is_quick = False
            with pytest.raises(ConnectionError):
                await ship(message())
            error = None
            has_begun.clear()
            task = asyncio.create_task(ship(message()))
            await has_begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert shop.rows() == []
            is_quick = True
            assert await ship(message()) == "shipped"

    asyncio.run(story())
    assert shop.rows() == ["1"]


@blocking_drivers
def test_many_threads_that_get_the_same_deliveries_work_each_once(shop: Shop) -> None:
    shop.connection().close()

    @redrive.once(shop.opened)
    def ship(message: Message, db: Any) -> str:
        shop.write(db, str(message.id))
        return "shipped"

    worked: list[str] = []

    def work(number: int) -> None:
        for turn in range(10):
            id = str((turn + number) % 10)
            if ship(message(id)) is not None:
                worked.append(id)

    in_threads(8, work)
    assert shop.rows() == sorted(worked) == [str(number) for number in range(10)]


@async_drivers
def test_many_tasks_that_get_the_same_deliveries_work_each_once(shop: Shop) -> None:
    async def story() -> int:
        async with shop.where() as where:

            @redrive.once(where)
            async def ship(message: Message, db: Any) -> str:
                await shop.write_async(db, str(message.id))
                await asyncio.sleep(0)
                return "shipped"

            answers = await asyncio.gather(*(ship(message(str(number % 5))) for number in range(40)))
            return answers.count("shipped")

    assert asyncio.run(story()) == 5
    assert shop.rows() == [str(number) for number in range(5)]


@async_drivers
def test_tasks_take_turns_on_one_connection(shop: Shop) -> None:
    async def story() -> None:
        async with shop.where() as where, where() as db:

            @redrive.once(db)
            async def ship(message: Message, db: Any) -> str:
                await asyncio.sleep(0)
                await shop.write_async(db, str(message.id))
                return "shipped"

            answers = await asyncio.gather(*(ship(message(str(number % 5))) for number in range(20)))
            assert answers.count("shipped") == 5

    asyncio.run(story())
    assert shop.rows() == [str(number) for number in range(5)]


@blocking_drivers
def test_threads_take_turns_on_one_connection(shop: Shop) -> None:
    with closing(shop.connection(**({"check_same_thread": False} if shop.driver == "sqlite" else {}))) as db:

        @redrive.once(db)
        def ship(message: Message, db: Any) -> None:
            shop.write(db, str(message.id))

        in_threads(4, lambda number: [ship(message(str(id))) for id in range(5)] and None)
    assert shop.rows() == [str(number) for number in range(5)]


@async_drivers
def test_whoever_comes_second_waits_and_works_when_the_first_fails(shop: Shop) -> None:
    async def story() -> None:
        async with shop.where() as where:
            calls: list[str] = []
            may_fail = asyncio.Event()

            @redrive.once(where)
            async def ship_as(message: Message, who: str, db: Any) -> str:
                calls.append(who)
                await shop.write_async(db, who)
                if who == "first":
                    await may_fail.wait()
                    raise ConnectionError("down")
                return who

            first = asyncio.create_task(ship_as(message(), "first"))
            await until(lambda: calls == ["first"])
            second = asyncio.create_task(ship_as(message(), "second"))
            await asyncio.sleep(0)
            assert calls == ["first"]
            may_fail.set()
            with pytest.raises(ConnectionError):
                await first
            assert await second == "second"

    asyncio.run(story())
    assert shop.rows() == ["second"]


def test_two_handlers_of_one_message_do_not_hinder_each_other(shop: Shop) -> None:
    once = redrive.once(shop.opened)

    @once
    def ship(message: Message, db: Any) -> None:
        shop.write(db, "shipped")

    @once
    def bill(message: Message, db: Any) -> None:
        shop.write(db, "billed")

    for handler in (ship, bill, ship, bill):
        handler(message())
    assert shop.rows() == ["billed", "shipped"]
    assert {handler.rpartition(".")[2] for handler, _ in shop.receipts} == {"ship", "bill"}


def test_a_method_works_once_too(shop: Shop) -> None:
    class Consumer:
        @redrive.once(shop.opened, key="id")
        def ship(self, order: dict[str, str], db: Any) -> None:
            shop.write(db, order["id"])

    for _ in range(2):
        Consumer().ship({"id": "7"})
    assert shop.rows() == ["7"]


@pytest.mark.parametrize("key", ["meta.number", lambda order: order["meta"]["number"]])
def test_a_key_says_what_identifies_a_delivery(shop: Shop, key: Any) -> None:
    @redrive.once(shop.opened, name="ship", key=key)
    def ship(order: dict[str, Any], db: Any) -> None:
        shop.write(db, "x")

    for number in (1, 2, 1, 2):
        ship({"meta": {"number": number}})
    assert shop.receipts == [("ship", "1"), ("ship", "2")]
    with pytest.raises(BadSettings, match="key= gave None"):
        ship({"meta": {"number": None}})


def test_a_key_that_no_database_could_keep_is_kept_as_its_digest(shop: Shop) -> None:
    @redrive.once(shop.opened, key=lambda order: order)
    def ship(order: Any, db: Any) -> None:
        shop.write(db, "x")

    for order in ("a" * 10_000, "a" * 9_999 + "b", "nul\0", "\ud800", b"\xff"):
        ship(order)
        ship(order)
    assert len(shop.rows()) == 5
    assert all(len(key) < 100 for _, key in shop.receipts)


def test_a_message_that_was_sent_back_is_known_by_its_own_id_or_its_mark(shop: Shop) -> None:
    @redrive.once(shop.opened, name="ship")
    def ship(message: Message, db: Any) -> None:
        shop.write(db, "x")

    marks = (("redrive-id", b"0f4d7b4e-0000-8000-8000-000000000000"), ("redrive-generation", b"1"))
    source = ("redrive-source-id", b"1")
    for one in (
        message("1"),
        message("1", headers=(*marks, source)),
        message(None, headers=(*marks, source)),
        message(None, headers=marks),
        message("2", headers=(*marks, source)),
    ):
        ship(one)
    assert [key for _, key in shop.receipts] == ["0f4d7b4e-0000-8000-8000-000000000000", "1", "2"]


@blocking_drivers
def test_old_receipts_are_forgotten_those_of_others_are_not(shop: Shop) -> None:
    def ship(message: Message, db: Any) -> None:
        shop.write(db, "x")

    once = redrive.once(shop.opened, name="ship", keep=timedelta(days=30))(ship)
    once(message("1"))
    for handler, key in (("ship", "old"), ("bill", "old")):
        old = "datetime('now', '-31 days')" if shop.driver == "sqlite" else "now() - interval '31 days'"
        shop.do(f"INSERT INTO redrive_receipts (handler, key, at) VALUES ('{handler}', '{key}', {old})")
    once(message("2"))
    assert len(shop.receipts) == 4, "they are looked for once an hour"
    redrive.once(shop.opened, name="ship", keep=None)(ship)(message("3"))
    assert len(shop.receipts) == 5
    redrive.once(shop.opened, name="ship", keep=timedelta(days=30))(ship)(message("4"))
    assert shop.receipts == [("bill", "old"), ("ship", "1"), ("ship", "2"), ("ship", "3"), ("ship", "4")]


class AlwaysOpen(sqlite3.Connection):
    """As `autocommit=False` has it since Python 3.12: there is always a transaction."""

    autocommit = False

    def __init__(self, path: str) -> None:
        super().__init__(path, isolation_level=None)
        self.execute("BEGIN")

    def commit(self) -> None:
        self.execute("COMMIT")
        self.execute("BEGIN")

    def rollback(self) -> None:
        self.execute("ROLLBACK")
        self.execute("BEGIN")


@pytest.mark.parametrize("mode", [{"isolation_level": None}, {"isolation_level": "EXCLUSIVE"}, {"factory": AlwaysOpen}])
def test_every_mode_of_sqlite_will_do(tmp_path: Path, mode: dict[str, Any]) -> None:
    shop = Shop("sqlite", tmp_path)
    open = AlwaysOpen if "factory" in mode else lambda path: sqlite3.connect(path, **mode)
    calls: list[str] = []

    @redrive.once(lambda: closing(open(str(tmp_path / "shop.db"))))
    def ship(message: Message, db: sqlite3.Connection) -> None:
        db.row_factory = sqlite3.Row
        calls.append(str(message.id))
        shop.write(db, str(message.id))
        if message.id == "bad":
            raise ValueError("bad")

    def work(number: int) -> None:
        for id in range(5):
            ship(message(str(id)))

    in_threads(4, work)
    with pytest.raises(ValueError, match="bad"):
        ship(message("bad"))
    assert shop.rows() == [str(number) for number in range(5)]
    assert sorted(calls) == [*"01234", "bad"], "nobody began what another was working on"


def test_an_event_loop_does_not_wait_for_another_process_that_writes(shop: Shop) -> None:
    other = shop.sqlite(isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    async def story() -> None:
        @redrive.once(shop.opened)
        async def ship(message: Message, db: Any) -> None:
            shop.write(db, "x")

        task = asyncio.create_task(ship(message()))
        for _ in range(10):
            await asyncio.sleep(0.001)
        assert not task.done()
        other.execute("COMMIT")
        await task

        impatient = shop.sqlite(timeout=0)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            await redrive.once(impatient)(ship_once)(message("2"))
        assert impatient.execute("PRAGMA busy_timeout").fetchone() == (0,)
        impatient.close()

    async def ship_once(message: Message, db: Any) -> None:
        shop.write(db, "y")

    asyncio.run(story())
    other.close()
    assert shop.rows() == ["x"]


@pytest.mark.parametrize("shop", [pytest.param("psycopg", marks=POSTGRES)], indirect=True)
def test_many_who_make_the_table_at_once_all_find_it(shop: Shop) -> None:
    barrier = threading.Barrier(6)

    @redrive.once(shop.opened)
    def ship(message: Message, db: Any) -> None:
        shop.write(db, str(message.id))

    def work(number: int) -> None:
        barrier.wait(20)
        ship(message(str(number)))

    in_threads(6, work)
    assert shop.rows() == [*"012345"]
