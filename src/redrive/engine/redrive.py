"""Redrive: send letters back, and settle each by what became of it.

The order is the law: claim, write the intent, send, write the outcome, settle. A crash at any point leaves a letter
that is sent again under the same `redrive-id`, never one that is lost or taken as delivered without an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import assert_never
from uuid import UUID, uuid4

from msgspec import Struct
from msgspec.structs import replace

from redrive.engine import metrics
from redrive.engine.heartbeat import Heartbeat
from redrive.engine.send import Sender, ending
from redrive.engine.settle import settle
from redrive.engine.telemetry import Telemetry
from redrive.model.errors import BadSettings, RedriveError, StoreError
from redrive.model.lease import Claim, Claimed
from redrive.model.operation import Delivered, Delivery, Entry, LedgerRow, Operation, OperationStatus, Refused, Unknown
from redrive.model.settlement import Released, Settled, Settlement
from redrive.ports.desk import Desk
from redrive.ports.letters import LetterStore
from redrive.ports.transport import Transport


class Report(Struct, frozen=True, kw_only=True):
    """What became of an operation's letters."""

    operation: UUID
    entries: dict[Entry, int]
    skipped: int = 0
    """Not open any more, held by somebody else, or gone."""
    overtaken: int = 0
    """Their lease was lost, or they were reopened, before they could be settled: only the ledger knows of the sending."""
    stopped: str = ""
    """Why the operation ended before its time; empty when it did not."""


class Redriver:
    """Drives letters back through one transport, batch by batch."""

    def __init__(
        self,
        store: LetterStore,
        desk: Desk,
        sender: Sender,
        transport: Transport,
        *,
        owner: str,
        lease: timedelta,
        telemetry: Telemetry,
    ) -> None:
        self._store = store
        self._desk = desk
        self._sender = sender
        self._transport = transport
        self._owner = owner
        self._lease = lease
        self._telemetry = telemetry

    async def run(self, ids: Sequence[UUID], *, batch: int = 100) -> Report:
        """Send these letters, each at least once, and say what became of them."""
        if batch < 1:
            raise BadSettings(f"a batch must have at least 1 letter, got {batch}")
        operation = Operation(
            id=uuid4(), target=self._transport.name, started_at=datetime.now(UTC), total=len(ids), by=self._owner
        )
        await self._desk.save([operation])
        entries: Counter[Entry] = Counter()
        skipped = overtaken = 0
        stopped = "interrupted"
        try:
            for start in range(0, len(ids), batch):
                some = tuple(ids[start : start + batch])
                claimed = await self._store.claim(Claim(owner=self._owner, lease=self._lease, what=some, limit=batch))
                skipped += len(some) - len(claimed)
                if claimed:
                    driven, lost = await self._drive(operation.id, claimed)
                    entries.update(driven)
                    overtaken += lost
            stopped = ""
        except RedriveError as error:
            stopped = str(error)
        finally:
            status = OperationStatus.STOPPED if stopped else OperationStatus.FINISHED
            with contextlib.suppress(StoreError):
                await asyncio.shield(self._desk.save([replace(operation, status=status, finished_at=datetime.now(UTC))]))
        return Report(operation=operation.id, entries=dict(entries), skipped=skipped, overtaken=overtaken, stopped=stopped)

    async def _drive(self, operation: UUID, claimed: list[Claimed]) -> tuple[list[Entry], int]:
        deliveries: list[Delivery] | None = None
        started = datetime.now(UTC)
        try:
            async with Heartbeat(self._store, [one.lease for one in claimed], self._lease):
                prepared = [await self._sender.prepared(one.letter) for one in claimed]
                await self._record(operation, claimed, [(Entry.INTENDED, "")] * len(claimed))
                started = datetime.now(UTC)
                deliveries = await self._sender.sent(prepared, self._transport)
        finally:
            if deliveries is None:
                # Nothing is known of this batch beyond the ledger's intent: give the letters back, to be sent again.
                await asyncio.shield(self._let_go(claimed))
            else:
                # What is known of the sending is not lost to a cancellation.
                outcome = await asyncio.shield(self._settle(operation, claimed, deliveries, datetime.now(UTC) - started))
        return outcome

    async def _settle(
        self, operation: UUID, claimed: list[Claimed], deliveries: list[Delivery], took: timedelta
    ) -> tuple[list[Entry], int]:
        now = datetime.now(UTC)
        written = [_entry(delivery) for delivery in deliveries]
        await self._record(operation, claimed, written)
        settlements = [
            Settlement.of(one.lease, ending(one.letter, delivery, now, took, operation=operation))
            for one, delivery in zip(claimed, deliveries, strict=True)
        ]
        settled = await settle(self._store, settlements)
        entries = [entry for entry, _ in written]
        for entry in entries:
            self._telemetry.add(metrics.MESSAGES_REDRIVEN, 1, outcome=entry.value)
        return entries, sum(answer is not Settled.DONE for answer in settled)

    async def _record(self, operation: UUID, claimed: list[Claimed], entries: list[tuple[Entry, str]]) -> None:
        now = datetime.now(UTC)
        await self._desk.record(
            [
                LedgerRow(
                    operation=operation,
                    letter=one.letter.id,
                    generation=one.letter.generation,
                    entry=entry,
                    at=now,
                    detail=detail,
                )
                for one, (entry, detail) in zip(claimed, entries, strict=True)
            ]
        )

    async def _let_go(self, claimed: list[Claimed]) -> None:
        try:
            await self._store.settle([Settlement.of(one.lease, Released()) for one in claimed])
        except StoreError:
            # The store is gone too: the leases end by themselves.
            return


def _entry(delivery: Delivery) -> tuple[Entry, str]:
    """What the ledger says of a delivery, and its detail."""
    match delivery:
        case Delivered(confirmed=confirmed):
            return Entry.CONFIRMED if confirmed else Entry.SENT, ""
        case Refused(failure=failure):
            return Entry.FAILED, failure.message
        case Unknown(reason=reason):
            return Entry.UNKNOWN, reason
        case _:
            assert_never(delivery)
