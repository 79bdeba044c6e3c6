"""The kit for `Desk`: operations, their ledgers, the audit and totals; receipts have a kit of their own, `receipts`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from redrive.model.operation import AuditRow, Entry, LedgerRow, Operation, OperationStatus
from redrive.model.tempo import Tempo
from redrive.model.triage import Note, Standing, Triage
from redrive.ports.desk import Desk
from redrive.testing.kit.clerk import Looped, Run
from redrive.testing.kit.receipts import ReceiptsContract
from redrive.testing.kit.samples import START, occurrence
from redrive.testing.kit.strategies import effort, instants, texts, uuids

_HOUR = timedelta(hours=1)


class DeskOpener(Struct, frozen=True, kw_only=True):
    """How to open the desk in a folder, given what runs its verbs; and whether another opening of the same folder finds what was there."""

    open: Callable[[Path, Run], AbstractContextManager[Desk]]
    is_durable: bool = False


def _operation(name: str, **changes: Any) -> Operation:
    values: dict[str, Any] = {"id": occurrence(name), "target": "py:shop:handle", "started_at": START, "total": 3}
    return Operation(**(values | changes))


def _row(number: int, *, operation: str = "1", **changes: Any) -> LedgerRow:
    values: dict[str, Any] = {"letter": UUID(int=number % 2**60), "generation": 1, "entry": Entry.INTENDED, "at": START}
    return LedgerRow(operation=occurrence(operation), number=number, **(values | changes))


def _note(act: str, **changes: Any) -> AuditRow:
    values: dict[str, Any] = {"at": START, "by": "ann", "act": act, "subject": "letter 1"}
    return AuditRow(**(values | changes))


class DeskContract(Looped, ReceiptsContract):
    """What every `Desk` owes its callers. A subclass overrides `opener`."""

    @pytest.fixture
    def opener(self) -> DeskOpener:
        """Give the way to open the desk under test."""
        pytest.fail("override the fixture `opener` with one that says how to open your desk", pytrace=False)

    @pytest.fixture
    def desk(self, opener: DeskOpener, tmp_path: Path, run: Run) -> Iterator[Desk]:
        with opener.open(tmp_path, run) as desk:
            yield desk

    def test_a_desk_keeps_its_identity(self, desk: Desk, run: Run) -> None:
        assert run(desk.identity()) == run(desk.identity())

    def test_many_who_ask_a_new_desk_for_its_identity_hear_the_same(self, desk: Desk, run: Run) -> None:
        async def crowd() -> list[UUID]:
            return await asyncio.gather(*(desk.identity() for _ in range(10)))

        assert len(set(run(crowd()))) == 1

    def test_two_desks_differ(self, opener: DeskOpener, tmp_path: Path, run: Run) -> None:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        with opener.open(tmp_path / "one", run) as one, opener.open(tmp_path / "two", run) as two:
            assert run(one.identity()) != run(two.identity())

    def test_an_operation_comes_back_as_it_was(self, desk: Desk, run: Run) -> None:
        one = _operation(
            "1", status=OperationStatus.PAUSED, why="nobody answers", finished_at=START + _HOUR, by="ann\n,'\"\0é\U0001f4ee"
        )
        run(desk.save([one]))
        assert run(desk.operation(one.id)) == one
        assert run(desk.operation(UUID(int=0))) is None

    def test_saving_an_operation_again_replaces_it(self, desk: Desk, run: Run) -> None:
        first = _operation("1")
        later = replace(first, status=OperationStatus.FINISHED, started_at=START + _HOUR, total=9)
        run(desk.save([first, _operation("2")]))
        run(desk.save([later]))
        assert run(desk.operation(first.id)) == later
        assert run(desk.operations()) == [later, _operation("2")]
        run(desk.save([first, later, first]))
        assert run(desk.operation(first.id)) == first
        assert len(run(desk.operations())) == 2

    def test_operations_come_latest_first(self, desk: Desk, run: Run) -> None:
        assert run(desk.operations()) == []
        all = [_operation(str(number), started_at=START + (number % 4) * _HOUR) for number in range(9)]
        run(desk.save(all))
        expected = sorted(all, key=lambda one: (one.started_at, one.id), reverse=True)
        assert run(desk.operations()) == expected
        assert run(desk.operations(limit=4)) == expected[:4]
        assert run(desk.operations(limit=0)) == []

    def test_an_operation_changes_only_from_what_it_was(self, desk: Desk, run: Run) -> None:
        planned = _operation("1", entries={Entry.CHOSEN: 2, Entry.SENT: 1}, tempo=Tempo(rate=0.1, ramp=_HOUR))
        running = replace(planned, status=OperationStatus.RUNNING, seen_at=START)
        assert run(desk.change(planned, running)) is False, "there is none yet"
        run(desk.save([planned]))
        assert run(desk.change(planned, running)) is True
        assert run(desk.change(planned, replace(planned, total=9))) is False
        assert run(desk.operation(planned.id)) == running
        found = run(desk.operation(planned.id))
        assert found is not None
        assert run(desk.change(found, replace(found, status=OperationStatus.PAUSED))) is True

    def test_of_many_who_change_an_operation_at_once_one_does(self, desk: Desk, run: Run) -> None:
        first = _operation("1")
        run(desk.save([first]))

        async def crowd() -> list[bool]:
            return await asyncio.gather(*(desk.change(first, replace(first, total=number)) for number in range(10, 30)))

        answers = run(crowd())
        assert answers.count(True) == 1
        assert run(desk.operation(first.id)) == replace(first, total=10 + answers.index(True))

    def test_an_operation_is_dropped_with_its_ledger(self, desk: Desk, run: Run) -> None:
        run(desk.save([_operation("1"), _operation("2")]))
        run(desk.record([_row(1), _row(2), _row(1, operation="2")]))
        run(desk.drop(occurrence("1")))
        run(desk.drop(occurrence("3")))
        assert run(desk.operations()) == [_operation("2")]
        assert run(desk.ledger(occurrence("1"))) == []
        assert run(desk.ledger(occurrence("2"))) == [_row(1, operation="2")]

    def test_a_ledger_comes_by_number_and_is_an_operations_own(self, desk: Desk, run: Run) -> None:
        rows = [_row(3), _row(1), _row(2**62), _row(2, operation="2"), _row(0, letter=UUID(int=2**127))]
        run(desk.record(rows))
        assert run(desk.ledger(occurrence("1"))) == [rows[4], rows[1], rows[0], rows[2]]
        assert run(desk.ledger(occurrence("2"))) == [rows[3]]
        assert run(desk.ledger(occurrence("3"))) == []

    def test_a_row_of_the_same_number_replaces_what_was_there(self, desk: Desk, run: Run) -> None:
        run(desk.record([_row(1), _row(2)]))
        sent = _row(1, generation=2, entry=Entry.UNKNOWN, at=START + _HOUR, detail="the answer was lost: ','\n\0é")
        run(desk.record([_row(1, entry=Entry.SENT), sent]))
        assert run(desk.ledger(occurrence("1"))) == [sent, _row(2)]

    def test_rows_are_found_and_counted_by_their_entries(self, desk: Desk, run: Run) -> None:
        rows = [_row(number, entry=list(Entry)[number % 3]) for number in range(10)]
        run(desk.record(rows))
        first, second, third = list(Entry)[:3]
        assert run(desk.ledger(occurrence("1"), entries={first})) == rows[::3]
        assert run(desk.ledger(occurrence("1"), entries=[second, third], after=4, limit=2)) == [rows[5], rows[7]]
        assert run(desk.ledger(occurrence("1"), entries=[])) == []
        assert run(desk.tally(occurrence("1"))) == {first: 4, second: 3, third: 3}
        run(desk.record([replace(row, entry=first) for row in rows[1:3]]))
        assert run(desk.tally(occurrence("1"))) == {first: 6, second: 2, third: 2}
        assert run(desk.tally(occurrence("2"))) == {}

    @pytest.mark.parametrize("limit", [1, 2, 3, 50])
    def test_a_ledger_is_paged_by_its_rows(self, desk: Desk, run: Run, limit: int) -> None:
        rows = [_row(number) for number in range(1, 8)]
        run(desk.record(rows))
        assert _paged(desk, run, limit) == rows

    @pytest.mark.parametrize("entry", list(Entry))
    def test_every_entry_comes_back(self, desk: Desk, run: Run, entry: Entry) -> None:
        run(desk.record([_row(1, entry=entry)]))
        assert [row.entry for row in run(desk.ledger(occurrence("1")))] == [entry]

    def test_a_large_batch_of_rows_is_written_whole(self, desk: Desk, run: Run) -> None:
        rows = [_row(number) for number in range(1000)]
        run(desk.record(rows))
        assert run(desk.ledger(occurrence("1"))) == rows
        assert run(desk.ledger(occurrence("1"), after=997)) == rows[998:]

    def test_what_was_said_of_a_group_comes_back_and_is_replaced(self, desk: Desk, run: Run) -> None:
        notes = (Note(at=START, by="ann", text="seen \0é'\n"),)
        one = Triage(
            namespace="shop", fingerprint="a'\0é", said=Standing.SNOOZED, at=START, by="ann", until=START + _HOUR, notes=notes
        )
        two = Triage(namespace="shop", fingerprint="b", said=Standing.RESOLVED, at=START, by="bob", release="1.2")
        other = replace(two, namespace="other", assignee="cy")
        run(desk.say([one, two, other]))
        assert run(desk.said("shop")) == {one.fingerprint: one, "b": two}
        assert run(desk.said("shop", ["b", "c"])) == {"b": two}
        assert run(desk.said("shop", [])) == run(desk.said("nobody")) == {}
        later = replace(two, said=Standing.OPEN, at=START + _HOUR)
        run(desk.say([two, later]))
        assert run(desk.said("shop", ["b"])) == {"b": later}
        assert run(desk.said("other")) == {"b": other}
        run(desk.say([]))

    def test_names_of_groups_are_of_any_length(self, desk: Desk, run: Run) -> None:
        name = "".join(map(str, range(5000)))  # what no engine makes small
        long, longer = (
            Triage(namespace="shop", fingerprint=name + more, said=Standing.RESOLVED, at=START, by="ann") for more in ("", "1")
        )
        run(desk.say([long, longer]))
        later = replace(longer, said=Standing.OPEN)
        run(desk.say([later]))
        assert run(desk.said("shop", [long.fingerprint])) == {long.fingerprint: long}
        assert run(desk.said("shop")) == {long.fingerprint: long, longer.fingerprint: later}

    def test_the_audit_comes_latest_first_and_keeps_what_is_alike(self, desk: Desk, run: Run) -> None:
        assert run(desk.audit()) == []
        rows = [_note("discard", at=START + _HOUR), _note("discard"), _note("discard"), _note("restore", detail="\0,'\"\né")]
        run(desk.note(rows[:1]))
        run(desk.note(rows[1:]))
        assert run(desk.audit()) == rows[::-1]
        assert run(desk.audit(limit=2)) == [rows[3], rows[2]]
        assert run(desk.audit(limit=0)) == []

    def test_totals_add_up_and_are_found_by_how_their_names_begin(self, desk: Desk, run: Run) -> None:
        assert run(desk.totals()) == {}
        run(desk.add({"a/x": 2, "a/y": 1, "b%_\0é'": 2**40}))
        run(desk.add({"a/x": 3, "a/y": -1}))
        run(desk.add({}))
        assert run(desk.totals()) == {"a/x": 5, "a/y": 0, "b%_\0é'": 2**40}
        assert run(desk.totals("a/")) == {"a/x": 5, "a/y": 0}
        assert run(desk.totals("%")) == run(desk.totals("A")) == {}

    def test_many_who_add_at_once_lose_nothing(self, desk: Desk, run: Run) -> None:
        async def crowd() -> None:
            for _ in range(5):
                await asyncio.gather(*(desk.add({"x": 1, "y": number} if number % 2 else {"y": number}) for number in range(20)))

        run(crowd())
        assert run(desk.totals()) == {"x": 50, "y": 950}

    def test_what_raises_has_written_nothing(self, desk: Desk, run: Run) -> None:
        hopeless: Any = object()
        for write, good, read in (
            (desk.save, _operation("1"), desk.operations),
            (desk.record, _row(1), lambda: desk.ledger(occurrence("1"))),
            (desk.note, _note("discard"), desk.audit),
        ):
            assert _is_all_or_none(run, write, [good, hopeless], read)

    def test_writing_nothing_is_fine(self, desk: Desk, run: Run) -> None:
        run(desk.save([]))
        run(desk.record([]))
        run(desk.note([]))
        assert run(desk.operations()) == []

    def test_many_who_write_at_once_lose_nothing(self, desk: Desk, run: Run) -> None:
        async def crowd() -> None:
            for number in range(0, 60, 3):
                await asyncio.gather(
                    desk.record([_row(number)]),
                    desk.record([_row(number + 1), _row(number + 2)]),
                    desk.note([_note(str(number))]),
                    desk.save([_operation(str(number))]),
                )

        run(crowd())
        assert run(desk.ledger(occurrence("1"))) == [_row(number) for number in range(60)]
        assert [row.act for row in run(desk.audit())] == [str(number) for number in range(57, -1, -3)]
        assert len(run(desk.operations())) == 20

    def test_every_value_comes_back_equal_field_by_field(self, desk: Desk, run: Run) -> None:
        operations = st.builds(
            Operation,
            id=uuids(),
            target=texts(),
            started_at=instants(),
            total=st.integers(0, 2**31),
            status=st.sampled_from(OperationStatus),
            finished_at=st.none() | instants(),
            by=texts(),
            query=texts(),
            why=texts(),
            entries=st.dictionaries(st.sampled_from(Entry), st.integers(0, 2**31)),
            tempo=st.builds(Tempo, rate=st.none() | st.floats(0.001, 1e6), canary=st.integers(0, 100)),
        )
        rows = st.builds(
            LedgerRow,
            operation=uuids(),
            number=st.integers(0, 2**62),
            letter=uuids(),
            generation=st.integers(1, 2**31),
            entry=st.sampled_from(Entry),
            at=instants(),
            detail=texts(),
        )
        notes = st.builds(AuditRow, at=instants(), by=texts(), act=texts(), subject=texts(), detail=texts())

        @effort(30)
        @given(operations, rows, notes)
        def comes_back(operation: Operation, row: LedgerRow, note: AuditRow) -> None:
            run(desk.save([operation]))
            run(desk.record([row]))
            run(desk.note([note]))
            found = run(desk.operation(operation.id))
            assert found == operation
            assert run(desk.change(found, operation))
            assert row in run(desk.ledger(row.operation))
            assert run(desk.audit(limit=1)) == [note]

        comes_back()

    def test_a_durable_desk_gives_everything_back_when_it_is_opened_again(
        self, opener: DeskOpener, tmp_path: Path, run: Run
    ) -> None:
        if not opener.is_durable:
            pytest.skip("this desk does not claim to be durable")
        with opener.open(tmp_path, run) as desk:
            identity = run(desk.identity())
            run(desk.save([_operation("1")]))
            run(desk.record([_row(1), _row(2)]))
            run(desk.note([_note("a"), _note("b")]))
            run(desk.say([Triage(namespace="shop", fingerprint="a", at=START, by="ann")]))
        with opener.open(tmp_path, run) as again:
            assert run(again.identity()) == identity
            assert run(again.operations()) == [_operation("1")]
            assert run(again.ledger(occurrence("1"))) == [_row(1), _row(2)]
            assert run(again.audit()) == [_note("b"), _note("a")]
            assert set(run(again.said("shop"))) == {"a"}


def _paged(desk: Desk, run: Run, limit: int) -> list[LedgerRow]:
    """The whole ledger, page after page."""
    rows: list[LedgerRow] = []
    page = run(desk.ledger(occurrence("1"), limit=limit))
    while page:
        rows += page
        page = run(desk.ledger(occurrence("1"), limit=limit, after=page[-1].number))
    return rows


def _is_all_or_none(run: Run, write: Any, rows: list[Any], read: Any) -> bool:
    """Did the desk take all the rows, or else none of them?"""
    try:
        run(write(rows))
    except Exception:  # which one is the desk's own affair: such rows are a caller's mistake
        return not run(read())
    return len(run(read())) == len(rows)
