"""Dependencies between letters: who waits for whom, and no circles."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from redrive import CircularDependency, Letter, Status
from redrive.backends.memory import MemoryLetters
from redrive.engine.depend import Waiting, ensure_no_circle, ids_of, said, unmet
from redrive.ports import LetterStore
from redrive.testing import Faulty, letter


def node(name: str, *depends_on: str, source: str = "orders", status: Status = Status.PENDING) -> Letter:
    return letter(name, depends_on=depends_on, source=source, status=status)


def holding(*letters: Letter) -> Faulty:
    store = Faulty(MemoryLetters())
    asyncio.run(store.put(letters))
    store.calls.clear()
    return store


def refused(store: LetterStore, *letters: Letter) -> str:
    with pytest.raises(CircularDependency) as error:
        asyncio.run(ensure_no_circle(store, letters))
    return str(error.value)


def accepted(store: LetterStore, *letters: Letter) -> None:
    asyncio.run(ensure_no_circle(store, letters))


def test_a_letter_that_depends_on_itself_is_refused() -> None:
    assert refused(holding(), node("A", "A")) == "'A' would wait for itself: A → A"


def test_a_circle_by_way_of_letters_that_are_held_is_refused_and_told_in_its_order() -> None:
    store = holding(node("B", "C"), node("C", "A"), node("D"))
    sentence = refused(store, node("A", "D", "B"))
    way = sentence.partition(": ")[2].split(" → ")
    assert way[0] == way[-1]
    assert set(pairwise(way)) == {("A", "B"), ("B", "C"), ("C", "A")}


def test_a_circle_within_what_is_brought_is_refused() -> None:
    for store in (holding(), holding(node("B"))):
        assert refused(store, node("A", "B"), node("B", "A")) in (
            "'A' would wait for itself: A → B → A",
            "'B' would wait for itself: B → A → B",
        )


def test_no_circle_is_no_matter_how_the_letters_hang_together() -> None:
    store = holding(node("B", "D"), node("C", "D"), node("D"), node("A", "x", source="mails"), node("x", "A", source="orders"))
    accepted(store, node("A", "B", "C", "not there", "B"))
    accepted(store)
    accepted(store, node("lonely"))
    # Of another source: the same name, another letter.
    accepted(holding(node("A", "B", source="mails")), node("B", "A"))


def test_a_long_chain_is_asked_for_link_by_link_and_many_letters_together() -> None:
    chain = [node(str(number), str(number + 1)) for number in range(50)]
    store = holding(*chain)
    accepted(store, *(node(f"start {number}", "0") for number in range(100)))
    assert store.calls.count("get") <= 52
    assert "would wait for itself" in refused(store, node("50", "0"))


def test_a_chain_of_thousands_that_is_brought_at_once_is_no_burden() -> None:
    many = [node(str(number), str(number + 1)) for number in range(5000)]
    accepted(holding(), *many)
    assert refused(holding(), *many, node("5000", "0")).count(" → ") == 5001


def waits(store: LetterStore, *letters: Letter) -> dict[str, list[str]]:
    found = asyncio.run(unmet(store, letters))
    names = {one.id: one.source_id for one in letters}
    return {names[id]: [other.source_id for other in others] for id, others in found.items()}


@pytest.mark.parametrize("status", [one for one in Status if one is not Status.RETRYING])
def test_only_success_ends_the_wait(status: Status) -> None:
    expected = {} if status is Status.COMPLETED else {"B": ["A"]}
    assert waits(holding(node("A", status=status)), node("B", "A")) == expected


def test_who_waits_for_whom_is_asked_once_for_all() -> None:
    store = holding(node("A"), node("B", status=Status.COMPLETED))
    assert waits(store, node("C", "A", "B"), node("D", "B"), node("E", "A", "gone"), node("F")) == {"C": ["A"], "E": ["A"]}
    assert store.calls == ["get"]
    assert waits(store, node("F")) == {}
    assert store.calls == ["get"]


def test_what_is_said_names_a_few_and_counts_the_rest() -> None:
    def names(count: int) -> Sequence[Letter]:
        return [node(str(number)) for number in range(count)]

    assert said(names(1)) == "'0' (pending)"
    assert said(names(3)) == "'0' (pending), '1' (pending), '2' (pending)"
    assert said(names(1000)) == "'0' (pending), '1' (pending), '2' (pending) and 997 more"


def test_those_that_wait_are_freed_once_and_remembered_no_longer_than_they_wait() -> None:
    waiting = Waiting()
    one, other = node("B", "A"), node("C", "A", "D")
    waiting.add([one, other])
    waiting.discard([one])
    (a, d) = ids_of(other)
    waiting.free([a])
    assert waiting.freed == {other.id}
    waiting.freed.clear()
    waiting.free([a])
    assert waiting.freed == set()
    waiting.add([other])
    waiting.free([d])
    waiting.discard([other])
    assert waiting.freed == set()
    assert waiting._by_obstacle == {}
