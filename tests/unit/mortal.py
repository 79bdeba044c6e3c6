"""Ports as a process sees them that may die at any verb, and a target whose answers a test decides."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from redrive import Failure, Message, StoreUnavailable, Unsupported
from redrive.engine.dead_letters import DeadLetters, Limits
from redrive.model.lease import Claim, Claimed, Lease
from redrive.model.operation import STEPS, Delivered, Delivery, Operation, OperationStatus, Refused, Unknown
from redrive.model.settlement import Settled, Settlement
from redrive.ports.inline import drive

LEASE = timedelta(seconds=60)
_ROUNDING = timedelta(milliseconds=1)
"""A store's own clock may be some microseconds ahead."""
Key = tuple[UUID, int]
"""A letter and its generation."""


class Life:
    """One process. After its death nothing that it does has any effect."""

    def __init__(self, number: int, dies_after: int | None = None) -> None:
        self.name = f"life {number}"
        self.is_dead = False
        self._left = dies_after

    async def step(self) -> None:
        """An instant at which others have their turn, and at which it may be dead."""
        await asyncio.sleep(0)
        if self._left is not None:
            self._left -= 1
            self.is_dead = self.is_dead or self._left <= 0
        if self.is_dead:
            raise StoreUnavailable(f"{self.name} is over")


class Mortal:
    """A port, used by one life."""

    def __init__(self, port: object, life: Life) -> None:
        self._port = port
        self._life = life

    def __getattr__(self, verb: str) -> Any:
        attribute = getattr(self._port, verb)
        if not inspect.iscoroutinefunction(attribute):
            return attribute

        async def call(*args: Any, **kwargs: Any) -> Any:
            await self._life.step()
            # In this thread, so that everything happens in the same order every time.
            answer = drive(attribute(*args, **kwargs))
            await self._life.step()
            return answer

        return call


def living(letters: object, desk: object, life: Life, lease: timedelta = LEASE) -> DeadLetters:
    """redrive, as one process has it."""
    return DeadLetters(Mortal(letters, life), Mortal(desk, life), limits=Limits(lease=lease))  # type: ignore[arg-type]


class Watched:
    """A store and its desk behind a watch: who holds what, and how operations go from one status to the next."""

    def __init__(self, letters: Any, desk: Any, now: Callable[[], datetime]) -> None:
        self.letters = _WatchedLetters(letters, now)
        self.desk = _WatchedDesk(desk)

    def holder(self, key: Key) -> str | None:
        """Who holds a letter in this generation, by a lease that is not over."""
        lease = self.letters.held.get(key[0])
        is_live = lease is not None and lease.generation == key[1] and lease.until > self.letters.now()
        return lease.owner if lease is not None and is_live else None


class _WatchedLetters:
    def __init__(self, letters: Any, now: Callable[[], datetime]) -> None:
        self._letters = letters
        self.now = now
        self.held: dict[UUID, Lease] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._letters, name)

    async def claim(self, claim: Claim, **more: Any) -> list[Claimed]:
        claimed: list[Claimed] = await self._letters.claim(claim, **more)
        for one in claimed:
            before = self.held.get(one.letter.id)
            if before is not None and before.generation == one.letter.generation:
                assert before.until <= self.now() + _ROUNDING, (
                    f"{before.owner} held it for {before.until - self.now()} when {claim.owner} got it"
                )
            self.held[one.letter.id] = one.lease
        return claimed

    async def extend(self, leases: Sequence[Lease], by: timedelta, **more: Any) -> list[Lease | None]:
        longer: list[Lease | None] = await self._letters.extend(leases, by, **more)
        self.held.update({lease.id: lease for lease in longer if lease is not None})
        return longer

    async def settle(self, settlements: Sequence[Settlement], **more: Any) -> list[Settled]:
        answers: list[Settled] = await self._letters.settle(settlements, **more)
        for settlement, answer in zip(settlements, answers, strict=True):
            if answer is Settled.DONE:
                del self.held[settlement.id]
        return answers


class _WatchedDesk:
    def __init__(self, desk: Any) -> None:
        self._desk = desk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._desk, name)

    async def save(self, operations: Sequence[Operation]) -> None:
        assert {one.status for one in operations} <= {OperationStatus.PLANNED}, "only a new operation is written without a look"
        await self._desk.save(operations)

    async def change(self, before: Operation, after: Operation) -> bool:
        is_done: bool = await self._desk.change(before, after)
        if is_done and before.status is not after.status:
            assert after.status in STEPS[before.status], f"from {before.status} to {after.status}"
        return is_done


class Endpoint:
    """What all operations send to. How it answers is said by a word; what it was really given, it knows."""

    WORDS = ("works", "works", "takes", "fails", "fails one", "raises", "raises late", "loses", "loses late")

    def __init__(self, watched: Watched) -> None:
        self.word = "works"
        self.seconds = 0.0
        """How long a call takes."""
        self.arrived: Counter[Key] = Counter()
        self.by_operation: defaultdict[UUID, set[Key]] = defaultdict(set)
        self.worked: set[Key] = set()
        self.messages: dict[Key, Message] = {}
        self.is_strict = True
        """Does whoever sends something hold it until the answer? A clock that is set may end a lease early."""
        self.watched = watched

    def is_reopened(self, message: Message) -> bool:
        """Has it failed again meanwhile?"""
        (letter,) = drive(self.watched.letters.get([message.redrive_id]))
        return bool(letter.generation > message.generation)

    async def send(self, operation: UUID, messages: Sequence[Message]) -> list[Delivery]:
        word = self.word
        keys = [(message.redrive_id, message.generation) for message in messages]
        await asyncio.sleep(self.seconds)
        if word == "raises":
            raise StoreUnavailable("broker is down")
        answers = [self._answer(word, number) for number in range(len(messages))]
        if word != "loses":
            for (id, generation), message, answer in zip(keys, messages, answers, strict=True):
                assert id is not None
                self._take((id, generation), operation, message, answer)
        if word == "raises late":
            raise StoreUnavailable("broker went away")
        return answers

    def _answer(self, word: str, number: int) -> Delivery:
        match word:
            case "takes":
                return Delivered()
            case "loses" | "loses late":
                return Unknown(reason="the answer was lost")
            case "fails" | "fails one" if word == "fails" or number == 0:
                return Refused(failure=Failure(type="x.Y", message="still down"))
            case _:
                return Delivered(confirmed=True)

    def _take(self, key: Key, operation: UUID, message: Message, answer: Delivery) -> None:
        self.arrived[key] += 1
        self.by_operation[operation].add(key)
        self.messages[key] = message
        if isinstance(answer, Delivered) and answer.confirmed:
            self.worked.add(key)


class Door:
    """The endpoint, as one operation of one life reaches it."""

    name = "door:"

    def __init__(self, endpoint: Endpoint, life: Life, operation: UUID) -> None:
        self._endpoint = endpoint
        self._life = life
        self._operation = operation

    async def send(self, messages: Sequence[Message]) -> list[Delivery]:
        await self._life.step()
        self._ensure_held(messages)
        answers = await self._endpoint.send(self._operation, messages)
        if self._endpoint.is_strict and not self._life.is_dead:
            self._ensure_held(messages)
        await self._life.step()
        return answers

    def _ensure_held(self, messages: Sequence[Message]) -> None:
        """Nothing is sent but by the operation that holds it."""
        for message in messages:
            assert message.redrive_id is not None
            holder = self._endpoint.watched.holder((message.redrive_id, message.generation))
            # A letter that fails again while it is sent is nobody's any more.
            is_ours = holder is not None and holder.startswith(f"operation {self._operation}")
            assert is_ours or self._endpoint.is_reopened(message), f"it is sent by {self._operation}, and held by {holder}"

    async def receive(self, *, limit: int = 10, lease: timedelta = LEASE) -> list[Any]:
        raise Unsupported("not here")

    async def settle(self, handles: Sequence[str], *, done: bool) -> list[bool]:
        raise Unsupported("not here")

    async def peek(self, *, limit: int = 10) -> list[Message]:
        raise Unsupported("not here")
