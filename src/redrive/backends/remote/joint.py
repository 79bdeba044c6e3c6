"""Puts that meet share a call: while one is under way, the others gather and go together, so that they share a round trip and an fsync."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from redrive.model.errors import StoreUnavailable

What = TypeVar("What")
Answer = TypeVar("Answer")

InTheWay: TypeAlias = Collection[Hashable]
"""Ids of letters that keep those beside them from being written."""

_LARGE = 1024 * 1024
"""Bytes. Who brings so much takes long by that alone: nobody waits for it, or takes it for an outage when it takes too long."""
_MOST_BYTES = 8 * 1024 * 1024


class Load(Struct, Generic[What], frozen=True, eq=False):
    """What one caller wants to have written, whole or not at all."""

    what: What
    ids: Collection[Hashable]
    """Of its letters: loads that have one in common never go together."""
    size: int
    """In bytes."""
    now: datetime | None = None
    """Only loads of one instant go together."""


class _Passenger(Struct, Generic[What, Answer], frozen=True, eq=False):
    load: Load[What]
    answer: asyncio.Future[Answer | None]

    def hear(self, answer: Answer | None) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def refuse(self, error: StoreUnavailable) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Joint(Generic[What, Answer]):
    """Where the puts of one event loop to one place meet. Nobody is refused for another's letters; an outage is everybody's."""

    def __init__(
        self,
        together: Callable[[Sequence[What], datetime | None], Awaitable[tuple[Answer | None, InTheWay]]],
        *,
        most_letters: int = 1000,
    ) -> None:
        """`together` writes several loads by one call, all of them or nothing, and tells what is in the way then: those go once more without
        the loads that have it. `most_letters` go by one call, which takes the server's attention and must not become too large."""
        self._together = together
        self._most_letters = most_letters
        self._is_under_way = False
        self._waiting: list[_Passenger[What, Answer]] = []
        self._driver: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def turn(self, load: Load[What]) -> AsyncIterator[Answer | None]:
        """Wait for a turn. Yields what became of the call in which this load went with others; None: write it alone, within this block
        while others wait for it, unless it is large."""
        if load.size > _LARGE:
            yield None
        elif not self._is_under_way:
            self._is_under_way = True
            try:
                yield None
            except StoreUnavailable as error:
                self._give_up(error)
                raise
            finally:
                self._go_on()
        else:
            passenger = _Passenger(load, asyncio.get_running_loop().create_future())
            self._waiting.append(passenger)
            yield await passenger.answer

    def _give_up(self, error: StoreUnavailable) -> None:
        """Nobody waits for one outage after another: those who would go next hear of this one, and that nothing was sent for them."""
        waiting, self._waiting = self._waiting, []
        for passenger in waiting:
            unsent = StoreUnavailable(f"not sent, for what was sent before failed: {error}")
            unsent.__cause__ = error
            passenger.refuse(unsent)

    def _go_on(self) -> None:
        """Those who wait are next, if there are any."""
        if self._waiting:
            self._driver = asyncio.get_running_loop().create_task(self._driven())
        else:
            self._is_under_way = False

    async def _driven(self) -> None:
        try:
            while self._waiting:
                # Those who were just answered may have more: they get on before it leaves.
                await asyncio.sleep(0)
                if boarded := self._boarded():
                    await self._carried(boarded)
        finally:
            self._is_under_way = False
            self._driver = None  # a task keeps its event loop alive, and who keeps this by the loop would never let go of it
            for passenger in self._waiting:
                passenger.answer.cancel()

    def _boarded(self) -> list[_Passenger[What, Answer]]:
        """Who goes next: letters of one instant, each once, and not too many."""
        boarded: list[_Passenger[What, Answer]] = []
        left: list[_Passenger[What, Answer]] = []
        ids: set[Hashable] = set()
        size = 0
        for passenger in self._waiting:
            if passenger.answer.done():
                continue  # who has given up meanwhile
            load = passenger.load
            is_fitting = not boarded or (
                load.now == boarded[0].load.now
                and len(ids) + len(load.ids) <= self._most_letters
                and size + load.size <= _MOST_BYTES
            )
            if is_fitting and ids.isdisjoint(load.ids):
                boarded.append(passenger)
                ids.update(load.ids)
                size += load.size
            else:
                left.append(passenger)
        self._waiting = left
        return boarded

    async def _carried(self, aboard: Sequence[_Passenger[What, Answer]]) -> None:
        answer: Answer | None = None
        try:
            answer, in_the_way = await self._sent(aboard)
            if in_the_way:
                known = set(in_the_way)
                for passenger in aboard:
                    if not known.isdisjoint(passenger.load.ids):
                        passenger.hear(answer)
                if aboard := [passenger for passenger in aboard if known.isdisjoint(passenger.load.ids)]:
                    answer, _ = await self._sent(aboard)
        except StoreUnavailable as error:
            for passenger in aboard:
                passenger.refuse(_alike(error))
            self._give_up(error)
            return
        except Exception:
            # Nothing was done: alone, each is refused for its own letters or not at all.
            answer = None
        except BaseException:
            for passenger in aboard:
                passenger.answer.cancel()
            raise
        for passenger in aboard:
            passenger.hear(answer)

    async def _sent(self, aboard: Sequence[_Passenger[What, Answer]]) -> tuple[Answer | None, InTheWay]:
        return await self._together([passenger.load.what for passenger in aboard], aboard[0].load.now)


def _alike(error: StoreUnavailable) -> StoreUnavailable:
    """Everyone's own copy: a traceback grows with each raising."""
    copy = type(error)(*error.args)
    copy.__cause__ = error
    return copy
