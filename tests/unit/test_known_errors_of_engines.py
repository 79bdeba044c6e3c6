"""What real engines answer when something is wrong, and the category of each error."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
import redis
import sqlalchemy
from redis.backoff import NoBackoff
from redis.retry import Retry

from redrive import Category
from redrive.model.classify import Classified, classify
from redrive.model.evidence import read
from tests.unit.error_cases import F, N, P, R, T, V


def of(function: Callable[..., object], *arguments: Any, **options: Any) -> Classified:
    """How the error that this raises is classified."""
    with pytest.raises(Exception) as caught:
        function(*arguments, **options)
    return classify(read(caught.value))


STATEMENTS: list[tuple[str, Category]] = [
    ("insert into {0} values (1, 1)", V),
    ("insert into {0} values (null, 1)", V),
    ("insert into {0} values (2, -1)", V),
    ("select 1 / 0", V),
    ("select 'network'::int", V),
    ("select 99999999999::int", V),
    ("select * from no_such_connection", F),
    ("select connection from {0}", F),
    ("nonsense", F),
    ("set statement_timeout = 20; select pg_sleep(5)", N),
    ("set role pg_monitor; delete from {0}", P),
    ("set transaction read only; delete from {0}", T),
    ("do $$ begin raise exception 'the warehouse is busy'; end $$", F),
    ("do $$ begin raise exception 'x' using errcode = '53100'; end $$", R),
    ("do $$ begin raise exception 'x' using errcode = '40P01'; end $$", T),
    ("do $$ begin raise exception 'x' using errcode = '08006'; end $$", N),
]


@contextmanager
def table(name: str) -> Iterator[str]:
    with psycopg.connect(os.environ["REDRIVE_TEST_POSTGRES"], autocommit=True) as connection:
        connection.execute(f'create table "{name}" (id int primary key, amount int check (amount > 0))')
        connection.execute(f'insert into "{name}" values (1, 1)')
        try:
            yield f'"{name}"'
        finally:
            connection.execute(f'drop table "{name}"')


@pytest.mark.engine("postgres")
@pytest.mark.parametrize(("statement", "category"), STATEMENTS, ids=[statement for statement, _ in STATEMENTS])
def test_postgresql_answers_are_told_apart_by_every_driver(statement: str, category: Category, namespace: str) -> None:
    url = os.environ["REDRIVE_TEST_POSTGRES"]

    async def by_asyncpg(text: str) -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(text)
        finally:
            connection.terminate()

    def by_psycopg(text: str) -> None:
        with psycopg.connect(url) as connection:
            connection.execute(text)  # type: ignore[call-overload]  # a text of this test's own

    def by_sqlalchemy(text: str) -> None:
        engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=sqlalchemy.NullPool)
        with engine.begin() as connection:
            connection.exec_driver_sql(text)

    with table(namespace) as name:
        text = statement.format(name)
        found = {
            "asyncpg": of(lambda: asyncio.run(by_asyncpg(text))),
            "psycopg": of(by_psycopg, text),
            "sqlalchemy": of(by_sqlalchemy, text),
        }
    assert {driver: told.category for driver, told in found.items()} == dict.fromkeys(found, category), found


@pytest.mark.engine("postgres")
def test_a_lock_that_is_held_and_a_database_that_is_not_there(namespace: str) -> None:
    url = os.environ["REDRIVE_TEST_POSTGRES"]
    with table(namespace) as name, psycopg.connect(url) as holder, psycopg.connect(url) as other:
        holder.execute(f"lock table {name}")  # type: ignore[call-overload]  # a name of this test's own
        assert of(other.execute, f"lock table {name} nowait") == Classified(T, "code 55P03")
    assert of(psycopg.connect, url, dbname="no-such-database").category is F

    async def connect() -> None:
        await asyncpg.connect(url, database="no-such-database")

    assert of(lambda: asyncio.run(connect())) == Classified(F, "code 3D000")


@pytest.mark.engine("postgres")
def test_a_session_that_is_ended_is_to_be_tried_again_whatever_the_driver_makes_of_it() -> None:
    url = os.environ["REDRIVE_TEST_POSTGRES"]
    end = "select pg_terminate_backend(pg_backend_pid())"

    async def by_asyncpg() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(end)
        finally:
            connection.terminate()

    with psycopg.connect(url) as connection:
        assert of(connection.execute, end) == Classified(T, "code 57P01")
    assert of(lambda: asyncio.run(by_asyncpg())).category in (T, N)


@pytest.mark.engine("postgres")
def test_of_two_transactions_that_cannot_both_be_true_one_is_to_be_tried_again(namespace: str) -> None:
    url = os.environ["REDRIVE_TEST_POSTGRES"]
    with table(namespace) as name, psycopg.connect(url) as one, psycopg.connect(url) as two:
        for connection in (one, two):
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute(f"select * from {name}")  # type: ignore[call-overload]  # a name of this test's own
        one.execute(f"update {name} set amount = 2")  # type: ignore[call-overload]  # as above
        one.commit()
        assert of(two.execute, f"update {name} set amount = 3") == Classified(T, "code 40001")


@pytest.mark.engine("redis")
def test_redis_answers_are_told_apart(namespace: str) -> None:
    url = os.environ["REDRIVE_TEST_REDIS"]
    with redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0)) as client:
        client.set(namespace, "text")

        def watched() -> None:
            with client.pipeline() as pipe:
                pipe.watch(namespace)
                client.set(namespace, "other")
                pipe.multi()
                pipe.get(namespace)
                pipe.execute()

        def aborted() -> None:
            with client.pipeline() as pipe:
                pipe.execute_command("NONSENSE")
                pipe.execute()

        def late() -> None:
            with redis.Redis.from_url(url, socket_timeout=0.05, retry=Retry(NoBackoff(), 0)) as impatient:
                impatient.blpop([f"{namespace}-nothing"], timeout=5)

        def stranger() -> None:
            with redis.Redis.from_url(url, username="nobody", password="x", retry=Retry(NoBackoff(), 0)) as other:
                other.ping()

        def limited() -> None:
            client.acl_setuser(namespace, enabled=True, nopass=True, commands=["+get"])
            with redis.Redis.from_url(url, username=namespace, password="x", retry=Retry(NoBackoff(), 0)) as other:
                other.get("not-allowed")

        def crowded() -> None:
            pool = redis.ConnectionPool.from_url(url, max_connections=1)
            try:
                pool.get_connection()
                pool.get_connection()
            finally:
                pool.disconnect()

        def released() -> None:
            lock = client.lock(f"{namespace}-lock", timeout=5)
            lock.acquire()
            client.delete(f"{namespace}-lock")
            lock.release()

        try:
            found = {
                "wrong type": of(client.lpush, namespace, "x"),
                "no number": of(client.incr, namespace),
                "no script": of(client.evalsha, "0" * 40, 0),
                "script": of(client.eval, "return nonsense(", 0),
                "busy in a script": of(client.eval, "return redis.error_reply('BUSY come back later')", 0),
                "unknown": of(client.execute_command, "NONSENSE"),
                "data": of(client.set, namespace, {}),
                "watched": of(watched),
                "aborted": of(aborted),
                "late": of(late),
                "stranger": of(stranger),
                "limited": of(limited),
                "crowded": of(crowded),
                "released": of(released),
            }
        finally:
            client.delete(namespace)
            client.acl_deluser(namespace)
    assert {name: told.category for name, told in found.items()} == {
        "wrong type": F, "no number": V, "no script": F, "script": F, "busy in a script": T, "unknown": F, "data": V, "watched": T,
        "aborted": F, "late": N, "stranger": P, "limited": P, "crowded": R, "released": T,
    }, found  # fmt: skip
