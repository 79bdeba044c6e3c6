"""Depend: a letter waits until those it depends on have succeeded. Names are ids of messages of the same source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from uuid import UUID

from redrive.model.errors import CircularDependency
from redrive.model.letter import Letter, letter_id
from redrive.model.status import Status
from redrive.ports.letters import LetterStore

_NAMED = 3
"""So many of the letters that one waits for are told by name."""


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


class Waiting:
    """Who waits for whom, as far as one processor has seen: when a letter works there, others need not wait for their time."""

    def __init__(self) -> None:
        self._by_obstacle: dict[UUID, set[UUID]] = {}
        self.freed: set[UUID] = set()
        """Those that need not wait any more."""

    def add(self, letters: Iterable[Letter]) -> None:
        for letter in letters:
            for id in ids_of(letter):
                self._by_obstacle.setdefault(id, set()).add(letter.id)

    def discard(self, letters: Iterable[Letter]) -> None:
        """These wait for nobody any more, and were not put off."""
        for letter in letters:
            self.freed.discard(letter.id)
            for id in ids_of(letter):
                waiting = self._by_obstacle.get(id, set())
                waiting.discard(letter.id)
                if not waiting:
                    self._by_obstacle.pop(id, None)

    def free(self, ids: Iterable[UUID]) -> None:
        """These have worked."""
        for id in ids:
            self.freed |= self._by_obstacle.pop(id, set())


async def ensure_no_circle(store: LetterStore, letters: Sequence[Letter]) -> None:
    """Raise `CircularDependency` when one of these letters would wait for itself, also by way of others that are held."""
    known = {letter.id: letter for letter in letters}
    newest: Iterable[Letter] = letters
    while missing := list(dict.fromkeys(id for letter in newest for id in ids_of(letter) if id not in known)):
        newest = [one for one in await store.get(missing) if one is not None]
        known |= {one.id: one for one in newest}
    graph = {id: [other for other in ids_of(letter) if other in known] for id, letter in known.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        # It names them the other way round: each comes before the next.
        names = [known[id].source_id for id in reversed(error.args[1])]
        raise CircularDependency(f"'{names[0]}' would wait for itself: {' → '.join(names)}") from None


def said(others: Sequence[Letter]) -> str:
    """What a letter waits for, for people."""
    named = ", ".join(f"'{one.source_id}' ({one.status})" for one in others[:_NAMED])
    return f"{named} and {len(others) - _NAMED} more" if len(others) > _NAMED else named
