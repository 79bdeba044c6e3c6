"""What a Redis must be to be trusted with letters, and what its URL must say; each refusal is one clear sentence."""

from __future__ import annotations

import asyncio
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from dev.engines.redis import ask
from redrive.backends.redis import RedisLetters, opened
from redrive.backends.redis.address import parsed
from redrive.model.arrival import Held
from redrive.model.errors import (
    BadSettings,
    SchemaTooNew,
    StoreCorrupt,
    StoreNotWritable,
    StoreUnavailable,
)
from redrive.model.finding import Health
from redrive.model.lease import Claim, Due
from redrive.model.query import EVERYTHING
from redrive.model.settlement import Completed, Settlement
from redrive.testing import letter
from redrive.testing.kit.samples import LANE, START
from tests.engines import OwnEngine
from tests.unit.redis_use import examined, held, location, refusal, used

own = pytest.mark.engine("redis", own=True)
shared = pytest.mark.engine("redis")


@own
@pytest.mark.parametrize(
    ("settings", "durability", "says"),
    [
        (["--appendonly", "no"], "always", "(appendonly no); set appendonly yes and appendfsync always there, or say durability=none"),
        (["--appendonly", "no"], "everysec", "set appendonly yes and appendfsync everysec there, or say durability=none"),
        (["--appendfsync", "everysec"], "always", "(appendfsync everysec); set appendonly yes and appendfsync always there"),
        (["--appendfsync", "everysec"], "always", "or say durability=everysec in the URL and accept to lose the last second or two"),
        (["--appendfsync", "no"], "everysec", "(appendfsync no)"),
        (["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"], "none", "set maxmemory-policy noeviction there"),
    ],
)  # fmt: skip
def test_a_server_that_keeps_less_than_was_asked_for_is_refused(
    own_engine: OwnEngine, settings: list[str], durability: str, says: str
) -> None:
    server = own_engine("redis", more=settings)
    error = refusal(location(server.url, durability=durability))
    assert isinstance(error, StoreNotWritable)
    assert says in str(error)
    assert f"127.0.0.1:{server.port}" in str(error)


@own
@pytest.mark.parametrize(
    ("settings", "durability"),
    [
        (["--appendonly", "no"], "none"),
        (["--appendfsync", "everysec"], "everysec"),
        (["--appendfsync", "always"], "everysec"),
        (["--maxmemory", "100mb"], "always"),
        (["--maxmemory-policy", "allkeys-lru"], "always"),
    ],
)
def test_a_server_that_keeps_what_was_asked_for_is_taken(own_engine: OwnEngine, settings: list[str], durability: str) -> None:
    server = own_engine("redis", more=settings)
    where = location(server.url, durability=durability)
    assert used(where, lambda letters: held(letters, "1")) == [Held.NEW]
    assert opened(where).letters.capabilities.durable == (durability == "always")


@own
def test_a_server_that_does_not_tell_how_durable_it_is_is_taken_with_a_warning(own_engine: OwnEngine) -> None:
    server = own_engine("redis")
    ask(server.port, "ACL", "SETUSER", "ann", "on", ">secret", "~*", "+@all", "-config")
    with pytest.warns(UserWarning, match=r"does not let this user ask how durable it is \(CONFIG GET\)"):
        assert used(f"//ann:secret@127.0.0.1:{server.port}", lambda letters: held(letters, "1")) == [Held.NEW]


@own
def test_a_password_is_needed_and_never_shown(own_engine: OwnEngine) -> None:
    server = own_engine("redis", password="right")
    assert used(f"//:right@127.0.0.1:{server.port}", lambda letters: held(letters, "1")) == [Held.NEW]
    for given, says in (
        (":wr0ng@", "does not know this user and password"),
        ("", "wants a password"),
        ("eve:wr0ng@", "mend the URL"),
    ):
        error = refusal(f"//{given}127.0.0.1:{server.port}")
        assert isinstance(error, StoreNotWritable)
        assert says in str(error)
        assert "wr0ng" not in str(error)


@shared
def test_a_database_that_is_not_there_is_named() -> None:
    error = refusal(location(os.environ["REDRIVE_TEST_REDIS"].removesuffix("/0") + "/999"))
    assert isinstance(error, BadSettings)
    assert "has no database 999" in str(error)


def test_a_server_that_is_not_there_is_unavailable_and_nothing_was_done() -> None:
    error = refusal("//127.0.0.1:1", lambda letters: held(letters, "1"))
    assert type(error) is StoreUnavailable
    assert "cannot reach redis at 127.0.0.1:1 (Connection refused); does it run" in str(error)
    assert "redis at no.such.host.invalid:6379 (" in str(refusal("//no.such.host.invalid"))


def test_what_is_no_redis_is_told_so() -> None:
    async def scene() -> StoreNotWritable:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await writer.drain()
            await reader.read()
            writer.close()

        async with await asyncio.start_server(greet, "127.0.0.1") as server:
            port = server.sockets[0].getsockname()[1]
            letters = RedisLetters(parsed(f"//127.0.0.1:{port}", is_tls=False))
            with pytest.raises(StoreNotWritable) as caught:
                await letters.count()
            await letters.close()
            return caught.value

    assert "does not answer as a Redis does" in str(asyncio.run(scene()))


@own
def test_a_user_without_the_right_to_write_may_read_and_is_told_what_is_missing(own_engine: OwnEngine) -> None:
    server = own_engine("redis")
    used(f"//127.0.0.1:{server.port}", lambda letters: held(letters, "1"))
    ask(server.port, "ACL", "SETUSER", "ann", "on", ">secret", "~*", "+@all", "-@write")
    where = f"//ann:secret@127.0.0.1:{server.port}"
    assert used(where, lambda letters: letters.count()) == 1
    for use in (lambda letters: letters.check(), lambda letters: held(letters, "2")):
        error = refusal(where, use)
        assert isinstance(error, StoreNotWritable)
        assert "lacks a right" in str(error)
    assert used(where, lambda letters: letters.count()) == 1


@own
def test_a_user_with_half_of_the_rights_writes_nothing_rather_than_half(own_engine: OwnEngine) -> None:
    server = own_engine("redis")
    ask(server.port, "ACL", "SETUSER", "ann", "on", ">secret", "~*", "+@all", "-hincrby")
    error = refusal(f"//ann:secret@127.0.0.1:{server.port}", lambda letters: held(letters, "1"))
    assert isinstance(error, StoreNotWritable)
    assert "HINCRBY" in str(error)
    assert ask(server.port, "DBSIZE").strip() == ":0"


@own
def test_the_rights_that_the_docs_name_are_enough(own_engine: OwnEngine) -> None:
    server = own_engine("redis")
    page = Path(__file__).parents[2] / "docs" / "redis.md"
    rights = re.search(r"A user needs `([^`]+)` on `([^`]+)`", page.read_text())
    assert rights is not None
    ask(server.port, "ACL", "SETUSER", "ann", "on", ">secret", rights[2], *rights[1].split())
    where = f"//ann:secret@127.0.0.1:{server.port}"

    async def live(letters: RedisLetters) -> None:
        await letters.put([letter("1", due=datetime(2025, 1, 1, tzinfo=UTC))])
        (claimed,) = await letters.claim(Claim(owner="ann", lease=timedelta(hours=1), what=Due(LANE)))
        await letters.extend([claimed.lease], timedelta(hours=2))
        await letters.settle([Settlement.of(claimed.lease, Completed())])
        assert len((await letters.groups()).groups) == len((await letters.find()).letters) == await letters.count() == 1
        assert await letters.hourly(START, START) == {START: 1}
        await letters.purge(EVERYTHING)

    used(where, live)
    assert {finding.health for finding in asyncio.run(examined(where))} == {Health.OK}


@own
def test_a_replica_takes_no_letters(own_engine: OwnEngine) -> None:
    primary = own_engine("redis")
    replica = own_engine("redis", more=["--replicaof", "127.0.0.1", str(primary.port)])
    error = refusal(location(replica.url))
    assert isinstance(error, StoreNotWritable)
    assert "read-only replica" in str(error)


@shared
def test_stores_with_different_prefixes_know_nothing_of_each_other(namespace: str) -> None:
    url = os.environ["REDRIVE_TEST_REDIS"]
    one, other = location(url, prefix=namespace), location(url, prefix=f"{namespace}:0")
    used(one, lambda letters: held(letters, "1"))
    assert used(other, lambda letters: letters.count()) == 0
    assert used(other, lambda letters: held(letters, "1")) == [Held.NEW]
    assert used(one, lambda letters: letters.purge(EVERYTHING)) == [letter("1")]
    assert used(other, lambda letters: letters.count()) == 1


@shared
def test_a_newer_schema_is_refused(namespace: str) -> None:
    url = os.environ["REDRIVE_TEST_REDIS"]
    where = location(url, prefix=namespace)
    used(where, lambda letters: held(letters, "1"))
    port = int(url.rpartition(":")[2].partition("/")[0])
    ask(port, "HSET", f"{{{namespace}}}meta", "schema", "2")
    error = refusal(where)
    assert isinstance(error, SchemaTooNew)
    assert "has schema 2, this redrive knows 1" in str(error)


@shared
def test_another_programs_keys_are_left_alone(namespace: str) -> None:
    url = os.environ["REDRIVE_TEST_REDIS"]
    port = int(url.rpartition(":")[2].partition("/")[0])
    ask(port, "SET", f"{{{namespace}:0}}cards", "theirs")
    error = refusal(location(url, prefix=namespace), lambda letters: held(letters, "1"))
    assert isinstance(error, StoreCorrupt)
    assert "choose another one in the URL: ?prefix=" in str(error)


@shared
def test_the_number_of_shards_is_kept(namespace: str) -> None:
    where = location(os.environ["REDRIVE_TEST_REDIS"], prefix=namespace)
    used(f"{where}&shards=4", lambda letters: held(letters, *map(str, range(50))))
    assert used(where, lambda letters: letters.count()) == 50
    assert used(f"{where}&shards=4", lambda letters: held(letters, "7")) == [Held.DUPLICATE]
    error = refusal(f"{where}&shards=1")
    assert isinstance(error, BadSettings)
    assert "say shards=4" in str(error)


@shared
def test_a_store_belongs_to_the_first_desk_that_comes(namespace: str) -> None:
    where = location(os.environ["REDRIVE_TEST_REDIS"], prefix=namespace)
    first = uuid4()
    assert used(where, lambda letters: letters.bind(first)) == first
    assert used(where, lambda letters: letters.bind(uuid4())) == first


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("localhost", "a Redis URL names a host"),
        ("//", "a Redis URL names a host"),
        ("//host:port", "this Redis URL cannot be read"),
        ("//ann:s3c/ret@host", "as %2F"),
        ("//ann:12/s3cret@host", "as %2F"),
        ("//ann:12?s3cret@host", "as %2F"),
        ("//ann:12#s3cret@host", "as %2F"),
        ("//host/orders", "a Redis database is a number, not 'orders'"),
        ("//host?prefx=a", "no option 'prefx'; did you mean prefix?"),
        ("//host?durability=evrysec", "there is no durability=evrysec; did you mean everysec?"),
        ("//host?prefix={a}", "without braces"),
        ("//host?timeout=soon", "timeout=soon must be a number of seconds"),
        ("//host?shards=0", "shards=0 must be a number from 1 to 256"),
    ],
)
def test_a_url_that_is_wrong_is_told_what_is_right(where: str, says: str) -> None:
    with pytest.raises(BadSettings) as caught:
        opened(where)
    assert says in str(caught.value)
    assert "s3c" not in str(caught.value)


def test_a_url_is_read_to_the_letter() -> None:
    address = parsed("//us%40er:p%3Ass@[::1]:7000/3?prefix=a:b&durability=none&timeout=1.5", is_tls=True)
    assert (address.username, address.password, address.host, address.port, address.db) == ("us@er", "p:ss", "::1", 7000, 3)
    assert (address.prefix, address.durability, address.timeout, address.is_tls) == ("a:b", "none", timedelta(seconds=1.5), True)
    assert (address.name, repr(address)) == ("redis at [::1]:7000", "<redis at [::1]:7000>")
