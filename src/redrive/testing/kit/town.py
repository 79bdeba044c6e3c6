"""A town: tasks that live on one store while its engine is killed or frozen, and how often they were not answered."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from redrive.model.errors import AnswerLost, StoreUnavailable
from redrive.testing.kit.lines import BLINK_SECONDS, Engine, one_sentence, until
from redrive.testing.kit.samples import is_chaos

T = TypeVar("T")

ROUNDS = 30 if is_chaos() else 3
"""How often the engine is killed."""
_STEPS_A_ROUND = 60
_BOUND_SECONDS = 1800 if is_chaos() else 120


class Town(ABC):
    """A subclass says what its tasks do, and what must be in order when all is over."""

    def __init__(self) -> None:
        self.is_over = False
        self.steps = 0
        """How many calls were answered."""
        self.unheard = 0
        """How many calls ended without an answer."""

    @abstractmethod
    def lives(self) -> Iterable[Coroutine[Any, Any, None]]:
        """What each task does until it is over."""

    async def lives_through_kills(self, victim: Engine, engine: Engine) -> None:
        """The victim is killed, and the engine started again; every other time not before somebody has met it."""

        async def kill_and_start(number: int) -> None:
            await asyncio.to_thread(victim.kill)
            if number % 2:
                await self.goes_on(unheard=1)
            await asyncio.to_thread(engine.start)

        await self._lives_through(ROUNDS, kill_and_start)
        assert self.unheard, "the kills met nothing"

    async def lives_through_frosts(self, victim: Engine) -> None:
        async def freeze_and_thaw(number: int) -> None:
            await asyncio.to_thread(victim.pause)
            try:
                # Nobody hangs: all of them are told in time.
                await self.goes_on(unheard=2)
            finally:
                await asyncio.to_thread(victim.resume)

        await self._lives_through(2, freeze_and_thaw)

    async def goes_on(self, *, steps: int = 0, unheard: int = 0) -> None:
        """Wait until so many more calls were answered, and so many were not."""
        steps, unheard = self.steps + steps, self.unheard + unheard
        await until(lambda: self.steps >= steps and self.unheard >= unheard)

    async def heard(self, verb: Awaitable[T]) -> T | None:
        """What the store answers; None when it did not."""
        try:
            answer = await verb
        except StoreUnavailable as error:
            await self.missed(error)
            return None
        self.steps += 1
        return answer

    async def told(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """What the store answers; None when nobody knows whether it was done. What was not done is asked for again."""
        while not self.is_over:
            try:
                answer = await ask()
            except AnswerLost as error:
                await self.missed(error)
                return None
            except StoreUnavailable as error:
                # Nothing was changed, so that it can be done again as if for the first time.
                await self.missed(error)
            else:
                self.steps += 1
                return answer
        return None

    async def missed(self, error: StoreUnavailable) -> None:
        """A call ended without an answer: it was told so in one sentence, and whoever made it rests a moment."""
        one_sentence(error)
        self.unheard += 1
        await asyncio.sleep(BLINK_SECONDS)

    async def _lives_through(self, rounds: int, strike: Callable[[int], Awaitable[None]]) -> None:
        async with asyncio.timeout(_BOUND_SECONDS), asyncio.TaskGroup() as group:
            for life in self.lives():
                group.create_task(life)
            for number in range(rounds):
                await self.goes_on(steps=_STEPS_A_ROUND)
                await strike(number)
            await self.goes_on(steps=_STEPS_A_ROUND)
            self.is_over = True
