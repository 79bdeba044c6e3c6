"""PostgreSQL and the world around it: loops, forks, poolers, many at once, and sessions that an administrator ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from redrive import AnswerLost, Claim, Due, StoreUnavailable, blocking
from redrive.backends.postgres import PostgresLetters, opened
from redrive.engine.observed import ObservedLetters
from redrive.model.arrival import Held
from redrive.model.settlement import Completed, Settled, Settlement
from redrive.testing import START, Proxy, letter
from redrive.testing.kit.samples import LANE
from redrive.testing.servers import Server
from tests.engines import OwnEngine
from tests.unit.postgres_use import administrator, own_server, used

pytestmark = pytest.mark.engine("postgres", "pgbouncer", own=True)

PATIENCE_SECONDS = 60
SESSIONS = "FROM pg_stat_activity WHERE application_name = 'redrive'"
HELD_UP = f"{SESSIONS} AND wait_event_type = 'Lock'"
LEASE = timedelta(minutes=5)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A PostgreSQL of these tests' own, since they end other people's sessions."""
    yield from own_server()


@pytest.fixture
def url(server: Server, namespace: str) -> str:
    return f"{server.url}?schema={namespace}"


def runs(program: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program of its own, in which a warning is an error and nothing may be left open."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-W", "ignore:.*fork.*:DeprecationWarning", "-c", program, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    # In this mode asyncio tells of every step that took long, as any may on a busy machine.
    done.stderr = "".join(line for line in done.stderr.splitlines(keepends=True) if not line.startswith("Executing <"))
    return done


def test_a_store_may_be_used_by_one_loop_after_another(url: str, tmp_path: Path) -> None:
    program = """
import asyncio, gc, sys
from redrive.backends.postgres import opened
from redrive.testing import START, letter
letters = opened(sys.argv[1].partition(":")[2]).letters
async def use(number):
    await asyncio.gather(*(letters.put([letter(f"{number}/{item}")], now=START) for item in range(5)))
    return await letters.count(now=START)
for number in range(4):
    count = asyncio.run(use(number))
    gc.collect()
print(count)
"""
    done = runs(program, url, folder=tmp_path)
    assert (done.stdout, done.stderr) == ("20\n", "")


def test_loops_that_ended_leave_no_session_at_the_server(server: Server, url: str) -> None:
    letters = opened(url.partition(":")[2]).letters
    for _ in range(5):
        asyncio.run(letters.check())

    async def scene() -> None:
        async with administrator(server) as admin, asyncio.timeout(PATIENCE_SECONDS):
            while await admin.fetch(f"SELECT 1 {SESSIONS}"):
                pass

    asyncio.run(scene())


def test_blocking_code_uses_it_from_many_threads(url: str) -> None:
    with blocking.open(url) as dlq:
        captured = dlq.capture("a", ValueError("bad"), source="orders")
        assert captured.held is Held.NEW
        assert dlq.get(captured.letter.id).failure.message == "bad"
        report = dlq.redrive(lambda body: None, ids=[captured.letter.id])
        assert sum(report.entries.values()) == 1
    with blocking.open(url) as dlq:
        assert dlq.count() == 1


def test_a_fork_opens_its_own_and_the_parent_goes_on(url: str, tmp_path: Path) -> None:
    program = """
import os, sys, time
from redrive import blocking
with blocking.open(sys.argv[1]) as dlq:
    for number in range(3):
        dlq.capture("a", ValueError("bad"), source=f"parent {number}")
        if (child := os.fork()) == 0:
            began = time.monotonic()
            if number:
                dlq.capture("b", ValueError("bad"), source=f"child {number}")
            dlq.close()
            os._exit(0 if time.monotonic() - began < 4 else 1)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
    print(dlq.count())
"""
    done = runs(program, url, folder=tmp_path)
    assert (done.stdout, done.stderr) == ("5\n", "")


def test_processes_that_come_first_together_make_one_schema(url: str, tmp_path: Path) -> None:
    program = "import sys; from redrive import blocking\nwith blocking.open(sys.argv[1]) as dlq: print(dlq.letters.check())"
    command = [sys.executable, "-W", "error", "-c", program, url]
    several = [subprocess.Popen(command, cwd=tmp_path, stdout=-1, stderr=-1, text=True) for _ in range(5)]
    assert [one.communicate(timeout=PATIENCE_SECONDS) for one in several] == [("None\n", "")] * 5


def test_schemas_of_one_database_are_apart(server: Server, url: str) -> None:
    async def scene() -> None:
        async with used(url) as ours, used(f"{url}_b") as theirs:
            assert await ours.put([letter(due=START)], now=START) == [Held.NEW]
            assert await theirs.count(now=START) == 0
            assert await theirs.put([letter(due=START)], now=START) == [Held.NEW]
            claims = [await store.claim(Claim(owner="ann", lease=LEASE, what=Due(LANE)), now=START) for store in (ours, theirs)]
            assert [len(claimed) for claimed in claims] == [1, 1]

    asyncio.run(scene())


def test_many_callers_share_a_small_pooler(own_engine: OwnEngine, server: Server, namespace: str) -> None:
    pooler = own_engine("pgbouncer", target=server.url, pool=2)

    async def work(store: PostgresLetters, number: int) -> list[str]:
        names = [f"{number}/{item}" for item in range(10)]
        done: list[str] = []
        for name in names:
            assert await store.put([letter(name, due=START)], now=START) == [Held.NEW]
            claimed = await store.claim(Claim(owner=str(number), lease=LEASE, limit=2, what=Due(LANE)), now=START)
            answers = await store.settle([Settlement.of(one.lease, Completed()) for one in claimed], now=START)
            assert set(answers) <= {Settled.DONE}
            done += [one.letter.source_id for one in claimed]
        return done

    async def scene() -> None:
        # Each connection costs the driver a slow look at the catalogue.
        where = f"{pooler.url}?schema={namespace}&pool=4"
        async with used(where) as one, used(where) as other:
            done = await asyncio.gather(*(work(store, number) for number, store in enumerate([one, other] * 10)))
            left = await one.claim(Claim(owner="rest", lease=LEASE, limit=500, what=Due(LANE)), now=START)
            finished = Counter(name for names in done for name in names) + Counter(one.letter.source_id for one in left)
            assert finished == Counter(f"{number}/{item}" for number in range(20) for item in range(10))

    asyncio.run(scene())


def test_a_large_batch_is_one_batch(url: str) -> None:
    async def scene() -> None:
        letters = [letter(str(number), due=START) for number in range(5000)]
        ids = [one.id for one in letters]
        async with used(url) as store:
            assert set(await store.put(letters, now=START)) == {Held.NEW}
            assert set(await store.put(letters, now=START)) == {Held.DUPLICATE}
            assert [one and one.id for one in await store.get(ids[:1000], now=START)] == ids[:1000]
            claimed = await store.claim(Claim(owner="ann", lease=LEASE, limit=1000, what=tuple(ids[:1000])), now=START)
            assert [one.letter.id for one in claimed] == ids[:1000]
            ends = [Settlement.of(one.lease, Completed()) for one in claimed]
            assert set(await store.settle(ends, now=START)) == {Settled.DONE}
            assert await store.count(now=START) == 5000

    asyncio.run(scene())


def test_idle_sessions_that_an_administrator_ended_are_replaced(server: Server, url: str) -> None:
    async def scene() -> None:
        async with administrator(server) as admin, used(url) as store:
            patient = ObservedLetters(store)
            for number in range(10):
                await asyncio.gather(*(store.count(now=START) for _ in range(5)))
                await admin.fetch(f"SELECT pg_terminate_backend(pid) {SESSIONS}")
                assert set(await patient.put([letter(str(number))], now=START)) <= {Held.NEW, Held.DUPLICATE}
            assert await store.count(now=START) == 10

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("how", "error", "sentence"),
    [
        pytest.param("pg_terminate_backend", AnswerLost, "it may have been done", id="ended"),
        pytest.param("pg_cancel_backend", StoreUnavailable, "broke this off", id="broken_off"),
    ],
)
def test_a_call_that_an_administrator_ends_is_told_what_is_known(
    server: Server, url: str, namespace: str, how: str, error: type[StoreUnavailable], sentence: str
) -> None:
    async def scene() -> None:
        async with administrator(server) as admin, used(url) as store:
            await store.put([letter("before")], now=START)
            async with admin.transaction():
                await admin.execute(f"LOCK TABLE {namespace}.letters IN EXCLUSIVE MODE")
                putting = asyncio.ensure_future(store.put([letter("during")], now=START))
                while not await admin.fetch(f"SELECT {how}(pid) {HELD_UP}"):
                    assert not putting.done()
                with pytest.raises(error, match=sentence) as told:
                    await putting
                assert type(told.value) is error
            assert await store.put([letter("during")], now=START) == [Held.NEW]

    asyncio.run(scene())


def test_a_call_that_waits_too_long_for_a_lock_is_given_up_at_the_server_too(server: Server, url: str, namespace: str) -> None:
    async def scene() -> None:
        async with used(url) as patient:
            await patient.put([letter("before")], now=START)
        async with administrator(server) as admin, used(url, "&timeout=1.5") as store:
            await store.check()
            for letters in ([letter("during")], [letter("before", failed=2)]):
                async with admin.transaction():
                    await admin.execute(f"LOCK TABLE {namespace}.letters IN EXCLUSIVE MODE")
                    began = time.monotonic()
                    with pytest.raises(StoreUnavailable):
                        await store.put(letters, now=START)
                    assert time.monotonic() - began < 5
                    while await admin.fetch(f"SELECT 1 {HELD_UP}"):
                        pass
            assert await store.put([letter("during"), letter("before", failed=2)], now=START) == [Held.NEW, Held.ATTEMPT]

    asyncio.run(scene())


def test_who_gives_up_amid_a_transaction_on_a_silent_line_is_let_go_soon(server: Server, url: str, namespace: str) -> None:
    async def scene(line: Proxy) -> None:
        through = url.replace(f":{server.port}/", f":{line.port}/")
        async with administrator(server) as admin, used(through) as store:
            await store.put([letter()], now=START)
            async with admin.transaction():
                await admin.execute(f"LOCK TABLE {namespace}.letters IN EXCLUSIVE MODE")
                putting = asyncio.ensure_future(store.put([letter(failed=2)], now=START))
                while not await admin.fetch(f"SELECT 1 {HELD_UP}"):
                    assert not putting.done()
                line.stall()
                putting.cancel()
                began = time.monotonic()
                with pytest.raises(asyncio.CancelledError):
                    await putting
                assert time.monotonic() - began < 5
                line.flow()
            assert set(await store.put([letter(failed=2)], now=START)) <= {Held.ATTEMPT, Held.DUPLICATE}

    with Proxy(server.host, server.port) as line:
        asyncio.run(scene(line))


def test_closing_waits_for_nobody_who_hangs(server: Server, url: str, namespace: str) -> None:
    async def scene() -> None:
        async with administrator(server) as admin, used(url) as store:
            await store.check()
            async with admin.transaction():
                await admin.execute(f"LOCK TABLE {namespace}.letters IN ACCESS EXCLUSIVE MODE")
                hanging = asyncio.ensure_future(store.find(now=START))
                while not await admin.fetch(f"SELECT 1 {HELD_UP}"):
                    assert not hanging.done()
                hanging.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await hanging
                await asyncio.wait_for(store.close(), 5)

    asyncio.run(scene())


@pytest.mark.parametrize("listen", ["yes", "direct"])
def test_those_who_wait_are_woken_by_a_notice(server: Server, url: str, own_engine: OwnEngine, listen: str) -> None:
    pooler = own_engine("pgbouncer", target=server.url, pool=2)
    mine = f"&listen={server.host}:{server.port}" if listen == "direct" else "&listen=yes"
    theirs = pooler.url.replace("?", "") + "?" + url.partition("?")[2] if listen == "direct" else url

    async def scene() -> None:
        async with used(theirs, mine) as waiter, used(url, "&listen=yes") as other:
            waiting = asyncio.ensure_future(waiter.wait([LANE], timedelta(hours=1)))
            await asyncio.wait([waiting], timeout=0.5)
            assert not waiting.done()
            await other.put([letter(due=START)])
            # Whoever is told looks for itself only every half a minute: this was the notice.
            await asyncio.wait_for(waiting, 10)

    asyncio.run(scene())


def test_where_nothing_can_be_heard_those_who_wait_look_for_themselves(url: str) -> None:
    async def scene() -> None:
        async with used(url, "&listen=127.0.0.1:1") as letters:
            waiting = asyncio.ensure_future(letters.wait([LANE], timedelta(hours=1)))
            await asyncio.wait([waiting], timeout=0.2)
            assert not waiting.done()
            await letters.put([letter(due=START)])
            await asyncio.wait_for(waiting, 20)
            assert len(await letters.claim(Claim(owner="ann", lease=LEASE, what=Due(LANE)))) == 1

    asyncio.run(scene())


def test_the_server_is_asked_once_what_its_types_are(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, asked = asyncpg.Connection._introspect_types, []

    async def told(self: asyncpg.Connection, typeoids: Iterable[int], timeout: float) -> object:
        asked.append(self.get_server_pid())
        return await ask(self, typeoids, timeout)

    async def main() -> None:
        async with used(url) as letters:
            given = [letter(str(number), due=START) for number in range(40)]
            await asyncio.gather(*(letters.put([one], now=START) for one in given))
            assert len((await letters.find(now=START)).letters) == 40
            assert len(await letters.get([one.id for one in given], now=START)) == 40
            assert len(await letters.claim(Claim(what=Due(LANE), limit=40, owner="w", lease=LEASE), now=START)) == 40

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", told)
    asyncio.run(main())
    assert len(asked) == 1, "by the first connection of all, before anybody waits for a pool that grows"


def test_sessions_write_their_pages_out_little_by_little(url: str) -> None:
    async def main() -> None:
        async with used(url) as letters:
            ((flushed, compiled),) = await letters._database.read(
                "SELECT current_setting('backend_flush_after'), current_setting('jit')"
            )
            assert (flushed, compiled) == ("256kB", "off")

    asyncio.run(main())
