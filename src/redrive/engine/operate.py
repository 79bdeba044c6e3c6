"""Operate: run an operation from where it stands to its end, or until somebody or something stops it.

All that matters is in the ledger: what is `chosen` is to be sent, what is `intended` was about to be when somebody died. So an
operation that was cut short at any instant is simply run again. Two who run the same one do no harm: letters are claimed.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from redrive.engine.address import Addresses
from redrive.engine.aftermath import HELD, around, became, mended, still_to_be_sent, unsent
from redrive.engine.choose import out_of_quarantine, went_round
from redrive.engine.finish import to_its_end
from redrive.engine.heartbeat import Heartbeat
from redrive.engine.in_order import Addressed, Keys
from redrive.engine.observe import observed
from redrive.engine.redrive import Ready, Redriver
from redrive.engine.turns import Turns
from redrive.model.amendment import Amendment
from redrive.model.errors import RedriveError, StoreError
from redrive.model.lease import Claim, Claimed
from redrive.model.letter import Letter
from redrive.model.operation import DEPARTED, TO_BE_SENT, UNDECIDED, Entry, LedgerRow, Operation, OperationStatus, ensure_step
from redrive.model.status import Act
from redrive.ports.desk import Desk
from redrive.ports.inline import pause
from redrive.ports.letters import LetterStore
from redrive.ports.transport import Transport

_PARTS = 2
"""A batch is under way in so many parts where nothing says how fast to go: while one is sent, another is written down."""
_SMALL = 30
"""A batch that is not worth it."""
_LOOK_SECONDS = 0.5
"""How often it looks whether somebody has paused or cancelled it, and says how far it is."""
_HELD_SECONDS = 0.25
_GRACE = timedelta(seconds=5)

Running = Callable[[Operation], None]
"""Hears how an operation stands."""


class Report(Struct, frozen=True, kw_only=True):
    """What became of an operation's letters."""

    operation: UUID
    entries: dict[Entry, int]
    """How many were sent, and what became of them."""
    skipped: int = 0
    """Not open any more, held by somebody else, or gone."""
    overtaken: int = 0
    """Their lease was lost, or they were reopened, before they could be settled: only the ledger knows of the sending."""
    stopped: str = ""
    """Why the operation ended before its time; empty when it did not."""


class _Halt(Exception):
    """It is to stop here, and this is how it stands then."""

    def __init__(self, status: OperationStatus, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class Runner:
    """Runs one operation."""

    def __init__(
        self,
        operation: Operation,
        store: LetterStore,
        desk: Desk,
        redriver: Redriver,
        addresses: Addresses,
        *,
        owner: str,
        lease: timedelta,
        progress: Running | None = None,
    ) -> None:
        self.operation = operation
        self.overtaken = 0
        self._store = store
        self._desk = desk
        self._redriver = redriver
        self._addresses = addresses
        self._owner = owner
        self._lease = lease
        self._progress = progress
        self._tempo = operation.tempo
        self._entries: Counter[Entry] = Counter()
        self._keys = Keys(is_kept=self._tempo.keeps_order)
        self._turns = Turns(self._tempo)
        self._looked = time.monotonic()
        self._taking = asyncio.Lock()
        self._last = -1
        self._is_halted = False
        self._is_coming_back = False
        self._torn: list[range] = []
        """The numbers of letters some of which were overtaken while they were sent."""

    async def run(self) -> Operation:
        """Until nothing is left to be sent, or something stops it; how it stands then."""
        is_gone_on_with = self.operation.status not in (OperationStatus.PLANNED, OperationStatus.SCHEDULED)
        try:
            await self._become(OperationStatus.RUNNING)
        except _Halt:  # somebody else runs it too, and has just brought it to its end
            return self.operation
        self._entries = Counter(await self._desk.tally(self.operation.id))
        first = await self._desk.ledger(self.operation.id, entries=TO_BE_SENT, limit=1) if is_gone_on_with else []
        ended = _Halt(OperationStatus.PAUSED, "interrupted")
        try:
            await self._send_canary()
            await self._together()
            await self._come_back()
            if is_gone_on_with:
                await self._mend(around(first, self.operation.total, self._tempo.batch))
            for numbers in self._torn:
                await self._mended(numbers)
            await self._observe()
            ended = _Halt(OperationStatus.FINISHED, "")
        except _Halt as halt:
            ended = halt
        except RedriveError as error:
            ended = _Halt(OperationStatus.PAUSED, str(error))
        finally:
            with suppress(StoreError, _Halt):
                await to_its_end(self._end(ended.status, ended.why))
        return self.operation

    @property
    def report(self) -> Report:
        entries = {entry: count for entry, count in self.operation.entries.items() if entry in DEPARTED and count}
        is_over = self.operation.status is OperationStatus.FINISHED
        stopped = "" if is_over else self.operation.why or self.operation.status.value
        skipped = self.operation.entries.get(Entry.SKIPPED, 0)
        return Report(operation=self.operation.id, entries=entries, skipped=skipped, overtaken=self.overtaken, stopped=stopped)

    async def _send_canary(self) -> None:
        """Send a few letters, and see what becomes of them before the others follow. Who goes on after that has decided."""
        if self._sent >= self._tempo.canary:
            return
        while (missing := self._tempo.canary - self._sent) > 0 and (rows := await self._take(missing)):
            await self._batch(rows)
        if not self._sent:
            return
        until = time.monotonic() + self._tempo.window.total_seconds()
        while self._undecided and time.monotonic() < until:
            await self._look()
            await self._observe()
            if self._undecided:
                await pause(min(_LOOK_SECONDS, self._tempo.window.total_seconds() / 10))
        failed, share = self._entries[Entry.FAILED], self._tempo.stop_on_refail or 0.0
        if failed / self._sent > share:
            raise _Halt(OperationStatus.PAUSED, f"{failed} of the first {self._sent} failed again; the others were not sent")

    async def _together(self) -> None:
        """Take batch after batch, several at a time. When one ends it, those under way are brought to their end."""
        is_small = self._tempo.batch < _SMALL or self._tempo.rate is not None or self._tempo.keeps_order
        parts = 1 if is_small else _PARTS

        async def work() -> None:
            while rows := await self._take(max(1, self._turns.size // parts)):
                await self._batch(rows)

        workers = [asyncio.create_task(work()) for _ in range(parts)]
        try:
            _, others = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
            if others:
                self._is_halted = True
                await asyncio.wait(others)
        except asyncio.CancelledError:
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)
            raise
        errors = [error for worker in workers if (error := worker.exception()) is not None]
        if errors:
            raise errors[0]

    async def _take(self, number: int) -> list[LedgerRow]:
        """The rows that come next; none when all were taken, or when it is to end."""
        async with self._taking:
            if self._is_halted:
                return []
            rows = await self._desk.ledger(self.operation.id, entries=TO_BE_SENT, limit=number, after=self._last)
            if rows:
                self._last = rows[-1].number
                await self._turns.wait(len(rows), self._look)
            return rows

    async def _batch(self, rows: Sequence[LedgerRow]) -> None:
        """Claim, send and settle some letters; say why others were not sent."""
        await self._look()
        by_letter = {row.letter.int: row for row in rows}
        ids = [row.letter for row in by_letter.values()]
        free = await out_of_quarantine(self._store, ids) if self.operation.is_by_rule else tuple(ids)
        claimed = await self._store.claim(Claim(owner=self._owner, lease=self._lease, what=free, limit=len(by_letter)))
        ready: list[Addressed] = []
        refused: list[tuple[LedgerRow, Claimed, str]] = []
        for one in claimed:
            row = by_letter.pop(one.letter.id.int)
            target = self._addresses.of(one.letter)
            why = self._why_not(row, one.letter, target)
            if why or target is None:
                refused.append((row, one, why))
            else:
                ready.append((row, one, target))
        if refused:
            await self._refuse(refused)
        if by_letter:
            await self._left_out(list(by_letter.values()))
        waiting = {row.number: one for row, one, _ in ready}
        try:
            await self._send(ready, waiting)
        finally:
            if waiting:
                # One wave or target ended it before the others had their turn.
                await to_its_end(self._redriver.let_go(list(waiting.values())))
        if self._tempo.has_failed_too_often(self._entries[Entry.FAILED], self._sent):
            failed, share = self._entries[Entry.FAILED], self._tempo.stop_on_refail
            why = f"{failed:,} of {self._sent:,} failed again, more than {share:.0%}"
            raise _Halt(OperationStatus.PAUSED, why)

    async def _send(self, ready: Sequence[Addressed], waiting: dict[int, Claimed]) -> None:
        """Send letters wave by wave, each to its target; those whose turn has come are taken out of `waiting`."""
        async with Heartbeat(self._store, [one.lease for _, one, _ in ready], self._lease) as heartbeat:
            for place, wave in enumerate(self._keys.waves(ready)):
                if place:
                    await heartbeat.beat()
                    self._keys.hold_back([one.letter for _, one, _ in wave if not heartbeat.holds(one.lease)])
                for target, some in _by_target(await self._not_behind(wave, waiting)):
                    for row, _ in some:
                        del waiting[row.number]
                    driven, overtaken = await self._redriver.drive(some, target)
                    self._count([row for row, _ in some], driven)
                    self.overtaken += overtaken
                    if overtaken:
                        self._torn.append(range(some[0][0].number, some[-1][0].number + 1))
                    self._keys.note(some, driven)

    def _why_not(self, row: LedgerRow, letter: Letter, target: Transport | None) -> str:
        """Why a letter that is ours now must not go."""
        if letter.generation != row.generation:
            return "it failed again after it was chosen"
        if target is None:
            return self._addresses.why_not(letter)
        if letter.redrive.count >= self._tempo.max_rounds:
            return went_round(self._tempo.max_rounds)
        return self._keys.why_not(letter)

    async def _refuse(self, refused: Sequence[tuple[LedgerRow, Claimed, str]]) -> None:
        await self._redriver.let_go([one for _, one, _ in refused])
        fresh = await still_to_be_sent(self._desk, [row for row, _, _ in refused])
        told = await self._redriver.skip([(row, unsent(row), why) for old, _, why in refused if (row := fresh.get(old.number))])
        self._count([row for row, _, _ in refused], told)
        rounds = self._tempo.max_rounds
        tired = [
            Amendment(id=one.letter.id, generation=one.letter.generation, act=Act.QUARANTINE, reason=went_round(rounds))
            for _, one, _ in refused
            if one.letter.redrive.count >= rounds
        ]
        if tired:
            await self._store.amend(tired)

    async def _left_out(self, rows: Sequence[LedgerRow]) -> None:
        """Letters that could not be claimed: say why, but for those that are, or just were, held and are come back to."""
        told, letters = [], await self._store.get([row.letter for row in rows])
        fresh = await still_to_be_sent(self._desk, rows)
        for row, letter in [(fresh[old.number], one) for old, one in zip(rows, letters, strict=True) if old.number in fresh]:
            is_held = letter is not None and letter.status in HELD
            if not is_held or (row.entry is not Entry.INTENDED and self._is_coming_back):
                told.append((row, *became(row, letter)))
        self._count([row for row, _, _ in told], await self._redriver.skip(told) if told else [])

    async def _come_back(self) -> None:
        """See to letters that somebody held when their turn came: what is only chosen is not waited for, but what was about to be
        sent is, until the lease of whoever died over it must be over."""
        until = time.monotonic() + (self._lease + _GRACE).total_seconds()
        self._is_coming_back = True
        while await self._desk.ledger(self.operation.id, entries=TO_BE_SENT, limit=1):
            await pause(_HELD_SECONDS)
            last = -1
            while rows := await self._desk.ledger(self.operation.id, entries=TO_BE_SENT, limit=self._tempo.batch, after=last):
                last = rows[-1].number
                if time.monotonic() > until:
                    why = "whoever sent it died, and somebody has held the letter since"
                    self._count(rows, await self._redriver.skip([(row, Entry.UNKNOWN, why) for row in rows]))
                else:
                    await self._batch(rows)
            self._entries = Counter(await self._desk.tally(self.operation.id))

    async def _mend(self, numbers: range) -> None:
        """Settle what was sent by somebody who died before that."""
        until = time.monotonic() + (self._lease + _GRACE).total_seconds()
        while await self._mended(numbers) and time.monotonic() < until:
            await pause(_HELD_SECONDS)

    async def _mended(self, numbers: range) -> int:
        """How many of these cannot be settled yet."""
        return await mended(self._store, self._desk, self.operation.id, numbers, owner=self._owner, lease=self._lease)

    async def _not_behind(self, wave: Sequence[Addressed], waiting: dict[int, Claimed]) -> Sequence[Addressed]:
        """Those of a wave that are still ours, and whose key has not failed meanwhile."""
        behind = [(row, one, why) for row, one, _ in wave if (why := self._keys.why_not(one.letter))]
        if not behind:
            return wave
        await self._refuse(behind)
        for row, _, _ in behind:
            del waiting[row.number]
        held_back = {row.number for row, _, _ in behind}
        return [one for one in wave if one[0].number not in held_back]

    @property
    def _sent(self) -> int:
        return sum(self._entries[entry] for entry in DEPARTED)

    @property
    def _undecided(self) -> int:
        return sum(self._entries[entry] for entry in UNDECIDED)

    def _count(self, before: Sequence[LedgerRow], after: Sequence[LedgerRow]) -> None:
        self._entries.subtract([row.entry for row in before])
        self._entries.update([row.entry for row in after])
        if self._progress is not None:
            self._progress(replace(self.operation, entries=dict(+self._entries)))

    async def _observe(self) -> None:
        """Learn what became of letters that were sent."""
        if self._undecided:
            await observed(self._store, self._desk, self.operation.id)
            self._entries = Counter(await self._desk.tally(self.operation.id))

    async def _look(self) -> None:
        """Now and then: has somebody paused or cancelled it? And say how far it is."""
        now = time.monotonic()
        if now < self._looked + _LOOK_SECONDS:
            return
        self._looked = now
        await self._observe()
        await self._become(OperationStatus.RUNNING)

    async def _become(self, status: OperationStatus) -> None:
        """Write down that it runs, and how far it is; raises `_Halt` when somebody else has said otherwise."""
        while not await self._written(status, ""):
            known = self.operation
            await self._read_again()
            latest = self.operation
            if latest.status not in (known.status, status):
                if known.status is OperationStatus.RUNNING:
                    raise _Halt(latest.status, latest.why)
                ensure_step(latest, status)

    async def _end(self, status: OperationStatus, why: str) -> None:
        """Write down how it ended, counted anew, for others may run it too; who paused or cancelled it has the last word."""
        while True:
            self._entries = Counter(await self._desk.tally(self.operation.id))
            is_ours = self.operation.status is OperationStatus.RUNNING
            if await self._written(*((status, why) if is_ours else (self.operation.status, self.operation.why))):
                return
            await self._read_again()

    async def _written(self, status: OperationStatus, why: str) -> bool:
        known, now = self.operation, datetime.now(UTC)
        is_over = status in (OperationStatus.FINISHED, OperationStatus.CANCELLED)
        entries = dict(+self._entries) or known.entries
        after = replace(known, status=status, why=why, seen_at=now, finished_at=now if is_over else None, entries=entries)
        if not await self._desk.change(known, after):
            return False
        self.operation = after
        return True

    async def _read_again(self) -> None:
        latest = await self._desk.operation(self.operation.id)
        if latest is None:
            raise _Halt(OperationStatus.CANCELLED, "it was forgotten")
        self.operation = latest


def _by_target(ready: Sequence[Addressed]) -> list[tuple[Transport, list[Ready]]]:
    # Not by name: two may have the same and another login.
    by_target: dict[int, tuple[Transport, list[Ready]]] = {}
    for row, one, target in ready:
        by_target.setdefault(id(target), (target, []))[1].append((row, one))
    return list(by_target.values())
