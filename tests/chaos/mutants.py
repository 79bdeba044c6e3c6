"""Consumers and redrivers that break the law, each in one way: the harness must catch every one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from msgspec.structs import replace

from redrive.engine.capture import Labels, Try, captured
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.describe import describe
from redrive.model.lease import Claim, Claimed
from redrive.model.letter import Letter
from redrive.model.message import REDRIVE_ID, Message, outgoing
from redrive.model.operation import Delivery, Entry, LedgerRow, Operation
from redrive.model.policy import Policy
from redrive.model.settlement import Completed, Settlement
from redrive.ports.transport import Transport
from redrive.testing.kill.way import SOURCE, failing, redriven


async def acknowledges_before_holding(dlq: DeadLetters, source: Transport) -> None:
    guarded = dlq.guard(source=SOURCE, policy=Policy(max_attempts=1))(failing)
    while parcels := await source.receive(limit=3):
        for parcel in parcels:
            await source.settle([parcel.handle], done=True)
            await guarded(parcel.message)


async def acknowledges_the_batch_before_holding(dlq: DeadLetters, source: Transport) -> None:
    guard = dlq.guard(source=SOURCE, policy=Policy(max_attempts=1))
    while parcels := await source.receive(limit=3):
        await source.settle([parcel.handle for parcel in parcels], done=True)
        await guard.each([parcel.message for parcel in parcels], failing)


async def holds_under_another_name_in_the_next_life(dlq: DeadLetters, source: Transport) -> None:
    name = f"{SOURCE}-again" if await dlq.letters.count() else SOURCE
    guarded = dlq.guard(source=name, policy=Policy(max_attempts=1))(failing)
    while parcels := await source.receive(limit=3):
        for parcel in parcels:
            await guarded(parcel.message)
            await source.settle([parcel.handle], done=True)


async def settles_before_sending(dlq: DeadLetters, target: Transport, ids: Sequence[UUID]) -> None:
    operation, claimed = await _begun(dlq, target, ids)
    await _record(dlq, operation, claimed, Entry.INTENDED)
    await _settle(dlq, claimed)
    await _send(dlq, target, claimed)
    await _record(dlq, operation, claimed, Entry.CONFIRMED)


async def confirms_before_sending(dlq: DeadLetters, target: Transport, ids: Sequence[UUID]) -> None:
    operation, claimed = await _begun(dlq, target, ids)
    await _record(dlq, operation, claimed, Entry.INTENDED)
    await _record(dlq, operation, claimed, Entry.CONFIRMED)
    await _send(dlq, target, claimed)
    await _settle(dlq, claimed)


async def settles_before_recording(dlq: DeadLetters, target: Transport, ids: Sequence[UUID]) -> None:
    operation, claimed = await _begun(dlq, target, ids)
    await _record(dlq, operation, claimed, Entry.INTENDED)
    await _send(dlq, target, claimed)
    await _settle(dlq, claimed)
    await _record(dlq, operation, claimed, Entry.CONFIRMED)


async def sends_without_intent(dlq: DeadLetters, target: Transport, ids: Sequence[UUID]) -> None:
    operation, claimed = await _begun(dlq, target, ids)
    await _send(dlq, target, claimed)
    await _record(dlq, operation, claimed, Entry.CONFIRMED)
    await _settle(dlq, claimed)


async def leases_for_ever(dlq: DeadLetters, target: Transport, ids: Sequence[UUID]) -> None:
    dlq.operations._lease = timedelta(days=36500)
    await redriven(dlq, target, ids)


async def renames_what_it_sends(dlq: DeadLetters, target: Transport, ids: Sequence[UUID]) -> None:
    await redriven(dlq, _Changing(target, _renamed), ids)


async def spoils_what_it_sends(dlq: DeadLetters, target: Transport, ids: Sequence[UUID]) -> None:
    await redriven(dlq, _Changing(target, _spoilt), ids)


class _Changing:
    """A transport that sends something else than it was given."""

    def __init__(self, target: Transport, change: Callable[[Message], Message]) -> None:
        self.name = target.name
        self.receive, self.settle, self.peek = target.receive, target.settle, target.peek
        self._target = target
        self._change = change

    async def send(self, messages: Sequence[Message]) -> list[Delivery]:
        return await self._target.send([self._change(message) for message in messages])


def _renamed(message: Message) -> Message:
    kept = tuple(pair for pair in message.headers if pair[0] != REDRIVE_ID)
    return replace(message, headers=(*kept, (REDRIVE_ID, str(uuid4()).encode())))


def _spoilt(message: Message) -> Message:
    return replace(message, body=message.body + b"!")


class Forgetful:
    """A journal that confirms what it does not keep."""

    waiting = 0

    async def append(self, letters: Sequence[Letter]) -> None:
        return None

    async def drain(self, store: object, batch: int = 100) -> int:
        return 0

    def close(self) -> None:
        return None


async def holds_nowhere(dlq: DeadLetters, source: Transport) -> None:
    """Acknowledges what a forgetful journal confirmed."""
    forgetful = DeadLetters(dlq.letters, dlq.desk, journal=Forgetful())
    guarded = forgetful.guard(source=SOURCE, policy=Policy(max_attempts=1))(failing)
    while parcels := await source.receive(limit=3):
        for parcel in parcels:
            await guarded(parcel.message)
            await source.settle([parcel.handle], done=True)


async def counts_a_failure_twice(dlq: DeadLetters, source: Transport) -> None:
    """Holds the same failure again as another occurrence."""
    while parcels := await source.receive(limit=3):
        for parcel in parcels:
            now = datetime.now(UTC)
            tries = [Try(at=now, failure=describe(TimeoutError("no answer")))]
            await dlq.hold([captured(parcel.message, tries, Labels(source=SOURCE), now=now) for _ in range(2)])
            await source.settle([parcel.handle], done=True)


async def _begun(dlq: DeadLetters, target: Transport, ids: Sequence[UUID]) -> tuple[UUID, list[Claimed]]:
    operation = Operation(id=uuid4(), target=target.name, started_at=datetime.now(UTC), total=len(ids))
    await dlq.desk.save([operation])
    return operation.id, await dlq.letters.claim(Claim(owner="mutant", lease=dlq.limits.lease, what=tuple(ids)))


async def _record(dlq: DeadLetters, operation: UUID, claimed: Sequence[Claimed], entry: Entry) -> None:
    now = datetime.now(UTC)
    await dlq.desk.record(
        [
            LedgerRow(
                operation=operation, number=number, letter=one.letter.id, generation=one.letter.generation, entry=entry, at=now
            )
            for number, one in enumerate(claimed)
        ]
    )


async def _send(dlq: DeadLetters, target: Transport, claimed: Sequence[Claimed]) -> None:
    await target.send([outgoing(one.letter, await dlq.body(one.letter)) for one in claimed])


async def _settle(dlq: DeadLetters, claimed: Sequence[Claimed]) -> None:
    await dlq.letters.settle([Settlement.of(one.lease, Completed()) for one in claimed])
