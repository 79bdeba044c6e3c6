"""Walk: over many letters, some at a time, so that memory stays flat and whoever captures meanwhile hardly notices."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import datetime
from itertools import accumulate

from redrive.model.letter import Letter
from redrive.model.query import And, Field, Is, Op, Order, Query
from redrive.ports.inline import pause
from redrive.ports.letters import LetterStore

MOST = 1000
"""Letters that a store is asked to look at or to change in one call."""
_FIRST = 32
_LEAST = 16
"""So few letters take no store long; when even they do, it is others who take the time."""
_AIM_SECONDS = 0.006
"""No call to the store should take longer: so long a capture may have to wait for its turn."""
_MUCH_TOO_LONG_SECONDS = 0.12
_LONG_IN_A_ROW = 3
"""One long call may have waited for others who write; so many in a row are long by themselves."""
_LONGEST_REST_SECONDS = 1.0
_STEP_BYTES = 1024 * 1024
"""What a store is given to change at a time, unless a letter alone is larger."""
_LOAD_BYTES = 8 * 1024 * 1024
"""What is held in memory at a time, however large the bodies are."""


class Stride:
    """How much to ask of a store at a time: so much that a call is short, learnt from how long the last ones took."""

    def __init__(self, most: int = MOST, *, rests: float = 1.0) -> None:
        """`rests`: how much longer than a call the others have the store."""
        self._most = most
        self._rests = rests
        self.size = min(_FIRST, most)
        self._long = 0

    def learn(self, seconds: float, number: int) -> None:
        """A call for so many took so long."""
        self._long = self._long + 1 if seconds > _AIM_SECONDS else 0
        if self._long >= _LONG_IN_A_ROW or seconds > _MUCH_TOO_LONG_SECONDS:
            self.size = max(min(_LEAST, self._most), min(self.size, number) // 2)
        elif number >= self.size and seconds < _AIM_SECONDS * 0.7:
            self.size = min(self._most, self.size + self.size // 4 + 1)

    async def through(self, letters: Sequence[Letter], step: Callable[[Sequence[Letter]], Awaitable[object]]) -> None:
        """Take a step with as many of these letters as a store is given at once, rest, and so on with the others."""
        while letters:
            total = accumulate(map(_weight, letters[: self.size]))
            number = max(1, sum(size <= _STEP_BYTES for size in total))
            started = time.perf_counter()
            await step(letters[:number])
            await self.rest(time.perf_counter() - started, number)
            letters = letters[number:]

    async def rest(self, seconds: float, number: int) -> None:
        """Learn from a call, and let others have the store for a while."""
        self.learn(seconds, number)
        await pause(min(self._rests * seconds, _LONGEST_REST_SECONDS))


async def walk(
    store: LetterStore, query: Query, *, most: int = MOST, is_polite: bool = True
) -> AsyncGenerator[Sequence[Letter], None]:
    """The letters that match, oldest first, some at a time; none is looked at twice. Without politeness: without rests."""
    stride = Stride(most)
    after: str | None = None
    room = stride.size
    while True:
        started = time.perf_counter()
        limit = min(stride.size, room)
        page = await store.find(query, order=Order.OLDEST, limit=limit, after=after)
        took = time.perf_counter() - started
        if page.letters:
            yield page.letters
            room = max(1, _LOAD_BYTES // max(map(_weight, page.letters)))
        if (after := page.next) is None:
            return
        await stride.rest(took if is_polite else 0.0, limit)


def _weight(letter: Letter) -> int:
    """About how many bytes a letter takes in memory."""
    return 1000 + len(letter.body) + len(letter.failure.traceback) + (len(letter.original.body) if letter.original else 0)


async def newest(store: LetterStore, query: Query) -> datetime | None:
    """When the newest letter that matches was dead-lettered; None: there is none."""
    page = await store.find(query, order=Order.NEWEST, limit=1)
    return page.letters[0].dead_lettered_at if page.letters else None


def up_to(query: Query, until: datetime | None) -> Query:
    """The question, of letters that were dead-lettered until then."""
    return query if until is None else And((query, Is(Field.DEAD_LETTERED_AT, until, Op.LE)))
