"""Policies as files: read with care, written back without loss."""

from __future__ import annotations

import tomllib
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import BadSettings, Policy, custom, exponential, immediate, linear, never
from redrive.model.category import Category
from redrive.model.classify import Rule
from redrive.model.duration import duration, written
from redrive.model.policy import Bury, Route
from redrive.model.policy_file import document_of, policy_of, toml_of
from redrive.model.templates import TEMPLATES, template
from redrive.testing.kit.strategies import effort

FILE = """
max_attempts = 5
max_age = "1h30m"
include_errors = ["ValueError", "category:validation"]
exclude_errors = ["shop.Maintenance"]

[backoff]
kind = "exponential"
first = "500ms"
cap = "5m"
jitter = 0.2

[[rules]]
category = "transient"
error = "shop.StockBusy"

[[routes]]
errors = ["category:permission"]
to = "sqlite:security.db"
"""

POLICY = Policy(
    max_attempts=5,
    max_age=timedelta(minutes=90),
    include_errors=("ValueError", "category:validation"),
    exclude_errors=("shop.Maintenance",),
    backoff=exponential(timedelta(milliseconds=500), cap=timedelta(minutes=5), jitter=0.2),
    rules=(Rule(category=Category.TRANSIENT, error="shop.StockBusy"),),
    routes=(Route(errors=("category:permission",), to="sqlite:security.db"),),
)


def test_a_file_is_read_as_it_is_meant_and_written_as_it_was() -> None:
    assert policy_of(tomllib.loads(FILE)) == POLICY
    assert toml_of(POLICY).split() == FILE.replace(", ", ",").split() or policy_of(tomllib.loads(toml_of(POLICY))) == POLICY


def test_an_empty_file_is_the_default_policy() -> None:
    assert policy_of({}) == Policy()
    assert document_of(Policy()) == {}


def test_a_backoff_may_be_named_alone() -> None:
    assert policy_of({"backoff": "linear"}).backoff == linear()
    assert policy_of({"backoff": {"kind": "never"}}).backoff == never()


def policies() -> st.SearchStrategy[Policy]:
    spans = st.timedeltas(timedelta(microseconds=1), timedelta(days=400))
    names = st.lists(
        st.sampled_from(["ValueError", "a.b.C", "category:network", 'weird "name"\n\x7f é']), max_size=3, unique=True
    ).map(tuple)
    backoffs = st.one_of(
        st.builds(never),
        st.builds(immediate),
        st.builds(linear, spans, cap=st.none() | spans, jitter=st.floats(0, 1)),
        st.builds(exponential, spans, cap=spans, factor=st.floats(1, 10), jitter=st.floats(0, 1)),
    )
    rules = st.builds(
        lambda category, error, status: Rule(category=category, error=error, http_status=status),
        st.sampled_from(Category),
        st.sampled_from(["a.B", "C"]),
        st.none() | st.integers(400, 599),
    )
    routes = st.builds(
        lambda errors, to: Route(errors=errors, to=to), names.filter(bool), st.sampled_from(["sqlite:a.db", "memory:"])
    )
    return st.builds(
        Policy,
        max_attempts=st.integers(1, 50),
        backoff=backoffs,
        max_age=st.none() | spans,
        include_errors=names,
        exclude_errors=names,
        rules=st.lists(rules, max_size=2).map(tuple),
        routes=st.lists(routes, max_size=2).map(tuple),
    )


def test_any_policy_is_written_and_read_again_unchanged() -> None:
    @effort(100)
    @given(policies())
    def unchanged(policy: Policy) -> None:
        assert policy_of(tomllib.loads(toml_of(policy))) == policy

    unchanged()


def test_any_duration_is_written_and_read_again_unchanged() -> None:
    @effort(100)
    @given(st.timedeltas(timedelta(), timedelta(days=100_000)))
    def unchanged(span: timedelta) -> None:
        assert duration(written(span)) == span

    unchanged()
    assert [duration(text) for text in ("", "5", "m", "5 m", "-1s", "1h x", "9" * 15 + "w")] == [None] * 7


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"max_atempts": 3}, "a policy has no 'max_atempts'; did you mean max_attempts?"),
        ({"max_attempts": "3"}, "max_attempts must be a whole number, got '3'"),
        ({"max_attempts": 0}, "max_attempts must be at least 1, got 0"),
        ({"max_age": 5}, "max_age must be a duration such as 30s, 15m, 1h30m or 7d, got 5"),
        ({"include_errors": "ValueError"}, "include_errors must be a list, got 'ValueError'"),
        ({"backoff": "exponental"}, "there is no backoff 'exponental'; did you mean exponential?"),
        (
            {"backoff": {"kind": "linear", "frist": "1s"}},
            "the backoff 'linear' has no 'frist'; there are kind, jitter, step, cap",
        ),
        ({"backoff": {"kind": "linear", "step": "soon"}}, "backoff.step must be a duration"),
        ({"backoff": {"kind": "linear", "jitter": "much"}}, "backoff.jitter must be a number, got 'much'"),
        ({"backoff": 5}, "backoff must be a name or a table with a kind, got 5"),
        ({"routes": [{"to": "sqlite:x"}]}, "a route needs 'errors'; it has to"),
        ({"routes": [{"errors": ["X"], "too": "y", "to": "z"}]}, "a route has no 'too'; did you mean to?"),
        ({"rules": [{"error": "X"}]}, "rule 1 has no category"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_what_would_be_right(document: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSettings) as caught:
        policy_of(document)
    assert sentence in str(caught.value)


def test_a_policy_with_code_in_it_cannot_be_written() -> None:
    for policy in (Policy(custom=lambda case: Bury()), Policy(backoff=custom(lambda count: None))):
        with pytest.raises(BadSettings, match="keep it in code"):
            toml_of(policy)


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_can_be_written_and_gives_up_on_what_is_hopeless(name: str) -> None:
    policy = template(name).policy
    assert policy_of(tomllib.loads(toml_of(policy))) == policy
    assert policy.judge(ValueError("malformed"), 1) == Bury()
    assert policy.judge(TimeoutError(), 1) != Bury()
    assert template(name).about.endswith(".")
