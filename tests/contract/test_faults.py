"""The wrappers that inject faults do what they say, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from redrive.backends.memory.letters import MemoryLetters
from redrive.model.arrival import Held
from redrive.model.errors import BadSettings, StoreUnavailable
from redrive.ports import LetterStore
from redrive.ports.inline import drive
from redrive.testing import Clerk, Faulty, Moment, Outage, raising, waiting
from redrive.testing.kit.samples import START, letter

GONE = StoreUnavailable("gone for lunch")


def test_a_laid_fault_strikes_once_and_before_anything_is_done() -> None:
    store = Faulty(MemoryLetters(), fail_next={"put": GONE})
    clerk = Clerk(store, drive)
    with pytest.raises(StoreUnavailable):
        clerk.put(letter())
    assert clerk.count() == 0
    assert clerk.put(letter()) == [Held.NEW]
    assert store.calls == ["put", "count", "put"]
    assert store.waiting_faults == 0


def test_a_cut_answer_is_that_of_a_call_that_was_done() -> None:
    store = Faulty(MemoryLetters())
    store.lay("put", Moment.AFTER, raising(GONE), times=2)
    clerk = Clerk(store, drive)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            clerk.put(letter())
    assert clerk.put(letter()) == [Held.DUPLICATE]


def test_a_delayed_call_goes_on_when_its_gate_opens() -> None:
    async def scene() -> None:
        store, gate = Faulty(MemoryLetters()), asyncio.Event()
        store.lay("put", Moment.BEFORE, waiting(gate))
        put = asyncio.ensure_future(store.put([letter()], now=START))
        assert await store.count(now=START) == 0
        assert not put.done()
        gate.set()
        assert await put == [Held.NEW]

    asyncio.run(scene())


def test_a_fault_for_an_unknown_verb_is_refused() -> None:
    with pytest.raises(BadSettings, match="no verb 'putt'"):
        Faulty(MemoryLetters(), fail_next={"putt": GONE})


def test_a_store_that_is_down_answers_nothing_until_it_is_up() -> None:
    store = Outage(MemoryLetters())
    clerk = Clerk(store, drive)
    clerk.put(letter("before"))
    store.down()
    for verb in (clerk.check, clerk.count, clerk.put, clerk.claim, clerk.purge):
        with pytest.raises(StoreUnavailable):
            verb()
    store.up()
    clerk.check()
    assert clerk.all() == [letter("before")]


def test_an_outage_is_not_that_of_an_embedded_store() -> None:
    inner = MemoryLetters()
    assert inner.capabilities.embedded
    assert not Outage(inner).capabilities.embedded
    assert Outage(inner).capabilities.inline


@pytest.mark.parametrize("wrap", [Faulty, Outage])
def test_a_wrapper_without_faults_passes_everything_on(wrap: type[Faulty] | type[Outage]) -> None:
    store: LetterStore = wrap(MemoryLetters())
    clerk = Clerk(store, drive)
    clerk.put(letter(due=START))
    (claimed,) = clerk.claim()
    assert clerk.get(letter().id) == list(clerk.find().letters) == [claimed.letter]
    assert clerk.count() == len(clerk.groups().groups) == 1
    clerk.close()
