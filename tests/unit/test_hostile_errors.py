"""No exception is so hostile, so long or so entangled that it could not be described and grouped."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from itertools import pairwise
from types import TracebackType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.engine.describe import describe


def caught(function: Callable[..., Any], *args: Any) -> BaseException:
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("it did not fail")


class CardDeclined(Exception):
    redrive_fingerprint: Any = "card declined"


class Weird(Exception):
    """Its every answer about itself is wrong or an error."""

    redrive_fingerprint = property(lambda self: 1 / 0)
    redrive_failure = property(lambda self: 1 / 0)
    __notes__ = property(lambda self: 1 / 0)
    __traceback__ = property(lambda self: 1 / 0)
    __cause__ = property(lambda self: 1 / 0)
    __context__ = property(lambda self: 1 / 0)
    __suppress_context__ = property(lambda self: 1 / 0)
    __class__ = property(lambda self: 1 / 0)

    def __str__(self) -> str:
        raise KeyError(self)

    __repr__ = __hash__ = __eq__ = __len__ = __bool__ = __str__  # type: ignore[assignment]  # hostile on purpose


class Texty(str):
    """A text that answers wrongly."""

    __slots__ = ()

    def encode(self, *_: Any) -> bytes:
        raise RuntimeError("no bytes")

    __len__ = __getitem__ = isascii = split = replace = encode  # type: ignore[assignment]  # hostile on purpose


class SaysTexty(Exception):
    redrive_fingerprint = Texty("mine")

    def __str__(self) -> str:
        return Texty("text")


class Unhashable(type):
    __hash__ = None  # type: ignore[assignment]  # hostile on purpose

    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class Nameless(Exception, metaclass=Unhashable):
    pass


class Cancelling(Exception):
    def __str__(self) -> str:
        raise asyncio.CancelledError


def raised(error: BaseException) -> BaseException:
    def fail() -> None:
        raise error

    return caught(fail)


def loops(count: int) -> BaseException:
    errors = [raised(ValueError(number)) for number in range(count)]
    for number, error in enumerate(errors):
        error.__cause__ = errors[(number + 1) % count]
    return errors[0]


def nested(depth: int) -> BaseException:
    error: Exception = ValueError("deep")
    for _ in range(depth):
        error = ExceptionGroup("nested", [error])
    return error


def circle_through_a_group() -> BaseException:
    member = ValueError("x")
    group = ExceptionGroup("g", [member])
    member.__cause__ = group
    return group


def behind_each_other(errors: list[BaseException], is_context: bool) -> BaseException:
    slot = BaseException.__dict__["__context__" if is_context else "__cause__"]
    for error, following in pairwise(errors):
        slot.__set__(error, following)
    return errors[0]


leaves = st.one_of(
    st.builds(ValueError, st.text() | st.integers() | st.binary() | st.none()),
    st.builds(OSError, st.integers(), st.text()),
    st.integers(0, 5).map(lambda number: (Weird, SaysTexty, Nameless, Cancelling, KeyError, CardDeclined)[number]("x")),
)
trees = st.recursive(
    leaves.map(lambda error: raised(error) if type(error) is not Weird else error),
    lambda inner: (
        st.builds(lambda members: ExceptionGroup("g", members), st.lists(inner, min_size=1, max_size=4))
        | st.builds(behind_each_other, st.lists(inner, min_size=2, max_size=4), st.booleans())
    ),
    max_leaves=12,
)


def assert_described(error: BaseException) -> None:
    seen: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = seen.append  # type: ignore[assignment]  # the shortest way to listen
    log = logging.getLogger("redrive.describe")
    log.addHandler(handler)
    try:
        failure = describe(error)
    finally:
        log.removeHandler(handler)
    assert seen == []
    assert len(failure.fingerprint) == 16
    assert 0 < len(failure.fingerprint_reason) <= 200
    for text in (failure.type, failure.message, failure.traceback, failure.fingerprint_reason):
        assert type(text) is str
        assert text.encode().decode() == text
    assert describe(error) == failure


@given(trees)
def test_no_error_is_so_hostile_that_it_has_no_group(error: BaseException) -> None:
    assert_described(error)


WORST: dict[str, Callable[[], BaseException]] = {
    "answers wrongly": lambda: Weird("x"),
    "says what is no plain text": lambda: SaysTexty("x"),
    "has no name": lambda: Nameless("x"),
    "cancels": lambda: Cancelling("x"),
    "caused by itself": lambda: loops(1),
    "caused by each other": lambda: loops(2),
    "a long circle": lambda: loops(30),
    "a deep group": lambda: nested(100),
    "a deeper group": lambda: nested(900),
    "a circle through a group": circle_through_a_group,
    "10 MB": lambda: ValueError("x" * 10_000_000),
    "lone surrogates": lambda: ValueError("é\ud800" * 1_000_000),
    "zeros": lambda: KeyError("\0" * 5_000),
    "a crowd": lambda: ExceptionGroup("many", [ValueError(str(number)) for number in range(5_000)]),
    "at the start": lambda: ValueError("a").with_traceback(TracebackType(None, sys._getframe(), 0, 1)),
    "before the start": lambda: ValueError("a").with_traceback(TracebackType(None, sys._getframe(), -1, -1)),
    "after the end": lambda: ValueError("a").with_traceback(TracebackType(None, sys._getframe(), 0, 10**6)),
}


@pytest.mark.parametrize("name", WORST)
def test_the_worst_we_could_think_of_has_a_group(name: str) -> None:
    assert_described(WORST[name]())
