"""Counts that PostgreSQL keeps: always those of the letters, whoever writes, folds, asks or is killed at the same time."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import asyncpg
import pytest
from msgspec import json

from redrive.backends.postgres import PostgresLetters, opened
from redrive.model.amendment import Amendment
from redrive.model.census import Miscount
from redrive.model.lease import Claim, Due
from redrive.model.letter import Letter
from redrive.model.query import EVERYTHING, TALLIED, And, Field, GroupOrder, Is, Order, Query, Text
from redrive.model.settlement import Completed, Failed, Released, Settlement
from redrive.model.status import Act, Status
from redrive.model.texts import Where, body_words
from redrive.ports import LetterStore
from redrive.testing import START, letter
from redrive.testing.kill.children import children
from redrive.testing.kit.samples import LANE, attempt, failure, is_chaos
from redrive.testing.servers import Server
from tests.unit.postgres_use import PATIENCE_SECONDS, administrator, own_server, used
from tests.unit.waiting import until

pytestmark = pytest.mark.engine("postgres", own=True)

LEASE = timedelta(minutes=5)
HOUR = timedelta(hours=1)

Plan = dict[str, Any]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    yield from own_server()


@pytest.fixture
def url(server: Server, namespace: str) -> str:
    return f"{server.url}?schema={namespace}"


async def tidied(store: PostgresLetters) -> None:
    while await store.tidy():
        pass


async def is_exact(store: PostgresLetters) -> None:
    """Counts are those of the letters, before and after they are summed up."""
    assert await store.recount() == []
    before = await asked(store)
    await tidied(store)
    assert await store.recount() == []
    assert await asked(store) == before


async def asked(store: PostgresLetters) -> list[Any]:
    return [
        await store.count(),
        *[await store.tally(by) for by in (Field.STATUS, Field.SOURCE, Field.GROUP)],
        *[await store.groups(order=order, limit=1000) for order in GroupOrder],
    ]


LIES = {
    "too many of a source": (
        "UPDATE {schema}.counts SET count = count + 5 WHERE facet = 'source' AND value = 'orders' AND status = 'pending'",
        Miscount(what="source orders, pending", kept=11, real=6),
    ),
    "a status lost": (
        "DELETE FROM {schema}.counts WHERE facet = 'all' AND status = 'exhausted'",
        Miscount(what="all letters, exhausted", kept=0, real=3),
    ),
    "a value that is not there": (
        "INSERT INTO {schema}.counts SELECT {schema}.key_of(ARRAY['default', 'error', 'x.Y', 'pending']::text), 'default', 'error', 'x.Y', 'pending', 7",
        Miscount(what="error x.Y, pending", kept=7, real=0),
    ),
    "an hour too many": (
        "UPDATE {schema}.counts SET count = 10 WHERE facet = 'hour' AND status = 'pending'",
        Miscount(what="hour 2025-01-01 12:00, pending", kept=10, real=6),
    ),
    "a group too small": (
        "UPDATE {schema}.groups SET pending = pending - 1 WHERE fingerprint = 'f0' AND place = ''",
        Miscount(what="group f0, pending", kept=1, real=2),
    ),
    "a group lost": (
        "DELETE FROM {schema}.groups WHERE fingerprint = 'f1' AND place = ''",
        Miscount(what="group f1, all", kept=0, real=3),
    ),
    "a group too old": (
        "UPDATE {schema}.groups SET first_seen = 0 WHERE fingerprint = 'f1' AND place = ''",
        Miscount(what="group f1, first seen", kept=0, real=1735732800000000),
    ),
    "a group's hour": (
        "UPDATE {schema}.group_hours SET count = 9 WHERE key = {schema}.key_of('f2') AND place = ''",
        Miscount(what="group f2, hour 482148", kept=9, real=3),
    ),
}


@pytest.mark.parametrize("name", LIES)
@pytest.mark.parametrize("is_busy", [False, True], ids=["quiet", "busy"])
def test_a_count_that_was_falsified_is_found_and_put_right(
    server: Server, url: str, namespace: str, name: str, is_busy: bool
) -> None:
    lie, expected = LIES[name]

    async def write_on(store: PostgresLetters) -> None:
        for number in range(10**6):
            told = failure("x.Other", fingerprint=f"others {number % 5}")
            await store.put([letter(f"more {number}", source="others", at=START - 9 * HOUR, failure=told)])

    async def scene() -> None:
        async with used(url) as store, administrator(server) as admin, used(url) as other:
            await store.put(
                [
                    letter(
                        str(number),
                        failure=failure(fingerprint=f"f{number % 3}"),
                        status=Status.PENDING if number < 6 else Status.EXHAUSTED,
                    )
                    for number in range(9)
                ]
            )
            await tidied(store)
            writing = asyncio.ensure_future(write_on(other) if is_busy else asyncio.sleep(0))
            await admin.execute(lie.format(schema=namespace))
            assert expected in await store.recount()
            assert expected in await store.recount(repair=True)
            assert await store.recount() == []
            assert await store.recount(repair=True) == []
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            await is_exact(store)

    asyncio.run(scene())


def test_counts_are_folded_while_others_write_to_the_same_groups(url: str) -> None:
    async def write(store: PostgresLetters, writer: int) -> None:
        dice = random.Random(writer)
        for number in range(25):
            await anything(store, dice, f"{writer}/{number}")

    async def fold(store: PostgresLetters) -> None:
        for number in range(10**6):
            await store.tidy(number % 7)

    async def scene() -> None:
        async with used(url) as one, used(url) as other:
            folding = [asyncio.ensure_future(fold(store)) for store in (one, other)]
            await asyncio.gather(*(write(store, writer) for writer, store in enumerate([one, other] * 4)))
            assert await one.recount() == []
            for task in folding:
                task.cancel()
            await asyncio.gather(*folding, return_exceptions=True)
            await is_exact(one)

    asyncio.run(scene())


def test_who_captures_does_not_wait_for_counts_to_be_summed_up(server: Server, url: str, namespace: str) -> None:
    async def all_held(store: PostgresLetters) -> bool:
        return await store.count() == 1 + 2 * 999 + 10 + 100

    async def scene() -> None:
        async with used(url) as store, administrator(server) as admin:
            await store.put([letter("first")])
            async with asyncio.timeout(PATIENCE_SECONDS), admin.transaction():
                # Whoever sums up waits for this.
                await admin.execute(f"LOCK TABLE {namespace}.counts IN EXCLUSIVE MODE")
                for part in ("to be summed up", "meanwhile"):
                    await store.put([letter(f"{part} {number}") for number in range(999)])
                for number in range(10):
                    await store.put([letter(f"captured {number}")])
                many = asyncio.ensure_future(store.put([letter(f"many {number}") for number in range(100)]))
                await until(lambda: all_held(store))
                assert not many.done()
            await many
            await is_exact(store)

    asyncio.run(scene())


def test_the_ends_of_a_group_are_looked_up_only_where_letters_are_left(server: Server, url: str, namespace: str) -> None:
    """Where none is left, all letters of the group in other namespaces would be gone through in vain."""

    async def scene() -> None:
        async with used(url) as store, administrator(server) as admin:
            shared = failure(fingerprint="shared")
            await store.put([letter(f"order-{number}", namespace=name, failure=shared) for name in "ab" for number in range(2)])
            await tidied(store)
            await store.purge(Is(Field.NAMESPACE, "b"))
            await store.purge(Is(Field.ID, letter("order-1", namespace="a").id))
            async with admin.transaction():
                await admin.execute("SET LOCAL track_functions TO 'all'")
                assert await admin.fetchval(f"SELECT {namespace}.fold(1000)") > 0
                calls = "SELECT funcname, calls FROM pg_stat_xact_user_functions WHERE schemaname = $1"
                looks = dict(await admin.fetch(calls, namespace))
            assert (looks["first_seen"], looks["last_seen"]) == (2, 2), "of the group in one namespace, and in all"
            await is_exact(store)

    asyncio.run(scene())


def test_texts_that_are_indexed_behind_are_those_of_the_letters(server: Server, url: str, namespace: str) -> None:
    async def write(store: PostgresLetters, writer: int) -> None:
        dice = random.Random(writer)
        for number in range(25):
            await anything(store, dice, f"{writer}/{number}")
            name = f"shared {dice.randrange(20)}"
            await store.amend([Amendment(id=letter(name).id, body=f"{name} by {writer} in {number}".encode())])

    async def index(store: PostgresLetters) -> None:
        while True:
            await store.tidy(5)

    async def scene() -> None:
        async with used(url) as one, used(url) as other, administrator(server) as admin:
            indexing = [asyncio.ensure_future(index(store)) for store in (one, other)]
            await asyncio.gather(*(write(store, writer) for writer, store in enumerate([one, other] * 3)))
            for task in indexing:
                task.cancel()
            await asyncio.gather(*indexing, return_exceptions=True)
            await tidied(one)
            found = {row["id"]: row["body"] for row in await admin.fetch(f"SELECT id, body FROM {namespace}.texts")}
            letters = (await one.find(limit=10_000)).letters
            assert found == {letter.id: body_words(letter) for letter in letters}

    asyncio.run(scene())


def test_those_who_write_sum_up_now_and_then_by_themselves(server: Server, url: str, namespace: str) -> None:
    async def scene() -> None:
        async with used(url) as store, administrator(server) as admin:
            for number in range(1010):
                await store.put([letter(str(number))])

            async def is_summed_up() -> bool:
                return bool(await admin.fetchval(f"SELECT count(*) FROM {namespace}.changes") < 20)

            await until(is_summed_up)
            assert await store.count() == 1010

    asyncio.run(scene())


def test_nobody_waits_for_what_is_summed_up_but_who_writes_much_more_meanwhile(server: Server, url: str, namespace: str) -> None:
    async def scene() -> None:
        async with used(url) as store, administrator(server) as admin:
            await store.put([letter("first")])
            async with admin.transaction():
                await admin.execute(f"LOCK TABLE {namespace}.counts IN ACCESS EXCLUSIVE MODE")
                await store.put([letter(str(number)) for number in range(1000)])
                await store.put([letter("then")])
                more = asyncio.create_task(store.put([letter(f"more {number}") for number in range(1000)]))

                async def are_held() -> bool:
                    return bool(await admin.fetchval(f"SELECT count(*) FROM {namespace}.letters") == 2002)

                await until(are_held)
                done, _ = await asyncio.wait([more], timeout=0.2)
                assert not done
            await more
            assert await store.count() == 2002

    asyncio.run(scene())


def test_processes_that_are_killed_leave_counts_that_are_right(url: str) -> None:
    dice = random.Random(7)
    context = children()
    for round in range(50 if is_chaos() else 4):
        pipes, processes = [], []
        for writer in range(3):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_live, args=(url, round * 10 + writer, theirs), daemon=True)
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        for pipe, process in zip(pipes, processes, strict=True):
            for _ in range(dice.randrange(3, 40)):
                assert pipe.poll(PATIENCE_SECONDS), "a process did nothing for too long"
                pipe.recv_bytes()
            process.kill()
        for pipe, process in zip(pipes, processes, strict=True):
            process.join(PATIENCE_SECONDS)
            process.close()
            pipe.close()

        async def scene() -> None:
            async with used(url) as store:
                assert await store.count() > 0
                await is_exact(store)

        asyncio.run(scene())


def _live(url: str, writer: int, pipe: Connection) -> None:
    """Do anything for as long as one lives."""

    async def scene() -> None:
        store = opened(url.partition(":")[2]).letters
        dice = random.Random(writer)
        for number in range(10**9):
            await anything(store, dice, f"{writer}/{number}")
            pipe.send_bytes(b"more")

    asyncio.run(scene())


async def anything(store: LetterStore, dice: random.Random, name: str) -> None:
    """Put letters of few groups, some of them known; claim, settle, amend, purge and tidy."""
    groups = [failure(kind, fingerprint=f"group {number}") for number, kind in enumerate(["KeyError", "x.Timeout", "OSError"])]
    letters = [
        letter(
            f"{name}/{number}" if dice.random() < 0.7 else f"shared {dice.randrange(20)}",
            failed=name,
            at=START - dice.randrange(5) * HOUR,
            due=START,
            failure=dice.choice(groups),
            source=dice.choice(["orders", "orders", "bills"]),
        )
        for number in range(dice.randrange(1, 5))
    ]
    await store.put(letters)
    claimed = await store.claim(Claim(owner=name, lease=LEASE, limit=3, what=Due(LANE)))
    ends = [Completed(), Failed(attempt=attempt(name), failure=dice.choice(groups)), Released()]
    await store.settle([Settlement.of(one.lease, dice.choice(ends)) for one in claimed])
    await store.amend([Amendment(id=one.id, act=Act.ARCHIVE) for one in letters[:1]])
    match dice.randrange(6):
        case 0:
            await store.purge(Is(Field.STATUS, "completed"), limit=2)
        case 1:
            await store.purge(EVERYTHING, among=[one.id for one in letters[1:]])
        case 2:
            await store.tidy(10)


HOURLY: tuple[Query, ...] = (
    EVERYTHING,
    Is(Field.NAMESPACE, "default"),
    Is(Field.GROUP, "group 7"),
    Is(Field.STATUS, "retrying"),
)
QUESTIONS: tuple[Query, ...] = (
    *HOURLY,
    Is(Field.SOURCE, "source 7"),
    And((Is(Field.STATUS, "pending"), Is(Field.CATEGORY, "permanent"))),
)


@pytest.fixture(scope="module")
def large(server: Server) -> str:
    """A store with some thousand letters, all folded and indexed, of which few are leased."""

    async def fill() -> None:
        async with used(f"{server.url}?schema=large") as store:
            for start in range(0, 20_000, 2000):
                await store.put([_one_of_many(number) for number in range(start, start + 2000)])
            await store.claim(Claim(owner="ann", lease=10 * HOUR, limit=5, what=Due(LANE)))
            while await store.tidy(5000):
                pass
        async with administrator(server) as admin:
            await admin.execute("VACUUM ANALYZE")

    asyncio.run(fill())
    return f"{server.url}?schema=large"


def _one_of_many(number: int) -> Letter:
    group = number % 500
    told = f"connection refused by host {number}" + (" rarely" if number % 5000 == 7 else "")
    return letter(
        str(number),
        at=START + number * timedelta(seconds=30),
        due=START,
        source=f"source {group % 100}" if number % 100 else "orders",
        failure=failure(f"x.Error{group % 50}", told, fingerprint=f"group {group}", traceback=f"in module {number}, in common"),
    )


def plans_of(server: Server, url: str, ask: Callable[[PostgresLetters], Coroutine[Any, Any, object]]) -> list[Plan]:
    """How the server answers what is asked."""

    async def scene() -> list[Plan]:
        asked: list[tuple[str, tuple[object, ...]]] = []
        async with used(url) as store, administrator(server) as admin:
            read = store._database.read

            async def noted(sql: str, *args: object, is_of_texts: bool = False) -> list[asyncpg.Record]:
                asked.append((sql, args))
                return await read(sql, *args, is_of_texts=is_of_texts)

            store._database.read = noted  # type: ignore[method-assign]  # to hear what is asked, and pass it on
            await ask(store)
            rows = [await admin.fetchval(f"EXPLAIN (FORMAT JSON) {sql}", *args) for sql, args in asked]
            return [node for row in rows for top in json.decode(row) for node in _nodes(top["Plan"])]

    return asyncio.run(scene())


def _nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from _nodes(part)


@pytest.mark.parametrize("query", QUESTIONS, ids=str)
def test_counting_looks_at_no_letter_that_nobody_holds(server: Server, large: str, query: Query) -> None:
    async def ask(store: PostgresLetters) -> None:
        await store.count(query)
        await store.tally(Field.STATUS, query)
        await store.tally(Field.NAMESPACE, query)
        if query in HOURLY:
            await store.hourly(START, START + 9 * HOUR, query)

    looked = [plan for plan in plans_of(server, large, ask) if plan.get("Relation Name") == "letters"]
    assert {plan.get("Index Name") for plan in looked} <= {"letters_pkey"}


@pytest.mark.parametrize("by", sorted(TALLIED))
def test_tallies_look_at_no_letter_that_nobody_holds(server: Server, large: str, by: Field) -> None:
    looked = [plan for plan in plans_of(server, large, lambda store: store.tally(by)) if plan.get("Relation Name") == "letters"]
    assert {plan.get("Index Name") for plan in looked} <= ({"letters_pkey"} if by is Field.STATUS else set())


@pytest.mark.parametrize("query", [EVERYTHING, Is(Field.NAMESPACE, "default")], ids=["all", "namespace"])
@pytest.mark.parametrize("order", list(GroupOrder))
def test_groups_are_listed_from_what_is_kept_of_them(server: Server, large: str, order: GroupOrder, query: Query) -> None:
    async def ask(store: PostgresLetters) -> None:
        page = await store.groups(query, order=order, limit=20)
        assert len(page.groups) == 20
        assert page.next
        await store.groups(query, order=order, limit=20, after=page.next)

    looked = [plan for plan in plans_of(server, large, ask) if plan.get("Relation Name") == "letters"]
    # The latest letter of each group that is shown, and those that somebody holds.
    assert {plan.get("Index Name") for plan in looked} <= {"letters_by_group", "letters_by_age", "letters_pkey"}


@pytest.mark.parametrize("query", [Is(Field.STATUS, "pending"), Is(Field.CATEGORY, "permanent"), Text("refused")], ids=str)
@pytest.mark.parametrize("order", list(GroupOrder))
def test_groups_under_a_filter_take_one_look_at_all_letters(server: Server, large: str, order: GroupOrder, query: Query) -> None:
    async def ask(store: PostgresLetters) -> None:
        assert len((await store.groups(query, order=order, limit=20)).groups) == 20

    looked = [plan for plan in plans_of(server, large, ask) if plan.get("Relation Name") == "letters"]
    # The others are the latest letter of each group that is shown, by its instant, and those that somebody holds, by their ids.
    known = [plan for plan in looked if re.search(r"\b(dead_lettered_at|id) = ", plan.get("Index Cond", ""))]
    assert len(looked) - len(known) == 1


@pytest.mark.parametrize(
    ("query", "order", "index"),
    [
        (EVERYTHING, Order.NEWEST, "letters_by_age"),
        (EVERYTHING, Order.OLDEST, "letters_by_age"),
        (EVERYTHING, Order.UPDATED, "letters_by_change"),
        (Is(Field.STATUS, "exhausted"), Order.NEWEST, "letters_by_status"),
        (Is(Field.SOURCE, "source 7"), Order.NEWEST, "letters_by_source"),
        (Is(Field.ERROR, "Error7"), Order.NEWEST, "letters_by_error"),
        (Is(Field.ERROR, "x.Error7"), Order.NEWEST, "letters_by_error"),
        (Is(Field.GROUP, "group 7"), Order.NEWEST, "letters_by_group"),
        (Text("connection refused"), Order.NEWEST, "letters_by_age"),
        (Text("refused by host 4711"), Order.NEWEST, "letters_by_word"),
        (Text("rarely"), Order.NEWEST, "letters_by_word"),
        (Text("module 4711", Where.TRACEBACK), Order.NEWEST, "texts_by_traceback"),
        (Text("common", Where.TRACEBACK), Order.NEWEST, "letters_by_age"),
        (Text("4711", Where.ANYWHERE), Order.NEWEST, "letters_by_word"),
    ],
    ids=str,
)
def test_a_page_is_found_by_an_index(server: Server, large: str, query: Query, order: Order, index: str) -> None:
    plans = plans_of(server, large, lambda store: store.find(query, order=order, limit=20))
    assert index in {plan.get("Index Name") for plan in plans}
    assert "Seq Scan" not in {plan["Node Type"] for plan in plans if plan.get("Relation Name") in ("letters", "texts")}


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.count(),
        lambda store: store.tally(Field.STATUS),
        lambda store: store.hourly(START, START + 9 * HOUR),
        lambda store: store.hourly(START, START + 9 * HOUR, Is(Field.GROUP, "group 7")),
        *(lambda store, order=order: store.groups(order=order, limit=20) for order in GroupOrder),
        lambda store: store.tidy(0),
    ],
    ids=["count", "tally", "hours", "hours of a group", *(f"groups by {order}" for order in GroupOrder), "tidy"],
)
def test_what_was_summed_up_long_ago_is_not_gone_through_again(
    server: Server, large: str, ask: Callable[[PostgresLetters], Coroutine[Any, Any, object]]
) -> None:
    """The table of notes keeps the length it had when many letters came at once."""
    looked = [plan for plan in plans_of(server, large, ask) if plan.get("Relation Name") == "changes"]
    assert looked
    assert "Seq Scan" not in {plan["Node Type"] for plan in looked}
