"""Bulk: one act on all letters that match, some at a time, so that whoever captures meanwhile hardly notices.

Nothing is remembered between calls: what was done no longer matches. So an act that was cut short at any instant is simply
given again, and goes on with the rest. Letters that died after it was planned are left alone, and so are those that have
changed since or that somebody holds: nothing is done to a letter that was not counted.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TypeVar
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from redrive.engine.finish import to_its_end
from redrive.engine.hold import body_refs
from redrive.engine.walk import MOST, Stride, newest, up_to, walk
from redrive.model.amendment import Amended, Amendment
from redrive.model.errors import AnswerLost, BadSettings, StoreError
from redrive.model.letter import Letter
from redrive.model.operation import AuditRow
from redrive.model.query import And, Field, Is, Op, Or, Order, Query, looks_behind, matches
from redrive.model.spelling import spelled
from redrive.model.status import TRANSITIONS, Act, Status
from redrive.ports.desk import Desk
from redrive.ports.letters import LetterStore

log = logging.getLogger("redrive.bulk")

_WRONG_CLOCK = timedelta(minutes=1)
"""Clocks of hosts differ by less; what is dated later than that was dated by one that is wrong."""

T = TypeVar("T")


class BulkAct(StrEnum):
    """What can be done to all letters that match."""

    PURGE = "purge"
    """Remove them for good."""
    ARCHIVE = "archive"
    RESTORE = "restore"
    DISCARD = "discard"

    @property
    def fits(self) -> frozenset[Status]:
        """Where a letter may stand for it. One that is `retrying` may stand anywhere when it comes free."""
        if self is BulkAct.PURGE:
            return frozenset(Status)
        stored, _ = TRANSITIONS[Act(self.value)]
        return stored | ({Status.RETRYING} if self is not BulkAct.RESTORE else frozenset())

    @property
    def done(self) -> str:
        """What has happened to a letter then."""
        return _DONE[self]


_DONE = {
    BulkAct.PURGE: "removed",
    BulkAct.ARCHIVE: "archived",
    BulkAct.RESTORE: "restored",
    BulkAct.DISCARD: "discarded",
}


class Plan(Struct, frozen=True, kw_only=True):
    """What a bulk act is about to do. Making one changes nothing."""

    act: BulkAct
    query: Query
    statuses: dict[str, int]
    """How many letters match, by where they stand; those that are `retrying` will be left alone."""
    until: datetime | None = None
    """When the newest of them was dead-lettered: what died later is not touched."""
    changed_until: datetime | None = None
    """When the last of them changed: what has changed later is not touched, though it may match by now."""
    ahead: tuple[UUID, ...] = ()
    """Those that are dated later than it is, by a clock that was wrong; no bound of time would keep others out."""
    reason: str = ""

    @property
    def matched(self) -> int:
        return sum(self.statuses.values())

    @property
    def held(self) -> int:
        return self.statuses.get(Status.RETRYING, 0)

    @property
    def bounded(self) -> Query:
        """The letters that were counted, but for those that are ahead of their time."""
        query = up_to(self.query, self.until)
        return query if self.changed_until is None else And((query, Is(Field.UPDATED_AT, self.changed_until, Op.LE)))


class Swept(Struct, frozen=True, kw_only=True):
    """What became of the letters that matched. While it is under way: how far it has come."""

    matched: int = 0
    """How many matched when it was planned."""
    done: int = 0
    held: int = 0
    """Somebody holds them: they were left alone."""
    changed: int = 0
    """They were reopened, changed or removed by somebody else meanwhile: they were left alone."""

    @property
    def skipped(self) -> int:
        return self.held + self.changed


Progress = Callable[[Swept], None]


class Bulk:
    """Does what is done to many letters at once, and writes it to the audit."""

    def __init__(self, store: LetterStore, desk: Desk, drop_bodies: Callable[[Sequence[Letter]], Awaitable[None]]) -> None:
        """`drop_bodies` removes the body files of letters that are gone."""
        self._store = store
        self._desk = desk
        self._drop_bodies = drop_bodies

    async def plan(self, act: BulkAct, query: Query, *, older_than: timedelta | None = None, reason: str = "") -> Plan:
        """Look what the act would do. `older_than` leaves younger letters out."""
        act = BulkAct(act)
        if act is BulkAct.DISCARD and not reason:
            raise BadSettings("letters are discarded for a reason; give it")
        if older_than is not None:
            query = And((query, Is(Field.DEAD_LETTERED_AT, datetime.now(UTC) - older_than, Op.LT)))
        # Before they are counted: who dies in between is counted, but not touched; never the other way round.
        late = datetime.now(UTC) + _WRONG_CLOCK
        until, changed = await newest(self._store, query), await self._changed(query)
        ahead = await self._ahead(query, late) if until is not None and max(until, changed) > late else ()
        found = await self._store.tally(Field.STATUS, query) if until is not None else {}
        fitting = {status: found[status] for status in act.fits if found.get(status)}
        if len(fitting) < len(found):
            query = And((query, Or(tuple(Is(Field.STATUS, status.value) for status in sorted(act.fits)))))
        statuses = {status.value: fitting[status] for status in Status if status in fitting}
        plan = Plan(act=act, query=query, statuses=statuses, reason=reason)
        if not statuses or until is None:
            return plan
        return replace(plan, until=min(until, late), changed_until=min(changed, late), ahead=ahead)

    async def _changed(self, query: Query) -> datetime:
        """When the last of the letters changed."""
        page = await self._store.find(query, order=Order.UPDATED, limit=1)
        return page.letters[0].updated_at if page.letters else datetime.min.replace(tzinfo=UTC)

    async def _ahead(self, query: Query, late: datetime) -> tuple[UUID, ...]:
        is_ahead = Or((Is(Field.DEAD_LETTERED_AT, late, Op.GT), Is(Field.UPDATED_AT, late, Op.GT)))
        async with aclosing(walk(self._store, And((query, is_ahead)))) as pages:
            return tuple([letter.id async for page in pages for letter in page])

    async def carry_out(self, plan: Plan, *, by: str, most: int = MOST, progress: Progress | None = None) -> Swept:
        """Do what was planned, at most so many letters at a time; say what became of them.

        Raises what the store raises; what was done until then stays done. A cancellation waits for the call that is under way.
        """
        if most < 1:
            raise BadSettings(f"a batch must have at least 1 letter, got {most}")
        if plan.until is None:
            return Swept()
        await self._note(plan, by, f"began: {plan.matched:,} matched")
        sweep = _Sweep(self._store, plan, self._drop_bodies, progress)
        ended = "cut short"
        try:
            await sweep.run(most)
            ended = "done"
        finally:
            became = f"{ended}: {told(plan.act, sweep.swept)}"
            try:
                await to_its_end(self._note(plan, by, became))
            except StoreError:
                log.exception("this could not be written to the audit: %s, %s", plan.act, became)
        return sweep.swept

    async def _note(self, plan: Plan, by: str, detail: str) -> None:
        reason = f" ({plan.reason})" if plan.reason else ""
        await self._desk.note(
            [AuditRow(at=datetime.now(UTC), by=by, act=plan.act.value, subject=spelled(plan.query), detail=detail + reason)]
        )


class _Sweep:
    """One act under way."""

    def __init__(
        self,
        store: LetterStore,
        plan: Plan,
        drop_bodies: Callable[[Sequence[Letter]], Awaitable[None]],
        progress: Progress | None,
    ) -> None:
        self._store = store
        self._plan = plan
        self._query = plan.query
        self._drop_bodies = drop_bodies
        self._progress = progress
        self._step = self._purge if plan.act is BulkAct.PURGE else self._amend
        self.swept = Swept(matched=plan.matched)

    async def run(self, most: int) -> None:
        """From the oldest letter to the newest, in steps that are each done whole; never more letters than were counted."""
        # What a store has confirmed, it may still have to bring to its place.
        stride = Stride(most, rests=2.0)
        async with aclosing(self._pages(most)) as pages:
            async for found in pages:
                page = found[: self._left]
                free = [letter for letter in page if letter.status is not Status.RETRYING]
                if len(free) < len(page):
                    self._count(held=len(page) - len(free))
                await stride.through(free, lambda some: to_its_end(self._step(some)))
                if not self._left:
                    return
        # They have changed before they were come to, or are gone.
        self._count(changed=self._left)

    @property
    def _left(self) -> int:
        """Of the letters that were counted, those of which it is not known yet what became of them."""
        return self._plan.matched - self.swept.done - self.swept.skipped

    async def _pages(self, most: int) -> AsyncGenerator[Sequence[Letter], None]:
        """The letters that were counted, and still are as they were."""
        self._query = self._plan.bounded
        is_behind = looks_behind(self._query)
        async with aclosing(walk(self._store, self._query, most=most)) as pages:
            async for page in pages:
                # Words that a store has not indexed yet must not make a letter match that has them.
                yield [letter for letter in page if matches(self._query, letter)] if is_behind else page
        if self._plan.ahead:
            self._query = self._plan.query
            for start in range(0, len(self._plan.ahead), most):
                found = await self._store.get(self._plan.ahead[start : start + most])
                yield [letter for letter in found if letter is not None and matches(self._query, letter)]

    async def _purge(self, letters: Sequence[Letter]) -> None:
        ids = [letter.id for letter in letters]
        try:
            gone = await self._store.purge(self._query, limit=len(ids), among=ids)
        except AnswerLost:
            there = await self._store.get(ids)
            gone = [letter for letter, known in zip(letters, there, strict=True) if known is None]
        with_files = [letter for letter in gone if body_refs(letter)]
        if with_files:
            await self._drop(with_files)
        self._count(done=len(gone), changed=len(letters) - len(gone))

    async def _drop(self, gone: Sequence[Letter]) -> None:
        """Remove the body files of letters that are gone, but for those of letters that came back meanwhile."""
        try:
            back = await self._store.get([letter.id for letter in gone])
            await self._drop_bodies([letter for letter, known in zip(gone, back, strict=True) if known is None])
        except StoreError:
            log.exception("body files of removed letters were left behind; redrive doctor finds them")

    async def _amend(self, letters: Sequence[Letter]) -> None:
        act, reason = Act(self._plan.act.value), self._plan.reason or None
        amendments = [Amendment(id=one.id, generation=one.generation, act=act, reason=reason) for one in letters]
        try:
            answers = await self._store.amend(amendments)
            done, held = answers.count(Amended.DONE), answers.count(Amended.LEASED)
        except AnswerLost:
            (target,) = TRANSITIONS[act][1]
            known = zip(letters, await self._store.get([letter.id for letter in letters]), strict=True)
            done = sum(now is not None and (now.status, now.generation) == (target, before.generation) for before, now in known)
            held = 0
        self._count(done=done, held=held, changed=len(letters) - done - held)

    def _count(self, *, done: int = 0, held: int = 0, changed: int = 0) -> None:
        so_far = self.swept
        self.swept = replace(so_far, done=so_far.done + done, held=so_far.held + held, changed=so_far.changed + changed)
        if self._progress is not None:
            self._progress(self.swept)


def told(act: BulkAct, swept: Swept) -> str:
    """`1,200 removed, 4 held by somebody`."""
    parts = [f"{swept.done:,} {act.done}"]
    parts += [f"{swept.held:,} held by somebody"] if swept.held else []
    parts += [f"{swept.changed:,} changed meanwhile"] if swept.changed else []
    return ", ".join(parts)
