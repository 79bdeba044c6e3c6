"""Which rule of a policy decides, and why."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive import BadSettings, Bury, Discard, Policy, Retry, exponential, never
from redrive.model.category import Category
from redrive.model.classify import Evidence, Rule
from redrive.model.policy import Case, Route, Verdict

HOUR = timedelta(hours=1)


class StockBusy(RuntimeError):
    """An application's own error."""


class VeryBusy(StockBusy):
    """A subclass of it."""


MINE = f"{__name__}.StockBusy"


@pytest.mark.parametrize(
    "named", [(StockBusy,), ("StockBusy",), (MINE,), (RuntimeError,), ("builtins.RuntimeError",), ("Exception",)]
)
@pytest.mark.parametrize("error", [StockBusy(), VeryBusy()])
def test_included_errors_and_their_subclasses_are_given_up_on_at_once(named: tuple[object, ...], error: Exception) -> None:
    policy = Policy(max_attempts=9, include_errors=named)  # type: ignore[arg-type]  # classes are named
    assert policy.judge(error, 1) == Bury()
    assert policy.judge(OSError(), 1) == (Bury() if "Exception" in named else Retry(timedelta()))
    assert policy.explain(None, error).rule == "include_errors"


def test_excluded_errors_are_never_given_up_on_and_exclude_wins() -> None:
    policy = Policy(
        max_attempts=2, max_age=HOUR, include_errors=(RuntimeError,), exclude_errors=(StockBusy,), backoff=exponential(HOUR)
    )
    assert policy.judge(StockBusy(), 99, age=99 * HOUR) == Retry(HOUR)
    assert policy.judge(VeryBusy(), 1) == Retry(HOUR)
    assert policy.judge(RuntimeError(), 1) == Bury()
    assert policy.explain(None, VeryBusy(), attempts=99).why == f"{MINE} is never given up on"
    assert Policy(exclude_errors=(StockBusy,), backoff=never()).judge(StockBusy(), 5) == Retry(timedelta())


def test_errors_are_named_by_their_category_too() -> None:
    policy = Policy(include_errors=("category:validation",), exclude_errors=("category:network",), max_attempts=2)
    assert policy.judge(ValueError(), 1) == Bury()
    assert policy.judge(ConnectionResetError(), 50) == Retry(timedelta())
    assert policy.judge(StockBusy(), 1) == Retry(timedelta())


def test_rules_decide_about_categories_before_anything_else() -> None:
    rule = Rule(category=Category.VALIDATION, error="StockBusy")
    policy = Policy(include_errors=("category:validation",), rules=(rule,))
    assert policy.judge(StockBusy(), 1) == Bury()
    assert policy.explain(None, StockBusy()).category is Category.VALIDATION
    assert Policy(include_errors=("category:validation",)).judge(StockBusy(), 1) == Retry(timedelta())


def test_a_message_that_is_too_old_is_given_up_on() -> None:
    policy = Policy(max_attempts=9, max_age=HOUR)
    assert policy.judge(OSError(), 1, age=HOUR) == Retry(timedelta())
    assert policy.judge(OSError(), 1, age=HOUR + timedelta(microseconds=1)) == Bury()
    assert policy.judge(OSError(), 1) == Retry(timedelta())
    assert policy.explain(None, OSError(), age=2 * HOUR).rule == "max_age"


def test_the_first_route_that_fits_says_where_a_letter_goes() -> None:
    policy = Policy(
        max_attempts=1,
        routes=(
            Route(errors=("PermissionError",), to="sqlite:security.db"),
            Route(errors=("category:permission", StockBusy), to="sqlite:later.db"),  # type: ignore[arg-type]
        ),
    )
    assert policy.judge(PermissionError(), 1) == Bury("sqlite:security.db")
    assert policy.judge(VeryBusy(), 1) == Bury("sqlite:later.db")
    assert policy.judge(OSError(), 1) == Bury()


def test_ones_own_word_comes_first_and_may_leave_it_to_the_rules() -> None:
    def spare(case: Case) -> Verdict | None:
        return Discard("a test order") if case.message == "test" else None

    policy = Policy(max_attempts=1, custom=spare, exclude_errors=("OSError",))
    assert policy.judge(OSError(), 1, message="test") == Discard("a test order")
    assert policy.judge(OSError(), 1, message="real") == Retry(timedelta())
    assert policy.explain("test", OSError()).rule == "custom"
    assert "spare said so" in policy.explain("test", OSError()).why


def test_a_subclass_may_decide_itself() -> None:
    class Patient(Policy, frozen=True, kw_only=True):
        def decide(self, case: Case) -> Verdict | None:
            return Retry(HOUR) if case.attempts < 100 else None

    assert Patient(max_attempts=1).judge(OSError(), 99) == Retry(HOUR)
    assert Patient(max_attempts=1).judge(OSError(), 100) == Bury()


def test_what_is_known_of_an_error_is_as_good_as_the_error() -> None:
    policy = Policy(include_errors=("httpx.HTTPStatusError", "category:permission"))
    assert policy.explain(None, Evidence(names=("httpx.HTTPStatusError",))).verdict == Bury()
    told = policy.explain(None, Evidence(names=("shop.ApiError",), http_status=403))
    assert (told.verdict, told.rule, told.category) == (Bury(), "include_errors", Category.PERMISSION)
    assert "403" in told.category_why


def test_policies_are_values() -> None:
    one = Policy(include_errors=(ValueError, "ValueError"), routes=(Route(errors=("OSError",), to="sqlite:x.db"),))  # type: ignore[arg-type]
    other = Policy(include_errors=("builtins.ValueError", "ValueError"), routes=(Route(errors=("OSError",), to="sqlite:x.db"),))
    assert one == other
    assert "builtins.ValueError" in repr(one)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"include_errors": "ValueError"}, "include_errors must be a list of error types or names, got 'ValueError'"),
        ({"exclude_errors": (1,)}, "exclude_errors must hold error types or their names, got 1"),
        ({"include_errors": ("",)}, "include_errors must hold error types or their names, got ''"),
        ({"include_errors": ("category:netwrk",)}, "there is no category 'netwrk'; did you mean network?"),
        ({"max_age": timedelta()}, "max_age must be longer than nothing"),
    ],
)
def test_a_mistake_is_refused_in_one_sentence(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadSettings, match=sentence.replace("(", r"\(").replace("?", r"\?")):
        Policy(**wrong)  # type: ignore[arg-type]
