"""Redrive: send letters back, and settle each by what became of it.

The order is the law: claim, write the intent, send, write the outcome, settle. A crash at any point leaves a letter
that is sent again under the same `redrive-id`, never one that is lost or taken as delivered without an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import assert_never

from msgspec.structs import replace

from redrive.engine import metrics
from redrive.engine.finish import both, to_its_end
from redrive.engine.send import Sender, ending
from redrive.engine.settle import settle
from redrive.engine.telemetry import Telemetry
from redrive.model.errors import StoreError
from redrive.model.lease import Claimed
from redrive.model.operation import Delivered, Delivery, Entry, LedgerRow, Refused, Unknown
from redrive.model.settlement import Released, Settled, Settlement
from redrive.ports.desk import Desk
from redrive.ports.letters import LetterStore
from redrive.ports.transport import Transport

Ready = tuple[LedgerRow, Claimed]
"""A row of the ledger, and the claim on its letter."""


class Redriver:
    """Drives claimed letters back, some at a time, and keeps the ledger. Its caller keeps their leases alive."""

    def __init__(self, store: LetterStore, desk: Desk, sender: Sender, *, telemetry: Telemetry) -> None:
        self._store = store
        self._desk = desk
        self._sender = sender
        self._telemetry = telemetry

    async def drive(self, ready: Sequence[Ready], transport: Transport) -> tuple[list[LedgerRow], int]:
        """Send these letters; their rows as they are then, and how many were overtaken: their lease was lost, or they were
        reopened, before they could be settled, so that only the ledger knows of the sending."""
        deliveries: list[Delivery] | None = None
        claimed = [one for _, one in ready]
        started = datetime.now(UTC)
        try:
            prepared = await self._sender.prepared(claimed)
            await self._desk.record([_entered(row, Entry.INTENDED, "", started) for row, _ in ready])
            started = datetime.now(UTC)
            deliveries = await self._sender.sent(prepared, transport)
        finally:
            if deliveries is None:
                # Nothing is known of this batch beyond the ledger's intent: give the letters back, to be sent again.
                await to_its_end(self.let_go(claimed))
            else:
                # What is known of the sending is not lost to a cancellation.
                outcome = await to_its_end(self._settle(ready, deliveries, datetime.now(UTC) - started))
        return outcome

    async def _settle(
        self, ready: Sequence[Ready], deliveries: Sequence[Delivery], took: timedelta
    ) -> tuple[list[LedgerRow], int]:
        now = datetime.now(UTC)
        rows = [_entered(row, *_told(delivery), now) for (row, _), delivery in zip(ready, deliveries, strict=True)]
        settlements = [
            Settlement.ending(one, ending(one.letter, delivery, now, took, operation=row.operation))
            for (row, one), delivery in zip(ready, deliveries, strict=True)
        ]
        settled = await self._written(rows, settlements)
        for entry, number in Counter([row.entry for row in rows]).items():
            self._telemetry.add(metrics.MESSAGES_REDRIVEN, number, outcome=entry.value)
        return rows, sum(answer is not Settled.DONE for answer in settled)

    async def _written(self, rows: Sequence[LedgerRow], settlements: Sequence[Settlement]) -> list[Settled]:
        """The outcome, then the settlement: whoever sees the letter as it is then finds in the ledger why."""
        if self._store.capabilities.embedded:
            # It writes what it is given one after the other, and all that waits at once.
            _, settled = await both(self._desk.record(rows), settle(self._store, settlements))
            return settled
        await self._desk.record(rows)
        return await settle(self._store, settlements)

    async def skip(self, rows: Sequence[tuple[LedgerRow, Entry, str]]) -> list[LedgerRow]:
        """Write down why letters were not sent, or what became of them without us."""
        now = datetime.now(UTC)
        entered = [_entered(row, entry, detail, now) for row, entry, detail in rows]
        await self._desk.record(entered)
        return entered

    async def let_go(self, claimed: Sequence[Claimed]) -> None:
        """Give letters back untouched."""
        try:
            await self._store.settle([Settlement.ending(one, Released()) for one in claimed])
        except StoreError:
            # The store is gone too: the leases end by themselves.
            return


def _entered(row: LedgerRow, entry: Entry, detail: str, now: datetime) -> LedgerRow:
    return replace(row, entry=entry, detail=detail, at=now)


def _told(delivery: Delivery) -> tuple[Entry, str]:
    """What the ledger says of a delivery, and its detail."""
    match delivery:
        case Delivered(confirmed=confirmed, where=where):
            return Entry.CONFIRMED if confirmed else Entry.SENT, where
        case Refused(failure=failure):
            return Entry.FAILED, failure.message
        case Unknown(reason=reason):
            return Entry.UNKNOWN, reason
        case _:
            assert_never(delivery)
