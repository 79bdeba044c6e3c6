"""Redis and the world around it: servers that forget, restart, hang up or say nothing; loops, forks and TLS."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import subprocess
import sys
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis.stateful import run_state_machine_as_test
from redis import Redis

from dev.engines.redis import ask
from redrive.backends.redis import RedisLetters, opened_tls
from redrive.backends.redis.address import parsed
from redrive.model.arrival import Held
from redrive.model.errors import (
    AnswerLost,
    StoreFull,
    StoreUnavailable,
)
from redrive.model.finding import Health
from redrive.model.lease import Claim, Due
from redrive.model.query import EVERYTHING
from redrive.model.settlement import Completed, Released, Settled, Settlement
from redrive.testing import LetterMachine, letter
from redrive.testing.kit.samples import LANE
from redrive.testing.kit.strategies import effort
from redrive.testing.proxy import Proxy
from redrive.testing.servers import free_port
from tests.engines import OwnEngine
from tests.unit.redis_use import examined, held, location, used

own = pytest.mark.engine("redis", own=True)
shared = pytest.mark.engine("redis")


@own
def test_a_server_without_memory_is_full_and_holds_no_half_of_a_batch(own_engine: OwnEngine) -> None:
    server = own_engine("redis", more=["--maxmemory", "6mb"])
    where = location(server.url)

    async def fill(letters: RedisLetters) -> int:
        for number in itertools.count():
            try:
                await letters.put([letter(f"{number}/{item}", body=bytes(50_000)) for item in range(4)])
            except StoreFull:
                assert await letters.count() == 4 * number > 0
                break
        ask(server.port, "CONFIG", "SET", "maxmemory", "1mb")
        with pytest.raises(StoreFull, match="no memory left"):
            await letters.check()
        removed = await letters.purge(EVERYTHING, limit=8)
        ask(server.port, "CONFIG", "SET", "maxmemory", "6mb")
        return len(removed)

    assert used(where, fill) == 8
    assert used(where, lambda letters: held(letters, "fits")) == [Held.NEW]


@own
def test_looking_at_an_empty_server_writes_nothing(own_engine: OwnEngine) -> None:
    server = own_engine("redis")

    async def look(letters: RedisLetters) -> None:
        await letters.check()
        assert await letters.count() == 0
        assert (await letters.find()).letters == ()
        assert (await letters.groups()).groups == ()

    used(location(server.url), look)
    findings = asyncio.run(examined(location(server.url)))
    assert [finding.health for finding in findings] == [Health.OK, Health.OK, Health.OK]
    assert ask(server.port, "DBSIZE").strip() == ":0"


@own
def test_whatever_was_done_a_purge_leaves_nothing_but_how_the_store_is_laid_out(own_engine: OwnEngine) -> None:
    server = own_engine("redis", durable=False)
    stores = itertools.count()

    def machine() -> LetterMachine:
        where = location(server.url, prefix=f"store{next(stores)}", durability="none")
        return LetterMachine(RedisLetters(parsed(where, is_tls=False)), runner.run)

    with asyncio.Runner() as runner:
        # Its end lets every lease run out and purges all letters.
        run_state_machine_as_test(machine, settings=effort(15, chaos=200, steps=20))  # type: ignore[arg-type]  # any maker will do
    with Redis(port=server.port) as client:
        kinds = {key.rpartition(b"}")[2] for key in client.scan_iter()}
    assert kinds <= {b"meta", b"fence"}


@shared
def test_tokens_rise_although_the_servers_clock_was_once_ahead(namespace: str) -> None:
    url = os.environ["REDRIVE_TEST_REDIS"]
    ahead = 2**52
    ask(int(url.rpartition(":")[2].partition("/")[0]), "SET", f"{{{namespace}:0}}fence", str(ahead))

    async def claim(letters: RedisLetters) -> list[int]:
        await letters.put([letter("1")])
        tokens = []
        for _ in range(3):
            (claimed,) = await letters.claim(Claim(owner="ann", lease=timedelta(hours=1), what=(letter("1").id,)))
            await letters.settle([Settlement.of(claimed.lease, Released())])
            tokens.append(claimed.lease.token)
        return tokens

    assert used(location(url, prefix=namespace), claim) == [ahead + 1, ahead + 2, ahead + 3]


@own
def test_a_server_that_forgot_its_scripts_learns_them_again(own_engine: OwnEngine) -> None:
    server = own_engine("redis")

    async def forget(letters: RedisLetters) -> None:
        await held(letters, "1")
        ask(server.port, "SCRIPT", "FLUSH")
        assert await held(letters, "1", "2") == [Held.DUPLICATE, Held.NEW]

    used(location(server.url), forget)


@own
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_what_was_confirmed_survives_a_restart_and_the_store_goes_on(own_engine: OwnEngine, how: str) -> None:
    server = own_engine("redis")

    async def restart(letters: RedisLetters) -> None:
        await letters.put([letter(str(number), due=datetime(2025, 1, 1, tzinfo=UTC)) for number in range(20)])
        claimed = await letters.claim(Claim(owner="ann", lease=timedelta(hours=1), limit=5, what=Due(LANE)))
        before = (await letters.find(limit=100)).letters
        # Not on the loop: it is to notice that its connections are gone.
        await asyncio.to_thread(getattr(server, how))
        with pytest.raises(StoreUnavailable) as caught:
            await held(letters, "down")
        assert not isinstance(caught.value, AnswerLost)
        server.start()
        assert (await letters.find(limit=100)).letters == before
        assert await letters.settle([Settlement.of(one.lease, Completed()) for one in claimed]) == [Settled.DONE] * 5
        again = await letters.claim(Claim(owner="bob", lease=timedelta(hours=1), what=Due(LANE)))
        assert len(again) == 15
        assert min(one.lease.token for one in again) > claimed[0].lease.token

    used(location(server.url), restart)


@shared
@pytest.mark.parametrize("fault", ["cut", "silence"])
def test_a_lost_answer_is_told_apart_from_a_refusal(namespace: str, fault: str) -> None:
    host, _, port = os.environ["REDRIVE_TEST_REDIS"].removeprefix("redis://").removesuffix("/0").partition(":")
    with Proxy(host, int(port)) as proxy:
        where = f"//{proxy.host}:{proxy.port}?prefix={namespace}&timeout=2"

        async def lose(letters: RedisLetters) -> None:
            await held(letters, "before")
            if fault == "cut":
                proxy.cut_after(answer_bytes=0)
            else:
                proxy.swallow_answers()
            with pytest.raises(AnswerLost, match="it may have been done or not"):
                await held(letters, "lost")
            proxy.swallow_answers()
            with pytest.raises(StoreUnavailable) as caught:
                await letters.count()
            assert not isinstance(caught.value, AnswerLost), "reading again does no harm"
            proxy.pass_answers()
            assert await held(letters, "lost") == [Held.DUPLICATE], "it had been done"
            proxy.refuse()
            await asyncio.to_thread(proxy.cut)
            with pytest.raises(StoreUnavailable) as caught:
                await held(letters, "never")
            assert not isinstance(caught.value, AnswerLost)
            proxy.accept()
            assert await held(letters, "never") == [Held.NEW]

        used(where, lose)


@shared
def test_a_request_that_is_cut_in_its_middle_changes_nothing(namespace: str) -> None:
    host, _, port = os.environ["REDRIVE_TEST_REDIS"].removeprefix("redis://").removesuffix("/0").partition(":")
    with Proxy(host, int(port)) as proxy:

        async def cut(letters: RedisLetters) -> None:
            await held(letters, "before")
            proxy.cut_after(request_bytes=5_000)
            with pytest.raises(AnswerLost):
                await letters.put([letter(str(number), body=bytes(1000)) for number in range(20)])
            assert await letters.count() == 1

        used(f"//{proxy.host}:{proxy.port}?prefix={namespace}", cut)


@shared
def test_several_event_loops_share_a_store_and_leave_nothing_open(namespace: str) -> None:
    letters = RedisLetters(parsed(location(os.environ["REDRIVE_TEST_REDIS"], prefix=namespace), is_tls=False))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(3):
            assert asyncio.run(held(letters, str(number))) == [Held.NEW]
        assert asyncio.run(letters.count()) == 3
        asyncio.run(letters.close())
        gc.collect()


@shared
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_has_its_own_connections(namespace: str) -> None:
    program = f"""
import asyncio, os
from redrive.backends.redis import opened
from redrive.testing import LetterMachine, letter
from redrive.testing.kit.strategies import effort
from redrive.testing.kit.samples import LANE
letters = opened({location(os.environ["REDRIVE_TEST_REDIS"], prefix=namespace)!r}).letters
loop = asyncio.new_event_loop()
loop.run_until_complete(letters.put([letter("parent")]))
if (child := os.fork()) == 0:
    asyncio.set_event_loop(None)
    asyncio.run(letters.put([letter("child")]))
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(loop.run_until_complete(letters.count()))
loop.run_until_complete(letters.close())
loop.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("2\n", "")


@own
def test_letters_travel_over_tls(own_engine: OwnEngine, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*made, *subject], check=True, capture_output=True, timeout=60)
    port = free_port()
    tls = ["--tls-port", str(port), "--tls-cert-file", str(cert), "--tls-key-file", str(key), "--tls-auth-clients", "no"]
    own_engine("redis", more=tls)

    async def scene(where: str) -> list[Held]:
        letters = opened_tls(where).letters
        try:
            return await letters.put([letter()])
        finally:
            await letters.close()

    assert asyncio.run(scene(f"//127.0.0.1:{port}?ca={cert}")) == [Held.NEW]
    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        asyncio.run(scene(f"//127.0.0.1:{port}"))


@own
def test_the_doctor_says_how_durable_and_how_full_it_is(own_engine: OwnEngine) -> None:
    server = own_engine("redis", durable=False, more=["--maxmemory", "100mb"])
    assert "does not keep letters durably" in asyncio.run(examined(location(server.url)))[0].detail
    where = location(server.url, durability="none")
    used(where, lambda letters: held(letters, "1", "2"))
    store, durability, memory = asyncio.run(examined(where))
    assert (store.health, durability.health, memory.health) == (Health.OK, Health.NOTE, Health.OK)
    assert "holds 2 letters" in store.detail
    assert "keeps letters: none" in durability.detail
    assert "of 100.0 MB" in memory.detail or "of 104.9 MB" in memory.detail
    server.kill()
    (dead,) = asyncio.run(examined(where))
    assert dead.health is Health.BAD
