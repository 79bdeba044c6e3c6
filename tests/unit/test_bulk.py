"""Acts on all letters that match: what is touched and what is not, in which steps, and what a cut leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from redrive import (
    EVERYTHING,
    Amendment,
    AnswerLost,
    BadSettings,
    Claim,
    Field,
    Is,
    Letter,
    Message,
    Not,
    Status,
    StoreUnavailable,
    blocking,
)
from redrive.backends.files.bodies import FileBodies
from redrive.backends.memory import MemoryDesk, MemoryLetters
from redrive.engine import walk as module
from redrive.engine.bulk import BulkAct, Swept
from redrive.engine.dead_letters import DeadLetters, Limits
from redrive.engine.walk import Stride, walk
from redrive.model.query import Query, Text
from redrive.model.settlement import Completed, Settlement
from redrive.model.texts import Where
from redrive.ports import LetterStore
from redrive.testing import START, Faulty, Moment, letter, raising, waiting
from tests.contract.backends import memory_letters, sqlite_letters

HOUR = timedelta(hours=1)


@pytest.fixture(params=[memory_letters, sqlite_letters], ids=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LetterStore:
    opened: LetterStore = request.param(tmp_path)
    return opened


def house(store: LetterStore, folder: Path | None = None) -> DeadLetters:
    bodies = FileBodies(folder) if folder else None
    return DeadLetters(store, MemoryDesk(), bodies=bodies, limits=Limits(body=50))


def tell(story: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await story

    asyncio.run(bounded())


async def names(dlq: DeadLetters, query: Query = EVERYTHING) -> set[str]:
    return {one.source_id async for one in dlq.find(query)}


def numbered(count: int, **changes: Any) -> list[Letter]:
    return [letter(str(number), at=START + number * HOUR, **changes) for number in range(count)]


def test_purging_removes_what_matches_of_this_namespace_and_nothing_else(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put([*numbered(7), letter("mail", source="mails"), letter("theirs", namespace="theirs")])
            assert await dlq.purge(Is(Field.SOURCE, "orders")) == 7
            assert await names(dlq) == {"mail"}
            assert await store.count() == 2

    tell(story())


def test_archive_discard_and_restore_go_the_way_of_the_table(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put([*numbered(5), letter("done", status=Status.COMPLETED)])
            assert await dlq.archive(Is(Field.SOURCE_ID, "0")) == 1
            assert await dlq.discard(EVERYTHING, reason="test data") == 5
            assert {one.metadata["discard_reason"] async for one in dlq.find(Is(Field.STATUS, "discarded"))} == {"test data"}
            assert await dlq.archive(EVERYTHING) == 1
            assert await store.tally(Field.STATUS) == {"discarded": 5, "archived": 1}
            assert await dlq.restore(Not(Is(Field.SOURCE_ID, "1"))) == 5
            assert await store.tally(Field.STATUS) == {"discarded": 1, "pending": 5}

    tell(story())


def test_what_a_plan_says_is_what_its_act_can_do(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            every = [letter(status.value, status=status) for status in Status if status is not Status.RETRYING]
            await store.put([*every, letter("held")])
            await store.claim(Claim(owner="ann", lease=HOUR, limit=1, what=(letter("held").id,)))
            plans = {act: await dlq.plan(act, EVERYTHING, reason="r") for act in BulkAct}
            assert set(plans[BulkAct.PURGE].statuses) == set(Status)
            assert (plans[BulkAct.PURGE].matched, plans[BulkAct.PURGE].held) == (8, 1)
            assert set(plans[BulkAct.RESTORE].statuses) == {"archived", "discarded"}
            assert set(plans[BulkAct.ARCHIVE].statuses) == set(Status) - {"archived", "discarded"}
            assert set(plans[BulkAct.DISCARD].statuses) == set(Status) - {"completed", "discarded"}
            swept = await dlq.carry_out(plans[BulkAct.DISCARD])
            assert (swept.matched, swept.done, swept.held, swept.skipped) == (6, 5, 1, 1)

    tell(story())


def test_what_comes_to_match_after_it_was_counted_is_left_alone(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put([letter("older"), letter("seen", status=Status.COMPLETED, at=START + HOUR)])
            plan = await dlq.plan(BulkAct.PURGE, Is(Field.STATUS, "completed"))
            (claimed,) = await store.claim(Claim(owner="ann", lease=HOUR, limit=1, what=(letter("older").id,)))
            lease = claimed.lease
            await store.settle([Settlement(id=lease.id, token=lease.token, generation=lease.generation, outcome=Completed())])
            assert await dlq.carry_out(plan) == Swept(matched=1, done=1)
            assert await names(dlq) == {"older"}

    tell(story())


def test_what_has_changed_since_it_was_counted_is_left_alone_and_told(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put(numbered(3))
            plan = await dlq.plan(BulkAct.PURGE, EVERYTHING)
            await store.amend([Amendment(id=letter("1").id, tags=("wanted",))])
            assert await dlq.carry_out(plan) == Swept(matched=3, done=2, changed=1)
            assert await names(dlq) == {"1"}

    tell(story())


def test_a_letter_that_is_dated_ahead_lets_no_others_in(store: LetterStore) -> None:
    """As one of a host whose clock is wrong is."""

    async def story() -> None:
        async with house(store) as dlq:
            now = datetime.now(UTC)
            await store.put([letter("ahead", at=now + 24 * HOUR), letter("seen", at=now - HOUR)])
            plan = await dlq.plan(BulkAct.PURGE, EVERYTHING)
            await store.put([letter("later", at=now + timedelta(minutes=2)), letter("far", at=now + 12 * HOUR)])
            assert await dlq.carry_out(plan) == Swept(matched=2, done=2)
            assert await names(dlq) == {"later", "far"}

    tell(story())


def test_however_many_letters_are_dated_ahead_all_are_done(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            ahead = datetime.now(UTC) + 24 * HOUR
            await store.put([letter(str(number), at=ahead + timedelta(seconds=number)) for number in range(1100)])
            assert await dlq.carry_out(await dlq.plan(BulkAct.ARCHIVE, EVERYTHING)) == Swept(matched=1100, done=1100)

    tell(story())


def test_nothing_is_done_to_more_letters_than_were_counted(store: LetterStore) -> None:
    """Not even where some come late whose date is that of others."""

    async def story() -> None:
        async with house(store) as dlq:
            await store.put(numbered(5))
            plan = await dlq.plan(BulkAct.ARCHIVE, EVERYTHING)
            await store.put([letter(f"late {number}") for number in range(3)])
            assert await dlq.carry_out(plan) == Swept(matched=5, done=5)
            assert await store.tally(Field.STATUS) == {"archived": 5, "pending": 3}

    tell(story())


def test_letters_that_somebody_holds_are_left_alone_and_counted(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put(numbered(6))
            await store.claim(Claim(owner="ann", lease=HOUR, limit=2, what=dlq.within()))
            heard: list[Swept] = []
            assert await dlq.purge(EVERYTHING, progress=heard.append) == 4
            assert (heard[-1].matched, heard[-1].done, heard[-1].held) == (6, 4, 2)
            assert await names(dlq) == {"0", "1"}

    tell(story())


def test_a_letter_that_is_claimed_or_reopened_on_the_way_is_left_alone(store: LetterStore) -> None:
    async def story() -> None:
        faulty = Faulty(store)
        async with house(faulty) as dlq:
            await store.put([letter("held"), letter("again", status=Status.COMPLETED), letter("free")])

            async def meanwhile() -> None:
                await store.claim(Claim(owner="ann", lease=HOUR, limit=1, what=(letter("held").id,)))
                await store.put([letter("again", failed=2, generation=2)])

            faulty.lay("amend", Moment.BEFORE, meanwhile)
            swept = await dlq.carry_out(await dlq.plan(BulkAct.ARCHIVE, EVERYTHING))
            assert (swept.done, swept.held, swept.changed) == (1, 1, 1)
            found = {one.source_id: one.status async for one in dlq.find()}
            assert found == {"held": Status.RETRYING, "again": Status.PENDING, "free": Status.ARCHIVED}

    tell(story())


def test_a_letter_that_no_longer_matches_is_not_removed(store: LetterStore) -> None:
    async def story() -> None:
        faulty = Faulty(store)
        async with house(faulty) as dlq:
            await store.put([letter("mended"), letter("other")])

            async def meanwhile() -> None:
                await store.amend([Amendment(id=letter("mended").id, tags=("keep",))])

            faulty.lay("purge", Moment.BEFORE, meanwhile)
            swept = await dlq.carry_out(await dlq.plan(BulkAct.PURGE, Not(Is(Field.TAG, "keep"))))
            assert (swept.done, swept.changed) == (1, 1)
            assert await names(dlq) == {"mended"}

    tell(story())


def test_what_comes_after_the_plan_is_not_touched(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put(numbered(3))
            plan = await dlq.plan(BulkAct.PURGE, EVERYTHING)
            await store.put([letter("late", at=START + 100 * HOUR)])
            assert (await dlq.carry_out(plan)).done == 3
            assert await names(dlq) == {"late"}

    tell(story())


def test_who_dies_while_letters_are_counted_is_not_touched(store: LetterStore) -> None:
    async def story() -> None:
        faulty = Faulty(store)
        async with house(faulty) as dlq:
            await store.put(numbered(3))

            async def meanwhile() -> None:
                await store.put([letter("late", at=START + 100 * HOUR)])

            faulty.lay("tally", Moment.BEFORE, meanwhile)
            plan = await dlq.plan(BulkAct.PURGE, EVERYTHING)
            assert plan.matched == 4
            assert (await dlq.carry_out(plan)).done == 3
            assert await names(dlq) == {"late"}

    tell(story())


def test_a_letter_that_fails_again_after_the_plan_is_not_removed(store: LetterStore) -> None:
    async def story() -> None:
        faulty = Faulty(store)
        async with house(faulty) as dlq:
            await store.put([letter("again", status=Status.COMPLETED), letter("done", status=Status.COMPLETED)])

            async def meanwhile() -> None:
                await store.put([letter("again", failed=2, generation=2, at=START + HOUR)])

            faulty.lay("purge", Moment.BEFORE, meanwhile)
            assert await dlq.purge(EVERYTHING) == 1
            assert await names(dlq) == {"again"}

    tell(story())


def test_older_than_leaves_the_younger_out() -> None:
    async def story() -> None:
        async with house(MemoryLetters()) as dlq:
            now = datetime.now(UTC)
            await dlq.letters.put([letter("old", at=now - 2 * HOUR), letter("young", at=now)])
            assert await dlq.purge(EVERYTHING, older_than=HOUR) == 1
            assert await names(dlq) == {"young"}

    tell(story())


def test_nothing_that_matches_is_no_act(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            assert await dlq.purge(EVERYTHING) == 0
            assert await dlq.desk.audit() == []

    tell(story())


def test_discarding_needs_a_reason_and_a_batch_a_letter() -> None:
    async def story() -> None:
        async with house(MemoryLetters()) as dlq:
            with pytest.raises(BadSettings, match="for a reason"):
                await dlq.discard(EVERYTHING, reason="")
            with pytest.raises(BadSettings, match="at least 1 letter"):
                await dlq.purge(EVERYTHING, batch=0)

    tell(story())


def test_every_act_is_in_the_audit_with_who_what_and_how_many(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put(numbered(3))
            await dlq.discard(Is(Field.SOURCE, "orders"), reason="spam", by="ann")
            done, began = await dlq.desk.audit()
            assert (began.by, began.act, done.act) == ("ann", "discard", "discard")
            assert began.subject == done.subject == "namespace:default source:orders"
            assert (began.detail, done.detail) == ("began: 3 matched (spam)", "done: 3 discarded (spam)")

    tell(story())


def test_without_its_audit_nothing_is_done() -> None:
    class Closed(MemoryDesk):
        async def note(self, rows: object) -> None:
            raise StoreUnavailable("the desk is closed")

    async def story() -> None:
        dlq = DeadLetters(MemoryLetters(), Closed())
        await dlq.letters.put(numbered(3))
        with pytest.raises(StoreUnavailable):
            await dlq.purge(EVERYTHING)
        assert await dlq.count() == 3
        await dlq.close()

    tell(story())


def test_body_files_go_with_their_letters_and_those_of_others_stay(store: LetterStore, tmp_path: Path) -> None:
    async def story() -> None:
        folder = tmp_path / "bodies"
        async with house(store, folder) as dlq:
            for number in range(4):
                await dlq.capture(
                    Message(body=b"x" * 100, id=str(number)), ValueError("bad"), source="orders" if number else "mails"
                )
            assert len(list(folder.iterdir())) == 4
            assert await dlq.purge(Is(Field.SOURCE, "orders")) == 3
            (left,) = [one async for one in dlq.find()]
            assert left.body_ref is not None
            assert [path.name for path in folder.iterdir()] == [left.body_ref.name]
            assert await dlq.body(left) == b"x" * 100

    tell(story())


def test_a_purge_whose_answer_was_lost_is_looked_up_and_its_files_are_dropped(store: LetterStore, tmp_path: Path) -> None:
    async def story() -> None:
        faulty, folder = Faulty(store), tmp_path / "bodies"
        async with house(faulty, folder) as dlq:
            await dlq.capture(b"x" * 100, ValueError("bad"), source="orders")
            faulty.lay("purge", Moment.AFTER, raising(AnswerLost("cut")))
            assert await dlq.purge(EVERYTHING) == 1
            assert list(folder.iterdir()) == []

    tell(story())


def test_an_amendment_whose_answer_was_lost_is_looked_up(store: LetterStore) -> None:
    async def story() -> None:
        faulty = Faulty(store)
        async with house(faulty) as dlq:
            await store.put(numbered(3))
            faulty.lay("amend", Moment.AFTER, raising(AnswerLost("cut")))
            assert await dlq.archive(EVERYTHING) == 3
            faulty.lay("amend", Moment.BEFORE, raising(AnswerLost("cut")))
            assert await dlq.restore(EVERYTHING) == 0
            assert await dlq.restore(EVERYTHING) == 3

    tell(story())


def test_an_outage_halfway_is_raised_and_the_same_again_goes_on(store: LetterStore) -> None:
    async def story() -> None:
        faulty = Faulty(store)
        async with house(faulty) as dlq:
            await store.put(numbered(10))
            heard: list[Swept] = []

            async def pass_by() -> None:
                return None

            faulty.lay("purge", Moment.BEFORE, pass_by, times=2)
            faulty.lay("purge", Moment.BEFORE, raising(StoreUnavailable("gone")))
            with pytest.raises(StoreUnavailable):
                await dlq.purge(EVERYTHING, batch=2, progress=heard.append)
            assert heard[-1] == Swept(matched=10, done=4)
            assert (await dlq.desk.audit())[0].detail == "cut short: 4 removed"
            assert await dlq.purge(EVERYTHING, batch=2) == 6

    tell(story())


def test_a_cancellation_waits_for_the_call_under_way_and_loses_nothing(store: LetterStore, tmp_path: Path) -> None:
    async def story() -> None:
        faulty, folder, gate = Faulty(store), tmp_path / "bodies", asyncio.Event()
        async with house(faulty, folder) as dlq:
            for number in range(6):
                await dlq.capture(Message(body=b"x" * 100, id=str(number)), ValueError("bad"), source="orders")
            faulty.lay("purge", Moment.AFTER, waiting(gate))
            work = asyncio.create_task(dlq.purge(EVERYTHING, batch=2))
            while await store.count() == 6:  # noqa: ASYNC110 - asks a store
                await asyncio.sleep(0.001)
            work.cancel()
            await asyncio.sleep(0.01)
            assert not work.done()
            gate.set()
            with pytest.raises(asyncio.CancelledError):
                await work
            left = [one async for one in dlq.find()]
            assert len(left) == 4
            assert {path.name for path in folder.iterdir()} == {one.body_ref.name for one in left if one.body_ref}
            assert (await dlq.desk.audit())[0].detail == "cut short: 2 removed"
            assert await dlq.purge(EVERYTHING) == 4

    tell(story())


def test_a_walk_sees_every_letter_once_whatever_leaves_meanwhile(store: LetterStore) -> None:
    async def story() -> None:
        await store.put(numbered(25))
        seen: list[str] = []
        async for page in walk(store, EVERYTHING, most=4):
            seen += [one.source_id for one in page]
            assert len(page) <= 4
            await store.purge(EVERYTHING, among=[one.id for one in page[:2]])
        assert seen == [str(number) for number in range(25)]
        await store.close()

    tell(story())


def test_pages_shrink_where_bodies_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        store = MemoryLetters()
        await store.put([letter(str(number), at=START + number * HOUR, body=b"x" * 50_000) for number in range(60)])
        sizes = [len(page) async for page in walk(store, EVERYTHING, is_polite=False)]
        assert max(sizes[1:]) * 50_000 <= 200_000
        assert sum(sizes) == 60

    monkeypatch.setattr(module, "_LOAD_BYTES", 200_000)
    tell(story())


def test_strides_halve_when_a_call_was_long_and_grow_slowly_when_it_was_short() -> None:
    stride = Stride()
    sizes = [stride.size]
    for _ in range(40):
        stride.learn(0.001, stride.size)
        sizes.append(stride.size)
    assert all(0 < after - before <= before // 2 + 1 for before, after in pairwise(sizes) if before < 1000)
    assert stride.size == 1000
    stride.learn(0.2, 1000)
    assert stride.size == 500
    stride.learn(0.001, 3)
    assert stride.size == 500, "a call for three says nothing about five hundred"
    for seconds in (0.03, 0.03, 0.005, 0.03, 0.03):
        stride.learn(seconds, 500)
    assert stride.size == 500, "who waits for others now and then is not slow"
    stride.learn(0.03, 500)
    assert stride.size == 250
    for _ in range(20):
        stride.learn(0.1, stride.size)
    assert stride.size == 16, "so few take no store long"
    assert Stride(5).size == 5


def test_words_that_are_not_indexed_yet_do_not_make_a_letter_go() -> None:
    """A store whose index is behind answers that the words are not there."""

    class Behind(MemoryLetters):
        async def find(self, query: Query = EVERYTHING, **more: Any) -> Any:
            return await super().find(EVERYTHING, **more)

        async def tally(self, by: Field, query: Query = EVERYTHING, **more: Any) -> dict[str, int]:
            return await super().tally(by, EVERYTHING, **more)

        async def purge(self, query: Query, **more: Any) -> list[Letter]:
            return await super().purge(EVERYTHING, **more)

    async def story() -> None:
        async with house(Behind()) as dlq:
            await dlq.letters.put([letter("keep", body=b"precious words"), letter("go", body=b"other words")])
            assert await dlq.purge(Not(Text("precious", Where.BODY))) == 1
            assert await names(dlq) == {"keep"}

    tell(story())


def test_two_at_once_remove_every_letter_once(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put(numbered(200))
            counts = await asyncio.gather(*(dlq.purge(EVERYTHING, batch=7) for _ in range(3)))
            assert sum(counts) == 200
            assert await store.count() == 0

    tell(story())


def test_blocking_code_has_the_same_verbs(tmp_path: Path) -> None:
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        dlq.hold(numbered(5))
        heard: list[Swept] = []
        assert dlq.archive(EVERYTHING, progress=heard.append) == 5
        assert heard[-1].done == 5
        assert dlq.restore(Is(Field.SOURCE_ID, "3")) == 1
        assert dlq.discard(EVERYTHING, reason="old") == 5
        plan = dlq.plan(BulkAct.PURGE, EVERYTHING)
        assert plan.statuses == {"discarded": 5}
        assert dlq.carry_out(plan).done == 5
        assert [row.act for row in dlq.desk.audit()] == ["purge"] * 2 + ["discard"] * 2 + ["restore"] * 2 + ["archive"] * 2
