"""What others see in the index: the seed's fields and queries; and no object of a user's is refused for what is in it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import json

from redrive.backends.opensearch import OpenSearchLetters, document
from redrive.model.arrival import Held
from redrive.model.category import Category
from redrive.model.letter import Letter, RetryPlan
from redrive.model.query import EVERYTHING
from redrive.model.status import Status
from redrive.testing import letter
from redrive.testing.kit.samples import START, attempt, failure
from tests.unit.opensearch_use import ask, location, used

pytestmark = pytest.mark.engine("opensearch")


def kept(namespace: str, *letters: Letter) -> list[Letter | None]:
    """The letters as they come back; searches see them afterwards."""

    async def keep(store: OpenSearchLetters) -> list[Letter | None]:
        assert await store.put(letters) == [Held.NEW] * len(letters)
        assert await store.count() == len(letters)
        return await store.get([one.id for one in letters])

    return used(location(namespace), keep)


def found(namespace: str, query: dict[str, Any]) -> set[str]:
    return {hit["_source"]["task_id"] for hit in ask("POST", f"/{namespace}/_search", {"query": query})["hits"]["hits"]}


def test_the_queries_of_the_document_work_as_they_are_printed(namespace: str) -> None:
    soon, later = datetime.now(UTC) + timedelta(minutes=30), datetime.now(UTC) + timedelta(hours=2)
    kept(
        namespace,
        letter("exhausted", status=Status.EXHAUSTED),
        letter("transient", failure=failure(category=Category.TRANSIENT), due=later),
        letter("soon", due=soon),
    )
    assert found(namespace, {"term": {"status.keyword": "exhausted"}}) == {"exhausted"}
    assert found(namespace, {"term": {"error_category.keyword": "transient"}}) == {"transient"}
    assert found(namespace, {"range": {"next_retry_at": {"lte": "now+1h"}}}) == {"soon"}


def test_a_document_has_the_fields_that_the_seed_names(namespace: str) -> None:
    body = json.encode({"task": {"type": "code_sweep", "params": {"depth": 2}}, "repos": ["a/b", "c/d"]})
    one = letter(
        "wf_1",
        body=body,
        failure=failure(message="no answer", category=Category.NETWORK),
        retry=RetryPlan(policy="exponential", retry_count=1, max_retries=3, next_retry_at=START),
        history=(attempt("1", message="first"), attempt("2", message="second")),
        metadata={"user": "ann"},
    )
    kept(namespace, one)
    view = ask("GET", f"/{namespace}/_doc/{one.id}")["_source"]
    del view["redrive"]
    assert view == {
        "task_id": "wf_1",
        "task": {"type": "code_sweep", "params": {"depth": 2}},
        "repos": ["a/b", "c/d"],
        "error": "no answer",
        "failed_at": "2025-01-01T12:00:00Z",
        "retry_count": 1,
        "max_retries": 3,
        "retry_policy": "exponential",
        "next_retry_at": "2025-01-01T12:00:00Z",
        "status": "pending",
        "metadata": {"user": "ann"},
        "error_category": "network",
        "last_error": "second",
        "total_attempts": 2,
        "updated_at": "2025-01-01T12:00:00Z",
    }
    for query in (
        {"term": {"task.type": "code_sweep"}},
        {"term": {"task.params.depth": "2"}},
        {"term": {"repos": "c/d"}},
        {"term": {"metadata.user": "ann"}},
        {"match": {"error": "answer"}},
    ):
        assert found(namespace, query) == {"wf_1"}, query


@pytest.mark.parametrize(
    ("body", "task", "repos"),
    [
        (b'{"a": 1}', {"a": 1}, None),
        (b'{"task": "text", "repos": "one"}', {"value": "text"}, None),
        (b'{"task": null, "repos": ["a", 1]}', None, None),
        (b"[1, 2]", {"value": [1, 2]}, None),
        (b"12", {"value": 12}, None),
        (b"null", None, None),
        (b"", None, None),
        (b"\xff not JSON", None, None),
    ],
)
def test_a_task_is_what_the_body_says_it_is(namespace: str, body: bytes, task: Any, repos: Any) -> None:
    kept(namespace, letter(body=body))
    view = ask("GET", f"/{namespace}/_doc/{letter().id}")["_source"]
    assert (view["task"], view["repos"]) == (task, repos)


def nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"leaf": 1}
    for _ in range(depth):
        inner = {"a": inner}
    return inner


NASTY: dict[str, Any] = {
    "immense text": {"a": "x" * 40_000},
    "immense text in another script": {"a": "中" * 20_000},
    "immense name": {"n" * 40_000: 1},
    "deep": nested(400),
    "deep lists": {"a": [[[[[[[[[[[["x"]]]]]]]]]]]]},
    "thousands of names": {f"name {number}": number for number in range(5000)},
    "a long list": {"a": list(range(5000))},
    "dots": {"a.b": 1, "a": {"b": {"c": 1}}, ".": 1, "..": 2, "a.": 3, ".a": 4},
    "empty name": {"": {"": ""}},
    "nothing": {"a": None, "b": [None, [None]], "c": {}, "d": []},
    "numbers": {"max": 2**63 - 1, "min": -(2**63), "float": 1e308, "tiny": 5e-324},
    "odd signs": {"nul\0": "\0", "\u202e": "\ufeff", "=": "a=b", "\U0010ffff": "\uffff"},
    "many kinds in a list": {"a": [1, "x", {"b": 2}, [3], None, True]},
}


@pytest.mark.parametrize("name", NASTY)
def test_no_object_of_a_user_is_refused(namespace: str, name: str) -> None:
    value = NASTY[name]
    one = letter("as metadata", metadata=value)
    other = letter("as task", body=json.encode({"task": value, "repos": ["r" * 40_000, *["r"] * 600]}))
    body = letter("as body", body=json.encode(value))
    assert kept(namespace, one, other, body) == [one, other, body]


def test_objects_may_differ_in_every_way_from_letter_to_letter(namespace: str) -> None:
    shapes: list[Any] = [1, "x", 1.5, True, None, [], {}, [1, "a"], {"b": {"c": 1}}, {"b": 1}, [{"b": 1}], "2025-01-01", 2**62]
    letters = [letter(str(number), metadata={"a": shape}) for number, shape in enumerate(shapes)]
    letters += [letter(f"body {number}", body=json.encode({"task": shape})) for number, shape in enumerate(shapes)]
    assert kept(namespace, *letters) == letters


def test_what_is_refused_all_the_same_is_held_without_its_views(namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unbounded: Callable[[Any], Any] = lambda value: value  # noqa: E731 - instead of a careful copy
    monkeypatch.setattr(document, "_view", unbounded)
    bad = letter("bad", metadata={"a": "x" * 40_000})
    assert kept(namespace, bad, letter("good")) == [bad, letter("good")]
    assert "metadata" not in ask("GET", f"/{namespace}/_doc/{bad.id}")["_source"]


def test_counts_beyond_what_the_seed_s_fields_hold_are_held(namespace: str) -> None:
    one = letter(history_dropped=2**40, retry=RetryPlan(policy="p" * 40_000, retry_count=2**40, max_retries=2**50))
    assert kept(namespace, one) == [one]


def test_a_letter_that_is_claimed_and_settled_keeps_its_views(namespace: str) -> None:
    from redrive.model.lease import Claim
    from redrive.model.settlement import Completed, Settlement

    async def settle(store: OpenSearchLetters) -> None:
        await store.put([letter(body=b'{"task": {"a": 1}}', metadata={"m": 1})])
        (claimed,) = await store.claim(Claim(owner="ann", lease=timedelta(hours=1), what=EVERYTHING))
        await store.settle([Settlement.of(claimed.lease, Completed())])

    used(location(namespace), settle)
    view = ask("GET", f"/{namespace}/_doc/{letter().id}")["_source"]
    assert (view["task"], view["metadata"], view["status"]) == ({"a": 1}, {"m": 1}, "completed")
