"""The kinds of failure, and how each is retried unless told otherwise."""

from __future__ import annotations

import pytest

from redrive import Category
from redrive.model.backoff import Exponential, Linear, Never, named
from redrive.model.category import DEFAULT_RETRIES, DefaultRetry


@pytest.mark.parametrize(
    ("category", "policy", "max_retries"),
    [
        ("transient", "exponential", 5),
        ("network", "exponential", 3),
        ("resource", "linear", 2),
        ("permission", "never", 0),
        ("validation", "never", 0),
        ("permanent", "never", 0),
    ],
)
def test_each_category_has_the_policy_and_the_retries_of_the_workflow_dlq(category: str, policy: str, max_retries: int) -> None:
    assert Category(category).default_retry == DefaultRetry(policy, max_retries)


def test_no_category_is_without_a_default_and_nobody_can_change_one() -> None:
    assert set(DEFAULT_RETRIES) == set(Category)
    with pytest.raises(TypeError):
        DEFAULT_RETRIES[Category.NETWORK] = DefaultRetry("never", 0)  # type: ignore[index]  # that is the point


def test_the_default_policies_are_backoffs_that_letters_know() -> None:
    backoffs = {category: named(category.default_retry.policy) for category in Category}
    assert isinstance(backoffs[Category.TRANSIENT], Exponential)
    assert isinstance(backoffs[Category.RESOURCE], Linear)
    assert all(isinstance(backoff, Never) == (category.default_retry.max_retries == 0) for category, backoff in backoffs.items())
