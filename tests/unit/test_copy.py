"""Copying a store: every letter arrives as it was, and a copy that was cut short is simply started again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive import (
    AnswerLost,
    BadSettings,
    BodyTooLarge,
    Letter,
    RedriveError,
    Status,
    StoreError,
    StoreFull,
    StoreNotWritable,
    StoreUnavailable,
    Unsupported,
    wiring,
)
from redrive.backends.files.bodies import FileBodies
from redrive.backends.memory import MemoryLetters
from redrive.engine.copy import Copied, copy
from redrive.engine.whole import Side, whole
from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.lease import Claim
from redrive.model.letter import HISTORY_LIMIT, Origin, RedriveMark, RetryPlan
from redrive.model.query import Field, Is, Order
from redrive.model.settlement import Completed, Settlement
from redrive.model.stored import restored, stored
from redrive.ports.inline import drive
from redrive.ports.letters import LetterStore
from redrive.testing import Faulty, Moment, attempt, letter, raising
from redrive.testing.kit import strategies

LIMIT = 8
"""Bytes; what is larger lies in a file beside a store on SQLite."""


def in_memory(*letters: Letter) -> Side:
    side = Side(letters=MemoryLetters())
    drive(side.letters.put(letters))
    return side


def on_disk(folder: Path, name: str = "letters") -> Side:
    opened = wiring.store(f"sqlite:{folder}/{name}.db")
    assert opened.bodies_folder is not None
    return Side(letters=opened.letters, bodies=FileBodies(opened.bodies_folder), body_limit=LIMIT)


async def all_of(store: LetterStore) -> tuple[Letter, ...]:
    return (await store.find(order=Order.OLDEST, limit=10_000)).letters


def copied(source: Side, target: Side, **how: Any) -> Copied:
    return asyncio.run(copy(source, target, **how))


def in_full(source: Side) -> tuple[Letter, ...]:
    return asyncio.run(all_of(source.letters))


def storable(drawn: Letter) -> Letter:
    """The letter with its bodies inside: files that nobody wrote cannot be copied."""
    original = drawn.original and replace(drawn.original, body_ref=None)
    return replace(drawn, body_ref=None, original=original)


@strategies.effort()
@given(st.lists(strategies.letters().map(storable), max_size=4, unique_by=lambda one: one.id), st.integers(1, 3))
def test_whatever_was_stored_comes_back_equal_over_two_stores(letters: list[Letter], batch: int) -> None:
    async def story(folder: Path) -> None:
        first, middle, last = in_memory(), on_disk(folder), in_memory()
        try:
            await first.letters.put(letters)
            there = await copy(first, middle, batch=batch)
            back = await copy(middle, last, batch=batch)
            assert there.is_verified
            assert back.is_verified
            assert there.source_checksum == back.target_checksum
            assert await all_of(last.letters) == await all_of(first.letters)
        finally:
            await middle.letters.close()

    with TemporaryDirectory() as folder:
        asyncio.run(story(Path(folder)))


def test_a_long_history_and_what_it_forgot_are_copied_too() -> None:
    attempts = tuple(attempt(f"a{number}") for number in range(HISTORY_LIMIT + 20))
    source, target = in_memory(letter("1", history=attempts)), in_memory()
    assert copied(source, target).is_verified
    (there,) = in_full(target)
    assert (len(there.history), there.history_dropped, len(there.forgotten)) == (HISTORY_LIMIT, 20, 20 * 16)
    assert asyncio.run(target.letters.put([letter("1", history=attempts[5:6])])) == [Held.DUPLICATE]


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.RETRYING])
def test_a_letter_stands_where_it_stood(status: Status) -> None:
    source, target = in_memory(letter("1", status=status, generation=7, namespace="shop")), in_memory()
    assert copied(source, target).is_verified
    assert in_full(target) == in_full(source)


def test_a_second_copy_changes_nothing_and_verifies_the_same() -> None:
    source, target = in_memory(*(letter(str(number)) for number in range(7))), in_memory(letter("other"))
    first = copied(source, target, batch=3)
    again = copied(source, target, batch=2)
    assert (first.seen, first.copied, first.already, first.others) == (7, 7, 0, 1)
    assert (again.seen, again.copied, again.already, again.others) == (7, 0, 7, 1)
    assert first.is_verified
    assert again.is_verified
    assert again.source_checksum == first.target_checksum


def test_a_copy_that_broke_off_goes_on_from_there() -> None:
    source, target = in_memory(*(letter(str(number)) for number in range(9))), in_memory()
    faulty = Faulty(target.letters)
    reached: list[Copied] = []

    async def story() -> None:
        async def pass_by() -> None:
            return None

        faulty.lay("put", Moment.BEFORE, pass_by)
        faulty.lay("put", Moment.BEFORE, raising(StoreUnavailable("cut")))
        with pytest.raises(StoreUnavailable):
            await copy(source, replace(target, letters=faulty), batch=3, progress=reached.append)
        assert [(one.seen, one.source_count) for one in reached] == [(3, 9)]
        assert await target.letters.count() == 3
        rest = await copy(source, target, batch=3)
        assert (rest.copied, rest.already, rest.is_verified) == (6, 3, True)

    asyncio.run(story())


def test_an_answer_that_was_lost_doubles_nothing() -> None:
    source, target = in_memory(letter("1"), letter("2")), in_memory()
    faulty = Faulty(target.letters)
    faulty.lay("put", Moment.AFTER, raising(StoreUnavailable("the answer was lost")))
    with pytest.raises(StoreUnavailable):
        copied(source, replace(target, letters=faulty))
    assert copied(source, target).already == 2
    assert in_full(target) == in_full(source)


def test_letters_that_differ_are_left_alone_and_named_unless_they_are_to_be_overwritten() -> None:
    ours, theirs = letter("1", body=b"ours"), letter("1", body=b"theirs")
    source, target = in_memory(ours, letter("2")), in_memory(theirs)
    careful = copied(source, target)
    assert (careful.copied, careful.differing, careful.differing_ids) == (1, 1, (ours.id,))
    assert not careful.is_verified
    assert careful.source_checksum != careful.target_checksum
    assert theirs in in_full(target)
    bold = copied(source, target, overwrite=True)
    assert (bold.already, bold.replaced, bold.differing, bold.is_verified) == (1, 1, 0, True)
    assert in_full(target) == in_full(source)


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(tmp_path: Path) -> None:
    source, target = in_memory(letter("1"), letter("2", body=b"ours")), in_memory(letter("2", body=b"theirs"))
    before = in_full(target)
    report = copied(source, target, dry_run=True, overwrite=True)
    assert (report.copied, report.differing, report.replaced, report.is_verified) == (1, 1, 0, False)
    assert in_full(target) == before
    nowhere = on_disk(tmp_path)
    assert copied(source, nowhere, dry_run=True).copied == 2
    assert list(tmp_path.iterdir()) == []


def test_a_letter_that_somebody_holds_is_not_copied_until_it_is_settled() -> None:
    source, target = in_memory(letter("1", status=Status.EXHAUSTED), letter("2")), in_memory()

    async def story() -> None:
        (claimed,) = await source.letters.claim(Claim(owner="ann", lease=timedelta(hours=1), limit=1, what=(letter("1").id,)))
        report = await copy(source, target)
        assert (report.copied, report.held, report.held_ids) == (1, 1, (letter("1").id,))
        assert not report.is_verified
        await source.letters.settle([Settlement.of(claimed.lease, Completed())])
        assert (await copy(source, target)).is_verified
        assert await all_of(target.letters) == await all_of(source.letters)

    asyncio.run(story())


def test_a_lease_in_the_target_makes_no_difference() -> None:
    source, target = in_memory(letter("1", status=Status.QUARANTINED)), in_memory(letter("1", status=Status.QUARANTINED))

    async def story() -> None:
        await target.letters.claim(Claim(owner="ann", lease=timedelta(hours=1), limit=1, what=(letter("1").id,)))
        assert (await copy(source, target)).already == 1

    asyncio.run(story())


def test_overwriting_takes_nothing_from_who_holds_it() -> None:
    source, target = in_memory(letter("1", body=b"ours")), in_memory(letter("1", body=b"theirs"))

    async def story() -> None:
        await target.letters.claim(Claim(owner="ann", lease=timedelta(hours=1), limit=1, what=(letter("1").id,)))
        report = await copy(source, target, overwrite=True)
        assert (report.differing, report.replaced, report.is_verified) == (1, 0, False)
        assert (await all_of(target.letters))[0].body == b"theirs"

    asyncio.run(story())


def test_large_bodies_go_both_ways_and_leave_no_file_behind(tmp_path: Path) -> None:
    big, first = b"b" * 100, b"f" * 50

    async def story() -> None:
        middle, last, inline = on_disk(tmp_path, "a"), on_disk(tmp_path, "b"), in_memory()
        try:
            await inline.letters.put([letter("1", body=first)])
            await inline.letters.amend([Amendment(id=letter("1").id, body=big)])
            assert (await copy(inline, middle)).is_verified
            (there,) = await all_of(middle.letters)
            assert (there.body, there.body_size, there.original and there.original.body) == (b"", 100, b"")
            assert (await copy(middle, last)).is_verified
            home = in_memory()
            assert (await copy(last, home)).is_verified
            assert await all_of(home.letters) == await all_of(inline.letters)
            await inline.letters.amend([Amendment(id=letter("1").id, body=b"small")])
            assert (await copy(inline, middle, overwrite=True)).is_verified
            assert [path.read_bytes() for path in (tmp_path / "a.db.bodies").iterdir()] == [first]
        finally:
            await middle.letters.close()
            await last.letters.close()

    asyncio.run(story())


def test_a_body_that_is_missing_is_reported_and_holds_up_no_other_letter(tmp_path: Path) -> None:
    async def story() -> None:
        source, target = on_disk(tmp_path), in_memory()
        try:
            await copy(in_memory(letter("1", body=b"large enough"), letter("2", body=b"small")), source)
            (file,) = (tmp_path / "letters.db.bodies").iterdir()
            file.unlink()
            report = await copy(source, target)
            assert (report.copied, report.failed, report.is_verified) == (1, 1, False)
            (problem,) = report.problems
            assert problem.startswith(f"{letter('1').id}: the body ")
            assert "restore it from a backup" in problem
        finally:
            await source.letters.close()

    asyncio.run(story())


def test_a_body_that_was_damaged_in_the_target_is_found_and_mended(tmp_path: Path) -> None:
    source = in_memory(letter("1", body=b"large enough"))

    async def story() -> None:
        target = on_disk(tmp_path)
        try:
            assert (await copy(source, target)).is_verified
            (file,) = (tmp_path / "letters.db.bodies").iterdir()
            file.write_bytes(b"damaged here")
            assert (await copy(source, target)).differing == 1
            assert (await copy(source, target, overwrite=True)).is_verified
            assert file.read_bytes() == b"large enough"
        finally:
            await target.letters.close()

    asyncio.run(story())


class Picky(MemoryLetters):
    """A store with a limit of its own."""

    def __init__(self, refusal: RedriveError) -> None:
        super().__init__()
        self._refusal = refusal

    async def put(self, letters: Sequence[Letter], *, now: datetime | None = None) -> list[Held]:
        if any(len(one.body) > 20 for one in letters):
            raise self._refusal
        return await super().put(letters, now=now)

    async def amend(self, amendments: Sequence[Amendment], *, now: datetime | None = None) -> list[Amended]:
        if any(one.instead is not None and len(one.instead.body) > 20 for one in amendments):
            raise self._refusal
        return await super().amend(amendments, now=now)


@pytest.mark.parametrize("kind", [BodyTooLarge, Unsupported, StoreError, StoreNotWritable])
def test_a_letter_that_the_target_refuses_is_reported_and_holds_up_no_other(kind: type[RedriveError]) -> None:
    source = in_memory(letter("1"), letter("2", body=b"x" * 21), letter("3"))
    target = Side(letters=Picky(kind("more than 20 bytes")))
    report = copied(source, target)
    assert (report.copied, report.failed, report.is_verified) == (2, 1, False)
    assert report.problems == (f"{letter('2').id}: more than 20 bytes",)


def test_what_cannot_be_replaced_stays_as_it_is() -> None:
    source, old = in_memory(letter("1", body=b"x" * 21)), letter("1", body=b"old")
    for kind in (BodyTooLarge, StoreError):
        target = Side(letters=Picky(kind("more than 20 bytes")))
        asyncio.run(target.letters.put([old]))
        assert copied(source, target, overwrite=True).failed == 1
        assert in_full(target) == (old,)
    target = Side(letters=Picky(StoreFull("no space is left")))
    asyncio.run(target.letters.put([old]))
    with pytest.raises(StoreFull):
        copied(source, target, overwrite=True)
    assert in_full(target) == (old,)


@pytest.mark.parametrize("moment", list(Moment))
def test_what_is_to_be_replaced_is_there_at_every_instant(moment: Moment) -> None:
    target = in_memory(letter("1", body=b"old"), letter("2", body=b"old"))
    faulty = Faulty(target.letters)
    faulty.lay("amend", moment, raising(AnswerLost("no answer")))
    with pytest.raises(AnswerLost):
        copied(in_memory(letter("1"), letter("2")), Side(letters=faulty), overwrite=True)
    assert "purge" not in faulty.calls
    expected = [b"old"] * 2 if moment is Moment.BEFORE else [letter(name).body for name in "12"]
    assert [one.body for one in in_full(target)] == expected


@pytest.mark.parametrize("batch", [1, 2])
def test_letters_that_are_all_refused_are_all_reported(batch: int) -> None:
    source = in_memory(*(letter(str(number), body=b"x" * 21) for number in range(3)), letter("taken"))
    report = copied(source, Side(letters=Picky(StoreError("cannot be indexed"))), batch=batch)
    assert (report.copied, report.failed, len(report.problems)) == (1, 3, 3)


@pytest.mark.parametrize("kind", [StoreFull, StoreNotWritable, StoreUnavailable])
def test_a_target_that_is_at_fault_itself_ends_the_copy(kind: type[RedriveError]) -> None:
    source = in_memory(*(letter(str(number), body=b"x" * 21) for number in range(3)))
    with pytest.raises(kind, match="that is all"):
        copied(source, Side(letters=Picky(kind("that is all"))))


def test_two_addresses_of_one_store_lose_nothing() -> None:
    source = in_memory(letter("1"))
    faulty = Faulty(source.letters)

    async def changed() -> None:
        await source.letters.amend([Amendment(id=letter("1").id, priority=5)])

    faulty.lay("get", Moment.BEFORE, changed)
    report = copied(source, replace(source, letters=faulty), overwrite=True)
    assert (report.replaced, report.differing, report.is_verified) == (0, 1, False)
    assert [one.priority for one in in_full(source)] == [5]


def test_a_letter_that_leaves_the_source_while_it_is_copied_stays_in_the_target_as_it_is() -> None:
    source, target = in_memory(letter("1"), letter("2")), in_memory(letter("1", body=b"old"), letter("2", body=b"old"))
    faulty = Faulty(source.letters)

    async def left() -> None:
        await source.letters.purge(Is(Field.SOURCE_ID, "1"))

    faulty.lay("get", Moment.BEFORE, left)
    report = copied(replace(source, letters=faulty), target, overwrite=True)
    assert (report.replaced, report.differing, report.differing_ids) == (1, 1, (letter("1").id,))
    assert in_full(target) == (letter("1", body=b"old"), letter("2"))


class Forgetful(MemoryLetters):
    """A store that changes what it is given."""

    async def put(self, letters: Sequence[Letter], *, now: datetime | None = None) -> list[Held]:
        return await super().put([replace(one, tags=()) for one in letters], now=now)


def test_what_a_store_changes_is_found_when_it_is_read_back() -> None:
    source, target = in_memory(letter("1", tags=("red",)), letter("2")), Side(letters=Forgetful())
    report = copied(source, target)
    assert (report.copied, report.differing_ids, report.is_verified) == (1, (letter("1").id,), False)


def test_letters_that_come_while_it_copies_are_not_passed_over_in_silence() -> None:
    source, target = in_memory(*(letter(str(number)) for number in range(4))), in_memory()
    faulty = Faulty(target.letters)

    async def arrives() -> None:
        await source.letters.put([letter("late", at=letter().dead_lettered_at - timedelta(days=1))])

    faulty.lay("put", Moment.AFTER, arrives)
    report = copied(source, replace(target, letters=faulty), batch=2)
    assert (report.seen, report.source_count, report.is_verified) == (4, 5, False)
    assert copied(source, target).is_verified


def test_large_letters_are_carried_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.engine.whole._LOAD_BYTES", 10_000)
    source, target = in_memory(*(letter(str(number), body=bytes(4_000)) for number in range(60))), in_memory()
    faulty = Faulty(source.letters)
    reached: list[Copied] = []
    assert copied(replace(source, letters=faulty), target, progress=reached.append).is_verified
    steps = [after.seen - before.seen for before, after in zip([Copied(), *reached], reached, strict=False)]
    assert max(steps) == 2
    assert faulty.calls.count("find") == 1 + 25


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(BadSettings, match="at least 1 letter"):
        copied(in_memory(), in_memory(), batch=0)


def test_equal_letters_have_equal_digests_however_they_were_made() -> None:
    stored_one = restored(stored(letter()))
    # What a parser gives: values that equal their defaults, and are not the defaults themselves.
    parsed = replace(stored_one, origin=Origin(), redrive=RedriveMark(), retry=RetryPlan(policy="".join(["ne", "ver"])))
    assert parsed == stored_one
    side = Side(letters=MemoryLetters())
    digests = {asyncio.run(whole(one, side)).digest for one in (stored_one, parsed)}
    assert len(digests) == 1
    assert asyncio.run(whole(replace(parsed, tags=("vip",)), side)).digest not in digests
