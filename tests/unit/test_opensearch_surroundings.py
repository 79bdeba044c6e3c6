"""OpenSearch and the world around it: other processes, other clocks, a client of somebody else's, kills, loops, forks and TLS."""

from __future__ import annotations

import asyncio
import gc
import os
import ssl
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from opensearchpy import AsyncOpenSearch

import redrive
from redrive.backends.opensearch import OpenSearchLetters, opened, opened_tls, over
from redrive.model.arrival import Held
from redrive.model.errors import AnswerLost, BadSettings, StoreNotWritable, StoreUnavailable
from redrive.model.finding import Health
from redrive.model.lease import Claim, Due
from redrive.model.letter import Letter
from redrive.model.query import EVERYTHING, At, Field, Is, Place
from redrive.model.settlement import Completed, Released, Settled, Settlement
from redrive.testing import letter
from redrive.testing.kit.samples import LANE, START, failure
from redrive.testing.proxy import Proxy
from redrive.testing.watcher import until
from tests.engines import OwnEngine
from tests.unit.opensearch_use import ask, examined, held, location, node, used

own = pytest.mark.engine("opensearch", own=True)
shared = pytest.mark.engine("opensearch")
HOUR = timedelta(hours=1)
LONG = timedelta(seconds=30)
DUE = Claim(owner="ann", lease=HOUR, what=Due(LANE))


def puts(where: str, *names: str) -> str:
    """A program that puts letters which are due."""
    return f"""
import asyncio
from redrive.backends.opensearch import opened
from redrive.testing.kit.samples import START, letter
async def put():
    letters = opened({where!r}).letters
    await letters.put([letter(name, due=START) for name in {names!r}])
    await letters.close()
asyncio.run(put())
"""


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True)


@shared
def test_looking_at_a_store_that_is_not_there_makes_none(namespace: str) -> None:
    async def look(letters: OpenSearchLetters) -> None:
        await letters.check()
        assert await letters.count() == 0
        assert (await letters.find()).letters == ()
        assert (await letters.groups()).groups == ()
        assert await letters.tally(Field.STATUS) == {}
        assert await letters.get([letter().id]) == [None]

    used(location(namespace), look)
    (finding,) = asyncio.run(examined(location(namespace)))
    assert (finding.health, "the first letter makes it" in finding.detail) == (Health.NOTE, True)
    assert ask("GET", f"/{namespace}")["status"] == 404


@shared
def test_the_index_and_its_template_are_made_as_the_url_says(namespace: str) -> None:
    used(f"{location(namespace)}?shards=2&replicas=0", lambda letters: held(letters, "1"))
    settings = ask("GET", f"/{namespace}")[namespace]["settings"]["index"]
    assert (settings["number_of_shards"], settings["number_of_replicas"]) == ("2", "0")
    assert settings["translog"]["durability"] == "request"
    (template,) = ask("GET", f"/_index_template/redrive-{namespace}")["index_templates"]
    assert template["index_template"]["version"] == 1
    ask("DELETE", f"/{namespace}")
    ask("PUT", f"/{namespace}/_doc/by_chance", {})
    assert ask("GET", f"/{namespace}")[namespace]["mappings"]["_meta"] == {"redrive": {"schema": 1}}


@shared
@pytest.mark.parametrize("shards", [1, 3])
def test_own_writes_are_found_at_once_and_those_of_others_soon(namespace: str, shards: int) -> None:
    where = f"{location(namespace)}?shards={shards}"

    async def look(letters: OpenSearchLetters) -> None:
        for number in range(10):
            await held(letters, str(number))
            assert await letters.count() == number + 1
        await asyncio.to_thread(run, puts(where, "theirs"))
        assert await letters.get([letter("theirs").id]) == [letter("theirs", due=START)], "by its id at once"
        deadline = asyncio.get_running_loop().time() + LONG.total_seconds()
        while await letters.count() < 11:
            assert asyncio.get_running_loop().time() < deadline

    used(where, look)


@shared
def test_a_claim_that_finds_too_few_looks_at_what_others_have_just_written(namespace: str) -> None:
    where = location(namespace)

    async def claim(letters: OpenSearchLetters) -> None:
        assert await letters.claim(DUE) == []
        await asyncio.to_thread(ask, "PUT", f"/{namespace}/_settings", {"index.refresh_interval": "-1"})
        await asyncio.to_thread(run, puts(where, "a", "b"))
        assert len(await letters.claim(DUE)) == 2

    used(where, claim)


@shared
def test_a_clock_that_is_ahead_steals_no_lease(namespace: str) -> None:
    async def steal(letters: OpenSearchLetters) -> None:
        await letters.put([letter(due=START)])
        (claimed,) = await letters.claim(DUE)
        thief = opened(location(namespace)).letters
        assert isinstance(thief, OpenSearchLetters)
        index = await thief.index()
        await index.now()
        index.clock.heard(datetime.now(UTC) + 2 * HOUR)
        for what in (Due(LANE), EVERYTHING, (letter().id,)):
            assert await thief.claim(Claim(owner="eve", lease=HOUR, what=what)) == []
        assert await letters.settle([Settlement.of(claimed.lease, Completed())]) == [Settled.DONE]
        await thief.close()

    used(location(namespace), steal)


@shared
def test_a_lease_that_ended_by_the_node_s_clock_settles_nothing(namespace: str) -> None:
    async def late(letters: OpenSearchLetters) -> None:
        await letters.put([letter(due=START)])
        (claimed,) = await letters.claim(Claim(owner="ann", lease=timedelta(milliseconds=1), what=Due(LANE)))
        await asyncio.to_thread(until, lambda: datetime.now(UTC) > claimed.lease.until + timedelta(milliseconds=50), LONG)
        assert await letters.settle([Settlement.of(claimed.lease, Completed())]) == [Settled.LEASE_LOST]
        assert await letters.extend([claimed.lease], HOUR) == [None]
        assert len(await letters.claim(DUE)) == 1

    used(location(namespace), late)


@shared
def test_two_who_race_get_different_letters_and_all_of_them(namespace: str) -> None:
    async def race(letters: OpenSearchLetters) -> None:
        await letters.put([letter(str(number), due=START) for number in range(300)])
        other = opened(location(namespace)).letters
        claims = [one.claim(Claim(owner=str(one), lease=HOUR, limit=40, what=Due(LANE))) for one in (letters, other) * 4]
        claimed = [one.letter.id for answer in await asyncio.gather(*claims) for one in answer]
        assert len(claimed) == len(set(claimed)) == 300
        await other.close()

    used(location(namespace), race)


@shared
def test_a_batch_beyond_one_request_is_held_whole_and_large_letters_come_back(namespace: str) -> None:
    big = [letter(f"big {number}", body=os.urandom(400_000), due=START) for number in range(20)]
    small = [letter(f"small {number}", due=START) for number in range(20)]

    async def hold(letters: OpenSearchLetters) -> None:
        assert await letters.put([*big, *small]) == [Held.NEW] * 40
        assert await letters.get([one.id for one in big]) == big
        found: list[Letter] = list((await letters.find(limit=100)).letters)
        assert sorted(found, key=lambda one: one.id) == sorted([*big, *small], key=lambda one: one.id)
        claimed = await letters.claim(DUE)
        assert {one.letter.body for one in claimed} == {one.body for one in [*big, *small]}
        ends = [Settlement.of(one.lease, Released()) for one in claimed]
        assert await letters.settle(ends) == [Settled.DONE] * 40
        assert len(await letters.purge(EVERYTHING)) == 40

    used(location(namespace), hold)


@shared
def test_a_purge_passes_over_what_is_held_and_what_does_not_match_and_takes_the_rest(namespace: str) -> None:
    letters = [
        letter(str(number), at=START + timedelta(minutes=number), body=b'{"n": %d}' % (number % 3)) for number in range(30)
    ]

    async def purge(store: OpenSearchLetters) -> None:
        await store.put(letters)
        await store.claim(Claim(owner="ann", lease=HOUR, what=tuple(one.id for one in letters[3:9])))
        wanted = At(Place.BODY, ("n",), 0)
        assert await store.purge(wanted, limit=3) == [letters[0], letters[9], letters[12]]
        assert [one.source_id for one in await store.purge(EVERYTHING, limit=4)] == ["1", "2", "10", "11"]
        assert len(await store.claim(Claim(owner="bob", lease=HOUR, limit=2, what=wanted))) == 2

    used(location(namespace), purge)


@shared
def test_more_groups_than_fit_into_one_answer_are_counted_exactly(namespace: str) -> None:
    letters = [letter(str(number), failure=failure(fingerprint=f"f{number % 2500}")) for number in range(3000)]

    async def count(store: OpenSearchLetters) -> None:
        await store.put(letters)
        tally = await store.tally(Field.GROUP)
        assert len(tally) == 2500
        assert sum(tally.values()) == 3000
        first = await store.groups(limit=2000)
        rest = await store.groups(limit=2000, after=first.next)
        assert rest.next is None
        assert {group.fingerprint: group.count for group in (*first.groups, *rest.groups)} == tally

    used(location(namespace), count)


@shared
def test_a_store_over_a_client_of_somebody_else_leaves_it_open(namespace: str) -> None:
    async def scene() -> OpenSearchLetters:
        async with AsyncOpenSearch(hosts=[node()]) as client:
            store = over(client, index=namespace)
            letters = store.letters
            assert isinstance(letters, OpenSearchLetters)
            assert await letters.put([letter(due=START)]) == [Held.NEW]
            (claimed,) = await letters.claim(DUE)
            assert await letters.settle([Settlement.of(claimed.lease, Completed())]) == [Settled.DONE]
            desk = uuid4()
            assert await store.bind(desk) == await store.bind(uuid4()) == desk
            assert Health.BAD not in {finding.health for finding in await store.examine()}
            await letters.close()
            with pytest.raises(StoreUnavailable, match="was closed; make it again"):
                await letters.count()
            await client.indices.refresh(index=namespace)
            assert (await client.count(index=namespace, body={"query": {"term": {"status": "completed"}}}))["count"] == 1
            again = over(client, index=namespace).letters
            assert isinstance(again, OpenSearchLetters)
            assert await again.count() == 1
            return again

    letters = asyncio.run(scene())
    with pytest.raises(BadSettings, match="belongs to that client's event loop"):
        asyncio.run(letters.count())


@shared
def test_the_retries_of_somebody_else_s_client_are_passed_by(namespace: str) -> None:
    place = urlsplit(node())
    assert place.hostname
    assert place.port
    with Proxy(place.hostname, place.port) as line:

        async def scene() -> None:
            async with AsyncOpenSearch(hosts=[{"host": line.host, "port": line.port}], max_retries=5) as client:
                letters = over(client, index=namespace).letters
                assert await letters.put([letter("before")]) == [Held.NEW]
                line.cut_after(answer_bytes=0)
                with pytest.raises(AnswerLost):
                    await letters.put([letter("lost")])
                line.refuse()
                await asyncio.to_thread(line.cut)
                with pytest.raises(StoreUnavailable) as caught:
                    await letters.put([letter("never")])
                assert not isinstance(caught.value, AnswerLost) or "lost" in str(caught.value)
                line.accept()
                assert await letters.put([letter("lost")]) in ([Held.DUPLICATE], [Held.NEW])

        asyncio.run(scene())


@shared
def test_a_store_with_its_desk_elsewhere_is_opened_by_its_url(namespace: str, tmp_path: Path) -> None:
    from redrive.settings import Settings
    from redrive.wiring import connect

    url = f"opensearch:{location(namespace)}"

    async def scene(desk: str) -> int:
        async with connect(Settings(store=url, desk=f"sqlite:{tmp_path}/{desk}", journal=str(tmp_path / "journal"))) as dlq:
            await dlq.letters.put([letter()])
            await dlq.desk.audit()
            return await dlq.letters.count()

    assert asyncio.run(scene("desk.db")) == 1
    with pytest.raises(redrive.RedriveError):
        asyncio.run(scene("other.db"))


WRITER = """
import asyncio, sys
from redrive import StoreUnavailable
from redrive.backends.opensearch import opened
from redrive.testing.kit.samples import START, letter
async def live():
    letters = opened(sys.argv[1]).letters
    for number in range(10**6):
        names = [f"{number}/{item}" for item in range(5)]
        try:
            await letters.put([letter(name, due=START) for name in names])
        except StoreUnavailable:
            await asyncio.sleep(0.01)
        else:
            print(*names, flush=True)
asyncio.run(live())
"""


@own
def test_a_server_that_is_killed_under_load_loses_nothing_that_was_confirmed(own_engine: OwnEngine) -> None:
    server = own_engine("opensearch")
    where = location("loaded", server.url)
    with subprocess.Popen([sys.executable, "-c", WRITER, where], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        confirmed: list[str] = []
        try:
            confirmed += [name for _ in range(40) for name in writer.stdout.readline().split()]
            assert len(confirmed) == 200
            server.kill()
            server.start()
            confirmed += [name for _ in range(10) for name in writer.stdout.readline().split()]
        finally:
            writer.kill()
        confirmed += writer.stdout.read().rpartition("\n")[0].split()

    async def look(letters: OpenSearchLetters) -> None:
        found = await letters.get([letter(name).id for name in confirmed])
        assert None not in found
        assert await letters.count() >= len(confirmed)
        assert await letters.count(Is(Field.STATUS, "pending")) == await letters.count()

    used(where, look)


@shared
def test_several_event_loops_share_a_store_and_leave_nothing_open(namespace: str) -> None:
    letters = opened(location(namespace)).letters
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(3):
            assert asyncio.run(letters.put([letter(str(number))])) == [Held.NEW]
        assert asyncio.run(letters.count()) == 3
        asyncio.run(letters.close())
        gc.collect()


@shared
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_has_its_own_connections(namespace: str) -> None:
    program = f"""
import asyncio, os
from redrive.backends.opensearch import opened
from redrive.testing import letter
letters = opened({location(namespace)!r}).letters
loop = asyncio.new_event_loop()
loop.run_until_complete(letters.put([letter("parent")]))
if (child := os.fork()) == 0:
    asyncio.set_event_loop(None)
    asyncio.run(letters.put([letter("child")]))
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(len([one for one in loop.run_until_complete(letters.get([letter("parent").id, letter("child").id])) if one]))
loop.run_until_complete(letters.close())
loop.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("2\n", "")


@asynccontextmanager
async def encrypted(cert: Path, key: Path) -> AsyncIterator[int]:
    """A TLS front of the shared node; its port."""
    place = urlsplit(node())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, here = await asyncio.open_connection(place.hostname, place.port)
        await asyncio.gather(pass_on(reader, here), pass_on(there, writer))

    async with await asyncio.start_server(serve, "127.0.0.1", ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


@shared
def test_letters_travel_over_tls(namespace: str, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*made, *subject], check=True, capture_output=True, timeout=60)

    async def scene() -> None:
        async with encrypted(cert, key) as port:
            trusting = opened_tls(f"//127.0.0.1:{port}/{namespace}?ca={cert}").letters
            assert await trusting.put([letter()]) == [Held.NEW]
            await trusting.close()
            wary = opened_tls(f"//127.0.0.1:{port}/{namespace}").letters
            with pytest.raises(StoreNotWritable, match=r"a certificate that is not trusted .*; name its issuer with \?ca="):
                await wary.count()
            await wary.close()

    asyncio.run(scene())


@shared
def test_the_doctor_says_what_there_is_and_what_is_amiss(namespace: str) -> None:
    used(location(namespace), lambda letters: held(letters, "1", "2"))
    findings = {finding.what: finding for finding in asyncio.run(examined(location(namespace)))}
    assert findings["store"].detail.endswith("is writable, has schema 1 and holds 2 letters")
    assert {name: finding.health for name, finding in findings.items()}.items() >= {
        "store": Health.OK, "durability": Health.OK, "refresh": Health.OK, "cluster": Health.OK, "replicas": Health.NOTE,
    }.items()  # fmt: skip
    amiss = {"index.refresh_interval": "-1", "index.translog.durability": "async"}
    ask("PUT", f"/{namespace}/_settings", amiss)
    findings = {finding.what: finding for finding in asyncio.run(examined(location(namespace)))}
    assert (findings["refresh"].health, findings["durability"].health) == (Health.BAD, Health.BAD)
    ask("PUT", f"/{namespace}/_settings", {"index.blocks.write": True})
    (finding,) = asyncio.run(examined(location(namespace)))
    assert (finding.what, finding.health) == ("store", Health.BAD)
