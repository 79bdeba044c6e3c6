"""Kill -9 at every step of a handler that works once, until all is done. In the handler's own transaction each effect is there
exactly once; with the receipt apart at most once, and where nobody can know, that is recorded and said."""

from __future__ import annotations

import os
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, cast

import pytest

import redrive
from redrive import Message, OutcomeUnknown, Policy, blocking
from redrive.engine.dead_letters import DeadLetters
from redrive.model.receipt import ReceiptState, Which
from redrive.ports.desk import Desk
from redrive.testing import Harness, Kill, LawBroken
from redrive.testing.kill.harness import Life
from redrive.testing.kill.points import Visit, at, watched_desk
from redrive.testing.kit.samples import START, is_chaos
from redrive.wiring import store

DELIVERIES = ("0", "1", "2")
ENGINES = ["sqlite", pytest.param("postgres", marks=pytest.mark.engine("postgres"))]
_HOUR = timedelta(hours=1)

Handle = Callable[[Message], Any]


def points(*steps: str) -> list[str]:
    return [f"{moment} {step}" for step in steps for moment in ("before", "after")]


def on_both(all_points: list[str], telling: list[str]) -> list[Any]:
    """Every point on both engines; where there is little time, on PostgreSQL those that tell most."""
    postgres = pytest.mark.engine("postgres")
    chosen = all_points if is_chaos() else telling
    return [pytest.param("sqlite", one) for one in all_points] + [pytest.param("postgres", one, marks=postgres) for one in chosen]


def ensure(is_so: bool, complaint: str) -> None:
    if not is_so:
        raise LawBroken(complaint)


async def deliver(place: Path, handle: Handle, visit: Visit) -> None:
    """As a broker does: each message, even twice, and again in the next life unless it was acknowledged."""
    for id in DELIVERIES:
        if id in acknowledged(place):
            continue
        for _ in range(2):
            await handle(Message(body=b"x", id=id))
        visit("before acknowledge")
        append(place / "acknowledged", id)
        visit("after acknowledge")


def append(file: Path, id: str) -> None:
    with file.open("a") as lines:
        lines.write(f"{id}\n")


def lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def acknowledged(place: Path) -> set[str]:
    return set(lines(place / "acknowledged"))


def schema_of(place: Path) -> str:
    return f"once_{sha256(str(place).encode()).hexdigest()[:12]}"


@pytest.fixture
def schemas() -> Iterator[list[str]]:
    """Those that were made on PostgreSQL, to be dropped."""
    made: list[str] = []
    yield made
    if made:
        import psycopg  # a driver takes longer to load than a child lives: each loads only what it needs

        with closing(psycopg.connect(os.environ["REDRIVE_TEST_POSTGRES"], autocommit=True)) as db:
            for name in made:
                db.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())


# In the handler's own transaction

EXACT = points("begin", "effect", "receipt", "commit", "acknowledge")
_STEPS = {"BEGIN": "begin", "INSERT INTO effects": "effect", "INSERT INTO redrive_receipts": "receipt", "COMMIT": "commit"}


def step(statement: str) -> str:
    return next((name for begins, name in _STEPS.items() if statement.strip().startswith(begins)), "another statement")


class Shop(Protocol):
    """The handler's own database, whose statements are watched."""

    def handler(self, visit: Visit) -> Handle: ...

    def connected(self) -> Any: ...


class SqliteShop:
    def __init__(self, place: Path) -> None:
        self._path = str(place / "shop.db")

    def connected(self) -> Any:
        return sqlite3.connect(self._path)

    def handler(self, visit: Visit) -> Handle:
        class Cursor(sqlite3.Cursor):
            def execute(self, statement: str, *values: Any) -> Any:
                visit(f"before {step(statement)}")
                answer = super().execute(statement, *values)
                visit(f"after {step(statement)}")
                return answer

        class Connection(sqlite3.Connection):
            def cursor(self, factory: Any = Cursor) -> Any:
                return super().cursor(factory)

        @redrive.once(lambda: closing(sqlite3.connect(self._path, factory=Connection)), name="ship")
        async def ship(message: Message, db: sqlite3.Connection) -> None:
            db.cursor().execute("INSERT INTO effects VALUES (?)", [message.id])

        return ship


class PostgresShop:
    def __init__(self, place: Path) -> None:
        self._schema = schema_of(place)
        self._url = os.environ["REDRIVE_TEST_POSTGRES"]

    def connected(self) -> Any:
        import psycopg

        db = psycopg.connect(self._url, options=f"-c search_path={self._schema}")
        db.execute(f"CREATE SCHEMA IF NOT EXISTS {self._schema}".encode())
        return db

    def handler(self, visit: Visit) -> Handle:
        import asyncpg

        class Connection(asyncpg.Connection):
            async def execute(self, statement: str, *values: Any, **more: Any) -> Any:
                visit(f"before {step(statement)}")
                answer = await super().execute(statement, *values, **more)
                visit(f"after {step(statement)}")
                return answer

        @asynccontextmanager
        async def connected() -> AsyncIterator[Any]:
            settings = {"search_path": self._schema}
            db = await asyncpg.connect(self._url, connection_class=Connection, server_settings=settings)
            try:
                yield db
            finally:
                await db.close()

        @redrive.once(connected, name="ship")
        async def ship(message: Message, db: Any) -> None:
            await db.execute("INSERT INTO effects VALUES ($1)", message.id)

        return ship


def shop_of(engine: str, place: Path) -> Shop:
    return SqliteShop(place) if engine == "sqlite" else PostgresShop(place)


async def exactly(life: Life, visit: Visit, *, engine: str) -> None:
    await deliver(life.place, shop_of(engine, life.place).handler(visit), visit)


def is_exact(place: Path, is_over: bool, *, engine: str) -> None:
    """Effects and receipts are the same, each is there once, and what is acknowledged is among them."""
    with closing(shop_of(engine, place).connected()) as db:
        effects = [id for (id,) in db.execute("SELECT id FROM effects").fetchall()]
        receipts = [key for (key,) in db.execute("SELECT key FROM redrive_receipts").fetchall()]
    ensure(max(Counter(effects).values(), default=0) <= 1, f"an effect is there twice: {effects}")
    ensure(sorted(effects) == sorted(receipts), f"effects {effects} with receipts {receipts}")
    ensure(acknowledged(place) <= set(effects), "something was acknowledged without its effect")
    if is_over:
        ensure(sorted(effects) == list(DELIVERIES), f"only {effects} were worked")


def exact_harness(engine: str, place: Path, schemas: list[str]) -> Harness:
    place.mkdir(parents=True, exist_ok=True)
    if engine == "postgres":
        schemas.append(schema_of(place))
    with closing(shop_of(engine, place).connected()) as db:
        db.execute("CREATE TABLE effects (id TEXT)")
        # Made beforehand, so that it can be read whenever a child was killed.
        db.execute(
            "CREATE TABLE redrive_receipts (handler TEXT, key TEXT, at TEXT DEFAULT current_timestamp, UNIQUE (handler, key))"
        )
        db.commit()
    return Harness(place, partial(exactly, engine=engine), partial(is_exact, engine=engine))


@pytest.mark.parametrize(("engine", "point"), on_both(EXACT, ["before effect", "after effect", "before commit", "after commit"]))
def test_a_kill_in_the_transaction_costs_no_effect_and_doubles_none(
    tmp_path: Path, engine: str, point: str, schemas: list[str]
) -> None:
    for visit in range(1, 4) if is_chaos() else (2,):
        killed = exact_harness(engine, tmp_path / str(visit), schemas)
        assert killed.live(Kill(point, visit)), "this child was to be killed"
        assert killed.live() is False


@pytest.mark.parametrize("seed", range(20 if is_chaos() else 1))
@pytest.mark.parametrize("engine", ENGINES)
def test_kills_in_a_row_cost_none_either(tmp_path: Path, engine: str, seed: int, schemas: list[str]) -> None:
    dice = random.Random(seed)
    killed = exact_harness(engine, tmp_path, schemas)
    for _ in range(6 if is_chaos() else 3):
        if not killed.live(Kill(dice.choice(EXACT), dice.randint(1, 2))):
            break
    assert killed.live() is False
    assert killed.kills > 0


# Apart, on the desk

APART = points("begin", "effect", "end", "acknowledge")
BETWEEN = ("after begin", "before effect", "after effect", "before end")
"""Where nobody can know afterwards whether the effect is there."""


def url_of(engine: str, place: Path) -> str:
    if engine == "sqlite":
        return f"sqlite:{place}/redrive.db"
    return f"{os.environ['REDRIVE_TEST_POSTGRES']}?schema={schema_of(place)}"


async def apart(life: Life, visit: Visit, *, engine: str) -> None:
    """Each life is an hour after the one before, so that the time of the dead is over."""
    whole = store(url_of(engine, life.place))
    desk = watched_desk(cast("Desk", at(cast("Any", whole.desk), START + life.number * _HOUR)), visit)
    async with DeadLetters(whole.letters, desk) as dlq:

        @dlq.guard(source="orders", policy=Policy(max_attempts=1))
        @dlq.once(name="ship")
        async def ship(message: Message) -> None:
            visit("before effect")
            append(life.place / "effects", str(message.id))
            visit("after effect")

        await deliver(life.place, ship, visit)


def is_honest(place: Path, is_over: bool, *, engine: str) -> None:
    """No effect twice, none done without, and of the others it is known and said that nobody knows."""
    with blocking.open(url_of(engine, place)) as dlq:
        receipts = {one.key.removeprefix("orders/"): one.state for one in dlq.desk.receipts(Which(namespace="default"))}
        said = {letter.source_id: letter.failure.type for letter in dlq.find()}
    effects = Counter(lines(place / "effects"))
    ensure(max(effects.values(), default=0) <= 1, f"an effect is there twice: {effects}")
    ensure(set(effects) <= set(receipts), f"effects {effects} with receipts {receipts}")
    done = {id for id, state in receipts.items() if state is ReceiptState.DONE}
    ensure(done <= set(effects), f"{done - set(effects)} are done without their effect")
    for id in acknowledged(place):
        ensure(
            id in done or said.get(id, "").endswith(OutcomeUnknown.__name__), f"{id} was acknowledged, and nothing was said of it"
        )
    if is_over:
        unknown = {id for id, state in receipts.items() if state is ReceiptState.UNKNOWN}
        ensure(done | unknown == set(DELIVERIES), f"{receipts} at the end")
        ensure(set(said) == unknown, f"{unknown} are unknown, and {set(said)} are letters")


def apart_harness(engine: str, place: Path, schemas: list[str]) -> Harness:
    place.mkdir(parents=True, exist_ok=True)
    if engine == "postgres":
        schemas.append(schema_of(place))
    return Harness(place, partial(apart, engine=engine), partial(is_honest, engine=engine))


def unknown_of(engine: str, place: Path) -> list[str]:
    with blocking.open(url_of(engine, place)) as dlq:
        return [one.key for one in dlq.desk.receipts(Which(namespace="default", states=[ReceiptState.UNKNOWN]))]


@pytest.mark.parametrize(("engine", "point"), on_both(APART, ["before effect", "after effect", "before end", "after end"]))
def test_a_kill_between_effect_and_receipt_is_recorded_and_said(
    tmp_path: Path, engine: str, point: str, schemas: list[str]
) -> None:
    killed = apart_harness(engine, tmp_path, schemas)
    # The second delivery of a message begins too, and ends nothing.
    visit = 3 if point.endswith("begin") else 2
    assert killed.live(Kill(point, visit)), "this child was to be killed"
    assert killed.live() is False
    assert unknown_of(engine, tmp_path) == (["orders/1"] if point in BETWEEN else [])


@pytest.mark.parametrize("seed", range(20 if is_chaos() else 1))
@pytest.mark.parametrize("engine", ENGINES)
def test_kills_in_a_row_are_said_as_well(tmp_path: Path, engine: str, seed: int, schemas: list[str]) -> None:
    dice = random.Random(seed)
    killed = apart_harness(engine, tmp_path, schemas)
    for _ in range(6 if is_chaos() else 3):
        if not killed.live(Kill(dice.choice(APART), 1)):
            break
    assert killed.live() is False
    assert killed.kills > 0


@pytest.mark.parametrize(("way", "expected"), [(exact_harness, EXACT), (apart_harness, APART)])
def test_a_life_without_a_kill_passes_every_point(tmp_path: Path, way: Callable[..., Harness], expected: list[str]) -> None:
    unharmed = way("sqlite", tmp_path, [])
    assert unharmed.live() is False
    assert [point for point in expected if not unharmed.visits().get(point)] == []
