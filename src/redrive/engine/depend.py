"""Depend: a letter waits until those it depends on have succeeded. Names are ids of messages of the same source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from redrive.model.errors import CircularDependency
from redrive.model.letter import Letter, letter_id
from redrive.model.status import Status
from redrive.ports.letters import LetterStore


def ids_of(letter: Letter) -> list[UUID]:
    """The letters that this one depends on."""
    return [letter_id(letter.namespace, letter.source, name) for name in letter.depends_on]


async def unmet(store: LetterStore, letters: Iterable[Letter]) -> dict[UUID, list[Letter]]:
    """For each of the letters, those it depends on that have not succeeded; a letter without such is left out.

    What is not in the store has not failed, or was removed by a person: nobody waits for it.
    """
    dependent = [letter for letter in letters if letter.depends_on]
    if not dependent:
        return {}
    wanted = list(dict.fromkeys(id for letter in dependent for id in ids_of(letter)))
    open_ones = {one.id: one for one in await store.get(wanted) if one is not None and one.status is not Status.COMPLETED}
    found = {letter.id: [open_ones[id] for id in ids_of(letter) if id in open_ones] for letter in dependent}
    return {id: others for id, others in found.items() if others}


async def ensure_no_circle(store: LetterStore, letters: Sequence[Letter]) -> None:
    """Raise `CircularDependency` when one of these letters would wait for itself, also by way of others that are held."""
    known = {letter.id: letter for letter in letters}
    for letter in letters:
        if letter.depends_on and (circle := await _circle(store, letter, known)):
            raise CircularDependency(f"'{letter.source_id}' would wait for itself: {' → '.join(circle)}")


async def _circle(store: LetterStore, start: Letter, known: dict[UUID, Letter]) -> list[str] | None:
    """The names on the way from a letter back to itself."""
    seen: set[UUID] = set()
    ways = [(start, [start.source_id])]
    while ways:
        missing = [id for letter, _ in ways for id in ids_of(letter) if id not in known]
        known |= {one.id: one for one in await store.get(missing) if one is not None} if missing else {}
        further = []
        for letter, way in ways:
            for name, id in zip(letter.depends_on, ids_of(letter), strict=True):
                if id == start.id:
                    return [*way, name]
                if id in known and id not in seen:
                    seen.add(id)
                    further.append((known[id], [*way, name]))
        ways = further
    return None


def said(others: Sequence[Letter]) -> str:
    """What a letter waits for, for people."""
    return ", ".join(f"'{one.source_id}' ({one.status})" for one in others)
