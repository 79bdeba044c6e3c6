"""Looking at letters of one namespace: one by one, by questions, by groups, and how they stand. Changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from redrive.engine.redact import for_display
from redrive.engine.statistics import Statistics, statistics
from redrive.model.errors import UnknownLetter
from redrive.model.letter import Failure, Letter
from redrive.model.query import EVERYTHING, And, Field, Group, GroupOrder, Is, Op, Order, Query
from redrive.model.redaction import Redaction
from redrive.ports.letters import LetterStore


class Looking:
    """The verbs of `DeadLetters` that only look."""

    letters: LetterStore
    namespace: str
    _redaction: Redaction | None

    async def get(self, id: UUID | str) -> Letter:
        """One letter by its id, or by the unambiguous beginning of it; `UnknownLetter` when there is none."""
        if isinstance(id, UUID):
            (letter,) = await self.letters.get([id])
            if letter is None:
                raise UnknownLetter(f"there is no letter {id}")
            return letter
        page = await self.letters.find(self.within(_starting_with(id)), limit=2)
        if not page.letters:
            raise UnknownLetter(f"there is no letter {id}")
        if len(page.letters) > 1:
            raise UnknownLetter(f"more than one letter begins with {id}; give more of the id")
        return page.letters[0]

    def within(self, query: Query = EVERYTHING) -> Query:
        """The question, asked of this namespace alone. The port `letters` itself knows no such bounds."""
        return And((Is(Field.NAMESPACE, self.namespace), query))

    async def count(self, query: Query = EVERYTHING) -> int:
        """How many letters of this namespace match."""
        return await self.letters.count(self.within(query))

    async def find(self, query: Query = EVERYTHING, *, order: Order = Order.NEWEST, page: int = 100) -> AsyncIterator[Letter]:
        """All letters of this namespace that match, a page at a time."""
        after: str | None = None
        while True:
            found = await self.letters.find(self.within(query), order=order, limit=page, after=after)
            for letter in found.letters:
                yield letter
            if (after := found.next) is None:
                return

    async def statistics(self, *, now: datetime | None = None) -> Statistics:
        """How this namespace stands: counts by status, source, category and error, the last 24 hours, what is put off."""
        return await statistics(self.letters, self.namespace, now=now)

    async def groups(
        self, query: Query = EVERYTHING, *, order: GroupOrder = GroupOrder.LAST_SEEN, page: int = 100
    ) -> AsyncIterator[Group]:
        """The failures among the letters of this namespace that match, a page at a time."""
        after: str | None = None
        while True:
            found = await self.letters.groups(self.within(query), order=order, limit=page, after=after)
            for group in found.groups:
                yield group
            if (after := found.next) is None:
                return

    async def group(self, fingerprint: str) -> Group:
        """One group by its fingerprint, or by the unambiguous beginning of it; `UnknownLetter` when there is none."""
        page = await self.letters.groups(self.within(Is(Field.GROUP, fingerprint)), limit=1)
        if not page.groups:
            known = await self.letters.tally(Field.GROUP, self.within())
            near = [name for name in known if fingerprint and name.startswith(fingerprint)]
            if len(near) > 1:
                raise UnknownLetter(f"more than one group begins with {fingerprint}; give more of the fingerprint")
            if near:
                page = await self.letters.groups(self.within(Is(Field.GROUP, near[0])), limit=1)
        if not page.groups:
            raise UnknownLetter(f"there is no group {fingerprint}")
        return page.groups[0]

    def shown_group(self, group: Group) -> Group:
        """The group as people may see it, by today's rules."""
        failure = Failure(type=group.error, message=group.message, fingerprint=group.fingerprint)
        told = for_display(self._redaction).failure(failure)
        return replace(group, error=told.type, message=told.message)

    def shown(self, letter: Letter) -> Letter:
        """The letter as people may see it, by today's rules, whenever it was captured. Not to be stored or sent."""
        return for_display(self._redaction).shown(letter)


def _starting_with(beginning: str) -> Query:
    digits = beginning.replace("-", "").lower()
    if not digits or len(digits) > 32 or not all(digit in "0123456789abcdef" for digit in digits):
        raise UnknownLetter(f"'{beginning}' is not a letter's id: those are hexadecimal, e.g. 3f2a91c4")
    first, last = UUID(hex=digits.ljust(32, "0")), UUID(hex=digits.ljust(32, "f"))
    return And((Is(Field.ID, first, Op.GE), Is(Field.ID, last, Op.LE)))
