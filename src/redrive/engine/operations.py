"""Operations: plan, run, pause, resume, cancel, and look at what became of each letter."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from msgspec.structs import replace

from redrive.engine.address import Addresses, Resolve, To, own_target
from redrive.engine.choose import Progress as Choosing
from redrive.engine.choose import RedrivePlan, by_ids, by_query, chosen, not_quarantined
from redrive.engine.finish import to_its_end
from redrive.engine.observe import observed
from redrive.engine.operate import Report, Runner, Running
from redrive.engine.owner import owner_name
from redrive.engine.redrive import Redriver
from redrive.engine.send import Sender
from redrive.engine.telemetry import Telemetry
from redrive.engine.walk import newest
from redrive.model.errors import BadSettings, IllegalTransition, StoreError, UnknownOperation
from redrive.model.lane import Lane
from redrive.model.letter import Letter
from redrive.model.operation import OVER, AuditRow, Entry, LedgerRow, Operation, OperationStatus, ensure_step
from redrive.model.query import Query
from redrive.model.spelling import spelled
from redrive.model.tempo import Tempo
from redrive.ports.desk import Desk
from redrive.ports.letters import LetterStore

_EVERY_LETTER = 2**62
LOOKED_AT = 10_000
"""Operations that are looked through, latest first."""


_NEW = frozenset({OperationStatus.PLANNED, OperationStatus.SCHEDULED})


class Operations:
    """Of one store and its desk, for the letters of one namespace. Made by `redrive.open(url)`: `dlq.operations`."""

    def __init__(
        self,
        store: LetterStore,
        desk: Desk,
        sender: Sender,
        *,
        within: Callable[[Query], Query],
        lease: timedelta,
        telemetry: Telemetry,
        resolve: Resolve,
        homes: Mapping[str, str],
        namespace: str = "default",
    ) -> None:
        """`resolve` makes the transport that a URL names; `homes` are the targets of sources, for letters that go back there."""
        self._namespace = namespace
        self._store = store
        self._desk = desk
        self._redriver = Redriver(store, desk, sender, telemetry=telemetry)
        self._within = within
        self._lease = lease
        self._resolve = resolve
        self._homes = homes

    async def plan(
        self,
        to: To | Mapping[str, To],
        *,
        ids: Sequence[UUID] | None = None,
        query: Query | None = None,
        tempo: Tempo | None = None,
        by: str | None = None,
        most: int | None = None,
        is_dry: bool = False,
        progress: Choosing | None = None,
    ) -> RedrivePlan:
        """Choose letters, those with these ids or the open ones that match, and say what sending them would mean.

        What is chosen is written down and stays chosen, whatever comes or changes meanwhile; `is_dry` writes nothing. `most`:
        no more than so many, those that died first.
        """
        if (ids is None) == (query is None):
            raise BadSettings("say which letters to redrive with one of ids or query")
        addresses = self._addresses(to)
        operation = Operation(
            id=uuid4(),
            target=addresses.text,
            started_at=datetime.now(UTC),
            query="" if query is None else spelled(query),
            tempo=tempo or Tempo(),
            by=by or owner_name(),
        )
        begun = replace(operation, why="letters are being chosen")
        if not is_dry:
            await self._desk.save([begun])
        is_whole = False
        try:
            letters = await self._chosen(ids, not_quarantined(query) if query and operation.is_by_rule else query)
            plan = await chosen(self._desk, operation, letters, addresses, is_kept=not is_dry, most=most, progress=progress)
            is_whole = is_dry or await self._desk.change(begun, plan.operation)
        finally:
            if not is_whole and not is_dry:
                # Nobody was shown what is only half chosen. When the desk is gone too, it stays, and nobody runs it.
                with suppress(StoreError):
                    await to_its_end(self._desk.drop(operation.id))
        if not is_whole:
            raise IllegalTransition(
                f"operation {str(operation.id)[:8]} was ended by somebody while its letters were being chosen"
            )
        return plan

    async def _chosen(self, ids: Sequence[UUID] | None, query: Query | None) -> AsyncGenerator[Sequence[Letter | UUID], None]:
        if query is None:
            return by_ids(self._store, ids or ())
        wanted = self._within(query)
        return by_query(self._store, wanted, await newest(self._store, wanted))

    async def run(
        self,
        id: UUID,
        *,
        to: To | Mapping[str, To] | None = None,
        by: str | None = None,
        progress: Running | None = None,
    ) -> Report:
        """Begin an operation that was planned, or go on with one that was paused or whose runner died; until its end.

        `to` is needed where its target has no name that can be found again, as a function within another has none.
        """
        operation = await self.get(id)
        if operation.status is not OperationStatus.RUNNING:
            ensure_step(operation, OperationStatus.RUNNING)
        who = by or owner_name()
        runner = Runner(
            operation,
            self._store,
            self._desk,
            self._redriver,
            self._addresses(operation.target if to is None else to),
            owner=f"operation {id}, {who}",
            lease=self._lease,
            progress=progress,
        )
        await self._note(operation, "begin" if operation.status in _NEW else "resume", who)
        ended = await runner.run()
        await self._note(ended, ended.status.value, who)
        return runner.report

    async def schedule(
        self, id: UUID, at: datetime | None = None, *, when_closed: str | None = None, by: str | None = None
    ) -> Operation:
        """Let an operation that was planned begin by itself, where a dispatcher runs (`redrive up`): not before this instant,
        and not before the breaker of the source `when_closed` is seen closed by the process of that dispatcher."""
        if at is None and not when_closed:
            raise BadSettings("say when it is to begin, with at or when_closed")
        if at is not None and at.tzinfo is None:
            raise BadSettings("the time to begin must have a zone, e.g. datetime.now(UTC) + timedelta(hours=8)")
        lane = Lane(self._namespace, when_closed) if when_closed else None
        return await self._turn(id, OperationStatus.SCHEDULED, "", by, begins_at=at, when_closed=lane)

    async def due(self, now: datetime) -> list[Operation]:
        """The scheduled operations whose time has come, the first planned first; some may still wait for a breaker."""
        known = await self._desk.operations(limit=LOOKED_AT)
        waiting = [one for one in known if one.status is OperationStatus.SCHEDULED]
        return [one for one in reversed(waiting) if one.begins_at is None or one.begins_at <= now]

    def named(self, to: To | Mapping[str, To]) -> str:
        """What an operation calls this target; raises what is wrong with it, if that can be known before something is sent."""
        return self._addresses(to).text

    def ensure_target(self, target: str) -> None:
        """Raises `BadSettings` when letters cannot have this target for their own: it leads nowhere, or holds a login."""
        own_target(target, self._resolve, self._homes)

    async def pause(self, id: UUID, *, why: str = "", by: str | None = None) -> Operation:
        """Let an operation stop after the batch that is under way, to be gone on with."""
        return await self._turn(id, OperationStatus.PAUSED, why or "paused by hand", by)

    async def cancel(self, id: UUID, *, why: str = "", by: str | None = None) -> Operation:
        """End an operation; what was not sent stays where it is."""
        return await self._turn(id, OperationStatus.CANCELLED, why, by)

    async def forget(self, id: UUID) -> None:
        """Forget an operation that never began, with what was chosen for it."""
        operation = await self.get(id)
        if operation.status not in _NEW:
            raise IllegalTransition(f"operation {str(id)[:8]} is {operation.status}: what it did is kept")
        await self._desk.drop(id)

    async def get(self, id: UUID | str) -> Operation:
        """One operation by its id, or by the unambiguous beginning of it; `UnknownOperation` when there is none."""
        if isinstance(id, UUID):
            found = [operation] if (operation := await self._desk.operation(id)) is not None else []
        else:
            beginning = id.replace("-", "").lower()
            known = await self._desk.operations(limit=LOOKED_AT)
            found = [one for one in known if beginning and one.id.hex.startswith(beginning)]
        if not found:
            raise UnknownOperation(f"there is no operation {id}")
        if len(found) > 1:
            raise UnknownOperation(f"more than one operation begins with {id}; give more of the id")
        return found[0]

    async def list(self, *, limit: int = 100) -> list[Operation]:
        """The operations, latest first, each as it stood when that was last written."""
        return await self._desk.operations(limit=limit)

    async def observe(self, id: UUID) -> Operation:
        """Look what became of the letters that an operation has sent; the operation as it stands then."""
        await observed(self._store, self._desk, id, most=_EVERY_LETTER)
        while True:
            # Counted anew in any case: whoever ran it may have died before they could.
            before = await self.get(id)
            after = replace(before, entries=await self._desk.tally(id))
            if before == after or await self._desk.change(before, after):
                return after

    async def ledger(self, id: UUID, *, entries: Sequence[Entry] | None = None, page: int = 1000) -> AsyncIterator[LedgerRow]:
        """What became of each letter, in the order in which they were chosen."""
        last = -1
        while rows := await self._desk.ledger(id, entries=entries, limit=page, after=last):
            for row in rows:
                yield row
            last = rows[-1].number

    def _addresses(self, to: To | Mapping[str, To]) -> Addresses:
        return Addresses(to, self._resolve, self._homes)

    async def _turn(
        self,
        id: UUID,
        status: OperationStatus,
        why: str,
        by: str | None,
        *,
        begins_at: datetime | None = None,
        when_closed: Lane | None = None,
    ) -> Operation:
        while True:
            before = await self.get(id)
            ensure_step(before, status)
            ended = datetime.now(UTC) if status in OVER else None
            when = {"begins_at": begins_at or before.begins_at, "when_closed": when_closed or before.when_closed}
            after = replace(before, status=status, why=why, finished_at=ended, **when)
            if await self._desk.change(before, after):
                await self._note(after, status.value, by or owner_name())
                return after

    async def _note(self, operation: Operation, act: str, by: str) -> None:
        counts = ", ".join(f"{count:,} {entry}" for entry, count in operation.entries.items())
        detail = ": ".join(filter(None, (f"{operation.total:,} letters to {operation.target}", operation.why or counts)))
        row = AuditRow(at=datetime.now(UTC), by=by, act=f"redrive {act}", subject=str(operation.id), detail=detail)
        await self._desk.note([row])
