"""The instants at which a line is cut: before, amid and behind a request, and the same of its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from redrive.testing.proxy import Proxy

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

Cut = Callable[[Proxy, int, int], None]
"""Lays a cut, given how many bytes a request of that kind has, and its answer."""


def _request(share: float) -> Cut:
    return lambda line, asked, _: line.cut_after(request_bytes=int(asked * share))


def _answer(share: float) -> Cut:
    return lambda line, _, answered: line.cut_after(answer_bytes=int(answered * share))


def _behind(line: Proxy, asked: int, _: int) -> None:
    # Should this request have some bytes less than the one that was measured, its answer is cut instead.
    line.cut_after(request_bytes=asked, answer_bytes=0)


def _last(line: Proxy, _: int, answered: int) -> None:
    line.cut_after(answer_bytes=answered - 4)


CUTS = [
    pytest.param(_request(0), id="before_the_request"),
    pytest.param(_request(0.5), id="amid_the_request"),
    pytest.param(_request(0.99), id="near_the_end_of_the_request"),
    pytest.param(_behind, id="behind_the_request"),
    pytest.param(_answer(0), id="before_the_answer"),
    pytest.param(_answer(0.5), id="amid_the_answer"),
    pytest.param(_last, id="near_the_end_of_the_answer"),
]


def measured(line: Proxy, verb: Callable[[], Any]) -> tuple[int, int]:
    """How many bytes a call took, and its answer, so that the next one of its kind can be cut in its middle."""
    before = line.counts
    verb()
    after = line.counts
    return after.request_bytes - before.request_bytes, after.answer_bytes - before.answer_bytes


@contextmanager
def cutting(each: ParameterSet) -> Iterator[Cut]:
    """One of the cuts, for a test that lays them all; where it fails, the instant is told."""
    (cut,) = each.values
    try:
        yield cast("Cut", cut)
    except BaseException as error:
        error.add_note(f"the line was cut {each.id}")
        raise
