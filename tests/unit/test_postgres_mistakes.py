"""PostgreSQL as people get it wrong: each mistake has one clear sentence, without a password and without a traceback."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

import redrive
from dev.engines.registry import ENGINES
from redrive import SchemaTooNew, StoreCorrupt, StoreNotWritable, StoreUnavailable
from redrive.backends.postgres import opened
from redrive.model.arrival import Held
from redrive.testing import START, letter
from redrive.testing.servers import Server, free_port
from redrive.testing.watcher import until
from tests.unit.shell import PATIENCE, Shell

pytestmark = pytest.mark.engine("postgres", own=True)

SECRET = "pa55-w0rd"
ROLES = """
    CREATE ROLE guest LOGIN;
    CREATE ROLE full LOGIN CONNECTION LIMIT 0;
    CREATE ROLE standby LOGIN SUPERUSER;
    ALTER ROLE standby SET default_transaction_read_only = on;
    CREATE ROLE locked LOGIN PASSWORD 'another';
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A durable PostgreSQL with some users who may not do everything."""
    with ENGINES["postgres"].make() as server:
        assert isinstance(server, Server)
        rules = server.place.folder / "data" / "pg_hba.conf"
        rules.write_text(f"host all locked 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        does(server, f"{ROLES}; SELECT pg_reload_conf()")
        does(server, "CREATE DATABASE bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
        yield server


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def does(server: Server, *statements: str) -> None:
    async def do() -> None:
        connection = await asyncpg.connect(server.url)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()

    asyncio.run(do())


def url(server: Server, schema: str, user: str = "postgres", database: str = "postgres") -> str:
    return f"postgres://{user}:{SECRET}@{server.host}:{server.port}/{database}?schema={schema}"


def refused(shell: Shell, store: str, *, status: int = 1) -> str:
    """The sentence that `redrive ls` has for this store."""
    sentence = shell.refused("ls", "--store", store, status=status)
    assert SECRET not in sentence
    return sentence


def put(store: str) -> list[Held]:
    async def held() -> list[Held]:
        letters = opened(store.partition(":")[2]).letters
        try:
            return await letters.put([letter()], now=START)
        finally:
            await letters.close()

    return asyncio.run(held())


def test_a_wrong_password_is_told_and_not_shown(server: Server, namespace: str, shell: Shell) -> None:
    # The rules are read again in the background.
    assert until(lambda: shell.ended("ls", "--store", url(server, namespace, "locked")).status == 1, timedelta(seconds=PATIENCE))
    sentence = refused(shell, url(server, namespace, "locked"))
    assert "refused the login (password authentication failed" in sentence
    assert sentence.endswith("check user and password")
    bare = shell.refused("ls", "--store", url(server, namespace, "locked").replace(f":{SECRET}", ""), status=1)
    assert "check user and password" in bare


def test_a_server_that_is_not_there_is_named(namespace: str, shell: Shell) -> None:
    port = free_port()
    sentence = refused(shell, f"postgres://ann:{SECRET}@127.0.0.1:{port}/shop")
    assert f"PostgreSQL at 127.0.0.1:{port}/shop cannot be reached" in sentence
    assert "is it running, and the address right?" in sentence


def test_a_host_without_an_address_is_named(shell: Shell) -> None:
    assert "no-such-host.invalid:5432/shop cannot be reached" in refused(
        shell, f"postgres://ann:{SECRET}@no-such-host.invalid/shop?timeout=5"
    )


def test_a_database_that_is_not_there_is_named(server: Server, namespace: str, shell: Shell) -> None:
    sentence = refused(shell, url(server, namespace, database="nowhere"))
    assert sentence == f"there is no such database at {server.host}:{server.port}/nowhere; create it, or choose another"


def test_a_user_who_may_make_nothing_is_told_what_is_missing(server: Server, namespace: str, shell: Shell) -> None:
    sentence = refused(shell, url(server, namespace, "guest"))
    assert "may not do this" in sentence
    assert "permission denied for database postgres" in sentence
    assert "grant the rights" in sentence


def test_a_user_who_may_only_look_may_look(server: Server, namespace: str, shell: Shell) -> None:
    assert put(url(server, namespace)) == [Held.NEW]
    does(server, f"GRANT USAGE ON SCHEMA {namespace} TO guest", f"GRANT SELECT ON ALL TABLES IN SCHEMA {namespace} TO guest")
    guest = url(server, namespace, "guest")
    assert "1 letter." in shell("ls", "--store", guest).out
    for verb in (put, check):
        with pytest.raises(StoreNotWritable, match="grant the rights"):
            verb(guest)
    # Some rights are not all rights.
    does(server, f"GRANT INSERT ON ALL TABLES IN SCHEMA {namespace} TO guest")
    with pytest.raises(StoreNotWritable, match="grant the rights"):
        check(guest)
    assert "grant the rights" in shell("doctor", "--store", guest, status=1).out


def test_a_standby_may_only_be_read(server: Server, namespace: str, shell: Shell) -> None:
    assert "may only be read (a standby?); use the primary" in refused(shell, url(server, namespace, "standby"))
    put(url(server, namespace))
    standby = url(server, namespace, "standby")
    assert "1 letter." in shell("ls", "--store", standby).out
    for verb in (put, check):
        with pytest.raises(StoreNotWritable, match="may only be read"):
            verb(standby)
    assert "may only be read" in shell("doctor", "--store", standby, status=1).out


def test_a_server_without_room_for_more_connections_says_so(server: Server, namespace: str, shell: Shell) -> None:
    sentence = refused(shell, url(server, namespace, "full"))
    assert "has no room for this now (too many connections" in sentence
    assert sentence.endswith("try again")
    with pytest.raises(StoreUnavailable):
        put(url(server, namespace, "full"))


def test_a_newer_schema_is_refused_and_left_alone(server: Server, namespace: str, shell: Shell) -> None:
    put(url(server, namespace))
    does(server, f"UPDATE {namespace}.redrive SET version = 99")
    assert f"has schema 99 in '{namespace}'" in (sentence := refused(shell, url(server, namespace)))
    assert sentence.endswith("upgrade redrive to open it")
    with pytest.raises(SchemaTooNew):
        put(url(server, namespace))
    assert "upgrade redrive" in shell("doctor", "--store", url(server, namespace), status=1).out


def test_another_programs_table_is_left_alone(server: Server, namespace: str, shell: Shell) -> None:
    does(server, f"CREATE SCHEMA {namespace}", f"CREATE TABLE {namespace}.letters (mine int)")
    assert "has another program's table 'letters'; choose another schema" in refused(shell, url(server, namespace))
    with pytest.raises(StoreCorrupt):
        put(url(server, namespace))
    does(server, f"INSERT INTO {namespace}.letters (mine) VALUES (1)")


def test_tables_that_were_removed_are_missed(server: Server, namespace: str, shell: Shell) -> None:
    put(url(server, namespace))
    does(server, f"DROP TABLE {namespace}.letters CASCADE")
    assert "a table of redrive is missing" in refused(shell, url(server, namespace))
    assert "the table of letters is missing" in shell("doctor", "--store", url(server, namespace), status=1).out


def test_a_database_in_another_encoding_is_refused(server: Server, namespace: str, shell: Shell) -> None:
    assert "is not encoded in UTF-8; create one that is" in refused(shell, url(server, namespace, database="bytes"))


OPTIONS = [
    ("//h/d?scema=x", "has no option 'scema'; did you mean schema?"),
    ("//h/d?timeot=3", "has no option 'timeot'; did you mean timeout?"),
    ("//h/d?zzz=1", "has no option 'zzz'; there are schema, pool, timeout, listen"),
    ("//h/d?pool=0", "pool=0 must be a number from 1 to 1000"),
    ("//h/d?partitions=week", "partitions=week must be no or month"),
    ("//h/d?timeout=soon", "timeout=soon must be a number from 0.1 to 3600"),
    ("//h/d?schema=My-Schema", "the schema 'My-Schema' must be small letters, digits and underscores"),
    ("//h:port/d", "this is no PostgreSQL URL"),
    ("", "postgres: needs a server"),
    ("//h/d?sslmode=sometimes", "sslmode"),
]


@pytest.mark.parametrize(("location", "sentence"), OPTIONS, ids=[location or "nothing" for location, _ in OPTIONS])
def test_a_url_that_is_wrong_is_told_what_is_right(location: str, sentence: str, shell: Shell) -> None:
    assert sentence in refused(shell, f"postgres:{location.replace('//h', f'//ann:{SECRET}@h')}", status=2)


def test_the_doctor_looks_a_store_over_without_making_one(server: Server, namespace: str, shell: Shell) -> None:
    store = url(server, namespace)
    before = shell("doctor", "--store", store).out
    assert f"has no schema '{namespace}' yet; the first letter makes it" in before
    assert not has_schema(server, namespace)
    put(store)
    out = shell("doctor", "--store", store).out
    assert "what PostgreSQL confirms survives a crash" in out
    assert "1 pending" in out
    assert "All is well." in out
    assert SECRET not in before + out


def test_the_doctor_finds_a_server_that_may_forget(server: Server, namespace: str, shell: Shell) -> None:
    put(url(server, namespace))
    does(server, "ALTER ROLE guest SET synchronous_commit = off", f"GRANT ALL ON SCHEMA {namespace} TO guest")
    does(server, f"GRANT ALL ON ALL TABLES IN SCHEMA {namespace} TO guest")
    out = shell("doctor", "--store", url(server, namespace, "guest"), status=1).out
    assert "synchronous_commit is off" in out
    does(server, "ALTER ROLE guest RESET synchronous_commit")


def test_the_doctor_finds_nobody_at_home(shell: Shell) -> None:
    assert "cannot be reached" in shell("doctor", "--store", f"postgres://127.0.0.1:{free_port()}/x", status=1).out


def check(store: str) -> None:
    async def checked() -> None:
        async with redrive.open(store) as dlq:
            await dlq.letters.check()

    asyncio.run(checked())


def has_schema(server: Server, schema: str) -> bool:
    async def look() -> bool:
        connection = await asyncpg.connect(server.url)
        found = await connection.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", schema)
        await connection.close()
        return found is not None

    return asyncio.run(look())
