"""What an OpenSearch must be to be trusted with letters, and what its URL must say; each refusal is one clear sentence."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable

import pytest

from redrive.backends.opensearch import OpenSearchLetters, opened
from redrive.backends.opensearch.address import Address, parsed
from redrive.backends.opensearch.mapping import mappings
from redrive.model.arrival import Held
from redrive.model.errors import (
    AnswerLost,
    BadSettings,
    RedriveError,
    SchemaTooNew,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreNotWritable,
    StoreUnavailable,
)
from redrive.model.query import EVERYTHING, Field, Is, Op, Or
from redrive.testing import letter
from tests.unit.opensearch_use import ask, held, location, pretending, refusal, used

shared = pytest.mark.engine("opensearch")


def test_a_url_says_where_the_index_is() -> None:
    assert parsed("//db", is_tls=False) == Address(hosts=(("db", 9200),))
    assert parsed("//ann:p%40%2Fss@a:1,[::1]:2,c/shop?timeout=5&shards=3&replicas=2", is_tls=True) == Address(
        hosts=(("a", 1), ("::1", 2), ("c", 9200)),
        index="shop",
        username="ann",
        password="p@/ss",
        is_tls=True,
        timeout=parsed("//a?timeout=5", is_tls=False).timeout,
        shards=3,
        replicas=2,
    )
    assert "p@/ss" not in repr(parsed("//ann:p%40%2Fss@a", is_tls=False))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "names a host"),
        ("//", "names a host"),
        ("redrive", "names a host"),
        ("//ann:secr3t@", "names a host"),
        ("//ann:se/secr3t@host", "cannot be read"),
        ("//host:99999", "cannot be read"),
        ("//host:secr3t", "cannot be read"),
        ("//host,", "cannot be read"),
        ("//host/Shop", "'Shop' cannot be an index"),
        ("//host/_all", "'_all' cannot be an index"),
        ("//host/a*", "'a*' cannot be an index"),
        ("//host/a/b", "'a/b' cannot be an index"),
        ("//host?shard=1", "no option 'shard'; did you mean shards"),
        ("//host?shards=0", "shards=0 must be a number from 1"),
        ("//host?replicas=-1", "replicas=-1 must be a number from 0"),
        ("//host?timeout=soon", "timeout=soon must be a number of seconds"),
    ],
)
def test_a_mistake_in_a_url_is_told(url: str, says: str) -> None:
    with pytest.raises(BadSettings) as caught:
        opened(url)
    assert says in str(caught.value)
    assert "secr3t" not in str(caught.value)


def test_the_missing_driver_is_named() -> None:
    program = """
import sys
sys.modules["opensearchpy"] = None
import redrive
try:
    redrive.open("opensearch://localhost")
except redrive.MissingExtra as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "opensearch: needs opensearch-py; install it with: pip install 'redrive[opensearch]'\n"


def test_a_server_that_is_not_there_is_unavailable_and_nothing_was_done() -> None:
    error = refusal("//127.0.0.1:1", lambda letters: held(letters, "1"))
    assert type(error) is StoreUnavailable
    assert str(error).startswith("cannot reach index 'redrive' of OpenSearch at 127.0.0.1:1 (connection refused); does it run")
    assert type(refusal("//no.such.host.invalid")) is StoreUnavailable


@shared
def test_of_several_hosts_one_that_answers_is_enough(namespace: str) -> None:
    host = location(namespace).removeprefix("//")
    for _ in range(3):
        used(f"//127.0.0.1:1,{host}", lambda letters: held(letters, "1"))
    assert used(location(namespace), lambda letters: letters.count()) == 1


REFUSED = "security_exception"


@pytest.mark.parametrize(
    ("status", "error", "expected", "says"),
    [
        (401, "Unauthorized", StoreNotWritable, "does not know this user and password; mend the URL"),
        (403, {"type": REFUSED, "reason": "no permissions"}, StoreNotWritable, "may not do that on index 'redrive'"),
        (429, {"type": "rejected_execution_exception", "reason": "queue"}, StoreUnavailable, "has too much to do"),
        (429, {"type": "circuit_breaking_exception", "reason": "heap"}, StoreUnavailable, "has no memory for this now"),
        (503, {"type": "cluster_block_exception", "reason": "SERVICE_UNAVAILABLE/1"}, StoreUnavailable, "is not ready"),
        (413, None, StoreNotWritable, "raise its http.max_content_length"),
        (502, "<html>", StoreUnavailable, "nobody answers"),
        (500, {"type": "odd", "reason": "out of\nluck"}, StoreError, "could not do it: out of"),
    ],
)
def test_a_refusal_says_what_to_do_and_that_nothing_was_done(
    status: int, error: object, expected: type[RedriveError], says: str
) -> None:
    async def scene() -> RedriveError:
        async with pretending(lambda _: (status, {"error": error, "status": status})) as port:
            letters = opened(f"//ann:secr3t@127.0.0.1:{port}").letters
            with pytest.raises(RedriveError) as caught:
                await letters.put([letter()])
            await letters.close()
            return caught.value

    told = asyncio.run(scene())
    assert type(told) is expected
    assert says in str(told)
    assert "secr3t" not in str(told)
    assert "\n" not in str(told)


@pytest.mark.parametrize(("done", "expected"), [(0, StoreUnavailable), (1, AnswerLost)])
def test_a_batch_of_which_a_part_was_refused_is_told_apart_from_one_that_was_not_done(
    done: int, expected: type[RedriveError]
) -> None:
    rejected = {"create": {"status": 429, "error": {"type": "rejected_execution_exception", "reason": "queue"}}}
    items = [{"create": {"status": 201, "result": "created"}}] * done + [rejected] * (2 - done)
    ground = {"redrive": {"mappings": {"_meta": {"redrive": {"schema": 1}}}, "settings": {"index.uuid": f"fake {done}"}}}
    now = {"aggregations": {"now": {"buckets": [{"from": 1.7e12}]}}}

    def answer(first: str) -> tuple[int, object]:
        return 200, {"items": items} if "_bulk" in first else now if "_search" in first else ground

    async def scene() -> RedriveError:
        async with pretending(answer) as port:
            letters = opened(f"//127.0.0.1:{port}").letters
            with pytest.raises(RedriveError) as caught:
                await letters.put([letter("1"), letter("2")])
            await letters.close()
            return caught.value

    assert type(asyncio.run(scene())) is expected


def test_a_cluster_that_is_still_starting_is_not_taken_for_an_empty_one() -> None:
    missing = 404, {"error": {"type": "index_not_found_exception", "reason": "no such index"}, "status": 404}
    blocks = 200, {"blocks": {"global": {"1": {"description": "state not recovered / initialized"}}}}

    async def scene() -> RedriveError:
        async with pretending(lambda first: blocks if "_cluster" in first else missing) as port:
            letters = opened(f"//127.0.0.1:{port}").letters
            with pytest.raises(StoreUnavailable) as caught:
                await letters.count()
            await letters.close()
            return caught.value

    assert "is still starting; try again" in str(asyncio.run(scene()))


def test_what_is_no_opensearch_is_told_in_one_sentence() -> None:
    async def scene() -> RedriveError:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"+PONG\r\n")
            await writer.drain()
            await reader.read()
            writer.close()

        async with await asyncio.start_server(greet, "127.0.0.1") as server:
            letters = opened(f"//127.0.0.1:{server.sockets[0].getsockname()[1]}").letters
            with pytest.raises(StoreUnavailable) as caught:
                await letters.count()
            await letters.close()
            return caught.value

    assert "did not answer" in str(asyncio.run(scene()))


@shared
def test_another_program_s_index_is_left_alone(namespace: str) -> None:
    ask("PUT", f"/{namespace}/_doc/1", {"theirs": True})
    for use in USES:
        error = refusal(location(namespace), use)
        assert isinstance(error, StoreCorrupt)
        assert f"the index '{namespace}' of OpenSearch" in str(error)
        assert "was not made by redrive; choose another name" in str(error)
    assert ask("GET", f"/{namespace}/_count")["count"] in (0, 1)
    assert "status" not in ask("GET", f"/{namespace}/_mapping")[namespace]["mappings"]["properties"]


USES: list[Callable[[OpenSearchLetters], object]] = [
    lambda letters: letters.check(),
    lambda letters: letters.count(),
    lambda letters: held(letters, "1"),
]


@shared
def test_a_newer_schema_is_refused_and_nothing_is_written(namespace: str) -> None:
    ask("PUT", f"/{namespace}", {"mappings": {**mappings(), "_meta": {"redrive": {"schema": 2}}}, "settings": _words()})
    for use in USES:
        error = refusal(location(namespace), use)
        assert isinstance(error, SchemaTooNew)
        assert "has schema 2, this redrive knows 1; upgrade redrive to open it" in str(error)
    ask("POST", f"/{namespace}/_refresh")
    assert ask("GET", f"/{namespace}/_count")["count"] == 0


@shared
def test_an_older_schema_is_upgraded(namespace: str) -> None:
    older = {
        "dynamic": False,
        "_meta": {"redrive": {"schema": 0}},
        "properties": {"task_id": {"type": "keyword", "ignore_above": 8191}},
    }
    ask("PUT", f"/{namespace}", {"mappings": older, "settings": _words()})
    assert used(location(namespace), lambda letters: held(letters, "1")) == [Held.NEW]
    assert ask("GET", f"/{namespace}/_mapping")[namespace]["mappings"]["_meta"] == {"redrive": {"schema": 1}}


def _words() -> dict[str, object]:
    words = {"type": "custom", "tokenizer": "whitespace"}
    return {"analysis": {"analyzer": {"redrive_words": words}}}


@shared
def test_a_name_of_several_indexes_is_refused(namespace: str) -> None:
    for number in range(2):
        ask("PUT", f"/{namespace}-{number}", {"aliases": {namespace: {}}})
    error = refusal(location(namespace))
    assert isinstance(error, BadSettings)
    assert f"'{namespace}' names 2 indexes; name one of them: {namespace}-0, {namespace}-1" in str(error)


@shared
@pytest.mark.parametrize(
    ("block", "expected", "says"),
    [
        ("blocks.write", StoreNotWritable, "is set to be read only"),
        ("blocks.read_only", StoreNotWritable, "lift that block there"),
        ("blocks.read_only_allow_delete", StoreFull, "is nearly full, so it takes no more letters"),
    ],
)
def test_an_index_that_takes_no_writes_can_still_be_read(
    namespace: str, block: str, expected: type[RedriveError], says: str
) -> None:
    used(location(namespace), lambda letters: held(letters, "1"))
    ask("PUT", f"/{namespace}/_settings", {f"index.{block}": True})

    async def write(letters: OpenSearchLetters) -> None:
        assert await letters.count() == 1
        assert await letters.get([letter("1").id]) == [letter("1")]
        for verb in (letters.check, lambda: held(letters, "2"), lambda: letters.purge(EVERYTHING)):
            with pytest.raises(expected, match=says) as caught:
                await verb()
            assert type(caught.value) is expected
        ask("PUT", f"/{namespace}/_settings", {f"index.{block}": None})
        assert await held(letters, "1", "2") == [Held.DUPLICATE, Held.NEW]

    used(location(namespace), write)


@shared
def test_a_question_of_more_parts_than_the_engine_takes_is_refused(namespace: str) -> None:
    used(location(namespace), lambda letters: held(letters, "1"))
    many = Or(tuple(Is(Field.PRIORITY, number, Op.GT) for number in range(5000)))
    error = refusal(location(namespace), lambda letters: letters.count(many))
    assert isinstance(error, StoreError)
    assert "\n" not in str(error)
