"""The kit for a desk's receipts: who may work on a delivery, what is done, and what nobody knows."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive.model.receipt import Receipt, ReceiptState, Which
from redrive.ports.desk import Desk
from redrive.testing.kit.clerk import Run
from redrive.testing.kit.samples import START, occurrence
from redrive.testing.kit.strategies import effort, texts

_LEASE = timedelta(minutes=5)
_HOUR = timedelta(hours=1)
_ALL = Which(namespace="shop")


def _asked(key: str = "1", *, whose: str = "a", **changes: Any) -> Receipt:
    values: dict[str, Any] = {"namespace": "shop", "handler": "shop.handle", "at": START, "by": "host:1"}
    return Receipt(key=key, token=occurrence(whose), **(values | changes))


def _is_theirs(standing: Receipt, asked: Receipt) -> bool:
    return standing.state is ReceiptState.BEGUN and standing.token == asked.token


class ReceiptsContract:
    """What every `Desk` owes to handlers that work once. It is part of `DeskContract`."""

    def test_whoever_asks_first_may_begin_and_the_next_is_told_who_has(self, desk: Desk, run: Run) -> None:
        first, second = _asked(), _asked(whose="b", by="host:2")
        (standing,) = run(desk.begin([first], _LEASE, now=START))
        assert standing == replace(first, until=START + _LEASE)
        assert run(desk.begin([second], _LEASE, now=START + _LEASE / 2)) == [standing]
        assert run(desk.receipts(_ALL)) == [standing]

    def test_the_same_token_again_changes_nothing(self, desk: Desk, run: Run) -> None:
        asked = _asked()
        first = run(desk.begin([asked], _LEASE, now=START))
        assert run(desk.begin([asked], _LEASE, now=START + _LEASE / 2)) == first

    def test_namespaces_handlers_and_keys_do_not_hinder_each_other(self, desk: Desk, run: Run) -> None:
        asked = [_asked(), _asked("2"), _asked(handler="shop.mail"), _asked(namespace="other"), _asked("1\0é'")]
        standing = run(desk.begin(asked, _LEASE, now=START))
        assert [_is_theirs(*pair) for pair in zip(standing, asked, strict=True)] == [True] * 5
        assert [one.id for one in standing] == [one.id for one in asked]

    def test_of_two_alike_in_one_batch_the_first_begins(self, desk: Desk, run: Run) -> None:
        asked = [_asked(), _asked(whose="b"), _asked("2", whose="b"), _asked(whose="c")]
        standing = run(desk.begin(asked, _LEASE, now=START))
        assert [_is_theirs(*pair) for pair in zip(standing, asked, strict=True)] == [True, False, True, False]

    def test_what_is_done_is_not_begun_again_until_it_is_forgotten(self, desk: Desk, run: Run) -> None:
        asked, later = _asked(), _asked(whose="b")
        run(desk.begin([asked], _LEASE, now=START))
        assert run(desk.end([asked], done=True, keep=_HOUR, now=START + _LEASE)) == [True]
        (standing,) = run(desk.begin([later], _LEASE, now=START + _HOUR))
        assert standing == replace(asked, state=ReceiptState.DONE, until=START + _LEASE + _HOUR)
        (standing,) = run(desk.begin([later], _LEASE, now=START + _LEASE + _HOUR))
        assert _is_theirs(standing, later)

    def test_what_is_done_for_good_stays(self, desk: Desk, run: Run) -> None:
        asked = _asked()
        run(desk.begin([asked], _LEASE, now=START))
        run(desk.end([asked], done=True, now=START))
        assert run(desk.expire(now=START + 100_000 * _HOUR)) == 0
        (standing,) = run(desk.begin([_asked(whose="b")], _LEASE, again=True, now=START + 100_000 * _HOUR))
        assert standing == replace(asked, state=ReceiptState.DONE, until=None)

    def test_what_failed_leaves_no_receipt(self, desk: Desk, run: Run) -> None:
        asked, later = _asked(), _asked(whose="b")
        run(desk.begin([asked], _LEASE, now=START))
        assert run(desk.end([asked], done=False, now=START)) == [True]
        assert run(desk.receipts(_ALL)) == []
        (standing,) = run(desk.begin([later], _LEASE, now=START))
        assert _is_theirs(standing, later)

    def test_work_whose_time_is_over_is_unknown_for_whoever_asks_and_for_good(self, desk: Desk, run: Run) -> None:
        asked = _asked()
        run(desk.begin([asked], _LEASE, now=START))
        unknown = replace(asked, state=ReceiptState.UNKNOWN, until=None)
        assert run(desk.begin([_asked(whose="b")], _LEASE, now=START + _LEASE)) == [unknown]
        assert run(desk.expire(now=START + 100_000 * _HOUR)) == 0
        assert run(desk.begin([_asked(whose="c")], _LEASE, now=START + 100_000 * _HOUR)) == [unknown]
        assert run(desk.receipts(_ALL)) == [unknown]

    def test_what_is_unknown_may_be_begun_again_by_those_who_say_so(self, desk: Desk, run: Run) -> None:
        dead, second, third = _asked(), _asked(whose="b", by="host:2"), _asked(whose="c")
        run(desk.begin([dead], _LEASE, now=START))
        (standing,) = run(desk.begin([second], _LEASE, again=True, now=START + _LEASE))
        assert standing == replace(second, at=START + _LEASE, until=START + 2 * _LEASE)
        (standing,) = run(desk.begin([third], _LEASE, again=True, now=START + _LEASE))
        assert standing.token == second.token, "somebody works on it"
        run(desk.expire(now=START + 2 * _LEASE))
        (standing,) = run(desk.begin([third], _LEASE, again=True, now=START + 2 * _LEASE))
        assert _is_theirs(standing, third)
        assert run(desk.end([dead, second], done=True, now=START)) == [False, False]
        assert run(desk.end([dead, second], done=False, now=START)) == [False, False]
        assert run(desk.end([third], done=True, now=START)) == [True]

    def test_a_late_workers_word_is_believed(self, desk: Desk, run: Run) -> None:
        worked, failed = _asked("1"), _asked("2")
        run(desk.begin([worked, failed], _LEASE, now=START))
        assert run(desk.expire(now=START + _HOUR)) == 2
        assert {one.state for one in run(desk.receipts(_ALL))} == {ReceiptState.UNKNOWN}
        assert run(desk.end([worked], done=True, keep=_HOUR, now=START + _HOUR)) == [True]
        assert run(desk.end([failed], done=False, now=START + _HOUR)) == [True]
        assert [(one.key, one.state) for one in run(desk.receipts(_ALL))] == [("1", ReceiptState.DONE)]

    def test_an_end_is_only_for_whoever_began_and_done_stays_done(self, desk: Desk, run: Run) -> None:
        asked, other = _asked(), _asked(whose="b")
        run(desk.begin([asked], _LEASE, now=START))
        assert run(desk.end([other, _asked("2"), asked], done=True, keep=_HOUR, now=START)) == [False, False, True]
        assert run(desk.end([asked], done=True, keep=_HOUR, now=START)) == [True]
        assert run(desk.end([asked, other], done=False, now=START)) == [False, False]
        assert [one.state for one in run(desk.receipts(_ALL))] == [ReceiptState.DONE]

    def test_of_many_who_ask_at_once_one_begins(self, desk: Desk, run: Run) -> None:
        asked = [_asked(str(number % 5), whose=str(number)) for number in range(50)]

        async def crowd() -> list[list[Receipt]]:
            return await asyncio.gather(*(desk.begin([one], _LEASE) for one in asked))

        standing = [one for (one,) in run(crowd())]
        winners = [one.key for one, mine in zip(standing, asked, strict=True) if _is_theirs(one, mine)]
        assert sorted(winners) == ["0", "1", "2", "3", "4"]
        assert len({(one.key, one.token) for one in standing}) == 5, "all are told of the same winners"

    def test_of_many_who_begin_again_at_once_one_does(self, desk: Desk, run: Run) -> None:
        run(desk.begin([_asked()], _LEASE, now=START))
        asked = [_asked(whose=str(number)) for number in range(20)]

        async def crowd() -> list[list[Receipt]]:
            return await asyncio.gather(*(desk.begin([one], _LEASE, again=True) for one in asked))

        standing = [one for (one,) in run(crowd())]
        assert sum(_is_theirs(*pair) for pair in zip(standing, asked, strict=True)) == 1

    def test_without_an_instant_the_desks_own_clock_decides(self, desk: Desk, run: Run) -> None:
        asked = _asked()
        (standing,) = run(desk.begin([asked], _LEASE))
        assert standing.until == standing.at + _LEASE
        assert standing.at > START
        assert run(desk.expire()) == 0
        run(desk.end([asked], done=True, keep=timedelta(microseconds=1)))
        assert run(desk.begin([_asked(whose="b")], _LEASE))[0].token == occurrence("b"), "it was forgotten"

    def test_receipts_come_latest_first_by_what_is_asked(self, desk: Desk, run: Run) -> None:
        for number in range(6):
            asked = _asked(str(number), handler=f"shop.{'ab'[number % 2]}")
            run(desk.begin([asked], _LEASE, now=START + number * _HOUR))
            if number % 3 == 0:
                run(desk.end([asked], done=True, now=START + number * _HOUR))
        run(desk.begin([_asked("6", namespace="other")], _LEASE, now=START))

        def keys(limit: int = 100, **which: Any) -> list[str]:
            return [one.key for one in run(desk.receipts(Which(namespace="shop", **which), limit=limit))]

        assert keys() == ["5", "4", "3", "2", "1", "0"]
        assert keys(limit=2) == ["5", "4"]
        assert keys(limit=0) == []
        assert keys(handler="shop.a") == ["4", "2", "0"]
        assert keys(handler="shop.a", key="2") == ["2"]
        assert keys(key="2", handler="shop.b") == []
        assert keys(states=[ReceiptState.DONE]) == ["3", "0"]
        assert keys(states=[]) == []
        assert keys(before=START + 2 * _HOUR, states=[ReceiptState.BEGUN, ReceiptState.UNKNOWN]) == ["1"]

    def test_what_is_forgotten_may_be_begun_anew(self, desk: Desk, run: Run) -> None:
        run(desk.begin([_asked(str(number)) for number in range(5)], _LEASE, now=START))
        run(desk.end([_asked("0")], done=True, now=START))
        assert run(desk.forget(Which(namespace="other"))) == 0
        assert run(desk.forget(Which(namespace="shop", handler="shop.handle", key="0"))) == 1
        assert run(desk.forget(Which(namespace="shop", states=[ReceiptState.BEGUN]), limit=3)) == 3
        assert run(desk.forget(_ALL)) == 1
        assert run(desk.receipts(_ALL)) == []
        (standing,) = run(desk.begin([_asked("0", whose="b")], _LEASE, now=START))
        assert standing.token == occurrence("b")

    def test_time_brings_the_unknown_and_forgets_what_is_done(self, desk: Desk, run: Run) -> None:
        asked = [_asked(str(number)) for number in range(6)]
        run(desk.begin(asked, _LEASE, now=START))
        run(desk.end(asked[:3], done=True, keep=_HOUR, now=START))
        assert run(desk.expire(now=START + _LEASE - timedelta(seconds=1))) == 0
        assert run(desk.expire(limit=2, now=START + _LEASE)) == 2
        assert run(desk.expire(limit=2, now=START + _LEASE)) == 1
        states = {one.key: one.state for one in run(desk.receipts(_ALL))}
        assert states == dict.fromkeys("012", ReceiptState.DONE) | dict.fromkeys("345", ReceiptState.UNKNOWN)
        assert run(desk.expire(now=START + _HOUR)) == 3
        assert {one.key for one in run(desk.receipts(_ALL))} == {*"345"}

    def test_asking_and_ending_nothing_is_fine(self, desk: Desk, run: Run) -> None:
        assert run(desk.begin([], _LEASE)) == []
        assert run(desk.end([], done=True)) == run(desk.end([], done=False)) == []

    def test_a_large_batch_of_receipts_is_written_whole(self, desk: Desk, run: Run) -> None:
        asked = [_asked(str(number), whose=str(number)) for number in range(600)]
        standing = run(desk.begin(asked, _LEASE, now=START))
        assert [one.token for one in standing] == [one.token for one in asked]
        assert run(desk.end(asked, done=True, now=START)) == [True] * 600
        assert len(run(desk.receipts(_ALL, limit=1000))) == 600

    def test_every_receipt_comes_back_equal_field_by_field(self, desk: Desk, run: Run) -> None:
        receipts = st.builds(
            Receipt,
            namespace=texts(),
            handler=texts(),
            key=texts(),
            token=st.integers(0, 2**128 - 1).map(lambda number: UUID(int=number)),
            at=st.just(START),
            by=texts(),
        )

        @effort(30)
        @given(receipts)
        def comes_back(asked: Receipt) -> None:
            which = Which(namespace=asked.namespace, handler=asked.handler, key=asked.key)
            run(desk.forget(which))
            (standing,) = run(desk.begin([asked], _LEASE, now=START))
            assert standing == replace(asked, until=START + _LEASE)
            assert run(desk.receipts(which)) == [standing]

        comes_back()

    def test_a_durable_desk_gives_receipts_back_when_it_is_opened_again(self, opener: Any, tmp_path: Path, run: Run) -> None:
        if not opener.is_durable:
            pytest.skip("this desk does not claim to be durable")
        with opener.open(tmp_path, run) as desk:
            run(desk.begin([_asked()], _LEASE, now=START))
        with opener.open(tmp_path, run) as again:
            assert run(again.begin([_asked(whose="b")], _LEASE, now=START)) == [replace(_asked(), until=START + _LEASE)]
