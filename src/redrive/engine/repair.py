"""Repair: the content of many letters is changed after a look at what that would mean, and put back as long as it is not sent.

What came is kept for ever as `letter.original`, whatever is changed afterwards and how often. Nothing is remembered between
calls but a mark on each letter: so a repair that was cut short at any instant is simply given again, and goes on with the
rest. Letters that died after it was planned are left alone, and so are those that somebody holds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Protocol, TypeVar
from uuid import UUID

from msgspec.structs import replace

from redrive.engine.alter import UNDO, Mending
from redrive.engine.finish import to_its_end
from redrive.engine.foresee import Repaired, Repairing, RepairPlan, Sample, Tally, sample_of, told
from redrive.engine.verdict import HELD, Check, Material, No, Same, Verdict, after_of, decided, why_not
from redrive.engine.walk import MOST, Stride, newest, up_to, walk
from redrive.model.amendment import Amended, Amendment
from redrive.model.errors import (
    AnswerLost,
    BadSettings,
    BodyTooLarge,
    StoreError,
)
from redrive.model.letter import Letter, Original, original_of
from redrive.model.operation import AuditRow
from redrive.model.query import EVERYTHING, Query, looks_behind, matches
from redrive.model.spelling import spelled
from redrive.model.status import Status
from redrive.ports.aside import aside
from redrive.ports.desk import Desk
from redrive.ports.inline import outside
from redrive.ports.letters import LetterStore

log = logging.getLogger("redrive.repair")

T = TypeVar("T")

_AT_A_TIME = 64
_LOAD_BYTES = 8 * 1024 * 1024
_IDS_TOLD = 5


class Amend(Protocol):
    """Writes amendments as `DeadLetters.amend` would: by the rules for redaction, and with large bodies in files."""

    async def __call__(self, amendments: Sequence[Amendment], *, as_given: bool = False) -> list[Amended]: ...


class BodyOf(Protocol):
    """`DeadLetters.body`."""

    async def __call__(self, letter: Letter) -> bytes: ...


class Repair:
    """Changes the content of letters, and writes that to the audit."""

    def __init__(
        self,
        store: LetterStore,
        desk: Desk,
        *,
        amend: Amend,
        body_of: BodyOf,
        within: Callable[[Query], Query],
        check: Check | None = None,
        ensure_target: Callable[[str], object] | None = None,
    ) -> None:
        """`check` raises what `amend` would refuse by its rules, so that a plan can tell; `within` keeps to a namespace.

        `ensure_target` raises why letters cannot have a target.
        """
        self._store = store
        self._desk = desk
        self._amend = amend
        self._body_of = body_of
        self._within = within
        self._check = check
        self._ensure_target = ensure_target

    async def plan(
        self,
        mending: Mending,
        *,
        query: Query | None = None,
        ids: Sequence[UUID] | None = None,
        sample: int = 3,
        again: bool = False,
        progress: Repairing | None = None,
    ) -> RepairPlan:
        """Go through the letters with these ids, or that match, and see what would become of each; keep some to look at.

        A letter that is as this very repair left it is not repaired once more, unless it is to be done `again`.
        """
        if (query is None) == (ids is None):
            raise BadSettings("say which letters to repair with one of ids or query")
        if mending.target and self._ensure_target is not None:
            self._ensure_target(mending.target)
        query = None if query is None else self._within(query)
        until = None if query is None else await newest(self._store, query)
        plan = RepairPlan(
            mending=mending,
            query=query,
            ids=tuple(dict.fromkeys(ids or ())),
            until=until,
            again=again,
            foreseen=Repaired(),
            samples=(),
        )
        tally, samples = Tally(0, progress), list[Sample]()
        async with aclosing(self._pages(plan, MOST, is_polite=False)) as pages:
            async for page in pages:
                for some in _slices(page, _AT_A_TIME):
                    for one, verdict in await self._verdicts(plan, some):
                        tally.count(one.letter.id, verdict)
                        if isinstance(verdict, Amendment) and len(samples) < sample:
                            samples.append(sample_of(one, verdict))
                    tally.tell()
        for id in await self._missing(plan):
            tally.count(id, No("there is no such letter"))
        return replace(plan, foreseen=replace(tally.repaired, matched=tally.repaired.seen), samples=tuple(samples))

    async def carry_out(self, plan: RepairPlan, *, by: str, most: int = MOST, progress: Repairing | None = None) -> Repaired:
        """Do what was planned, some letters at a time, with a rest after each step; say what became of them.

        Raises what the store raises; what was done until then stays done. A cancellation waits for the step under way.
        """
        if most < 1:
            raise BadSettings(f"a batch must have at least 1 letter, got {most}")
        if not plan.foreseen.done:
            return plan.foreseen
        await self._note(plan, by, f"began: {plan.foreseen.done:,} of {plan.foreseen.matched:,} to be changed")
        tally, ended = Tally(plan.foreseen.matched, progress), "cut short"
        try:
            await self._sweep(plan, tally, most)
            for id in await self._missing(plan):
                tally.count(id, No("there is no such letter"))
            ended = "done"
        finally:
            became = f"{ended}: {told(tally.repaired)}"
            try:
                await to_its_end(self._note(plan, by, became))
            except StoreError:
                log.exception("this could not be written to the audit: %s, %s", plan.mending.name, became)
        return tally.repaired

    async def undo(self, *, by: str, query: Query | None = None, ids: Sequence[UUID] | None = None) -> Repaired:
        """Put back what came, for letters that were not sent since: body, content type, headers, target. Twice changes no more."""
        return await self.carry_out(await self.plan(UNDO, query=query, ids=ids, sample=0), by=by)

    async def _pages(self, plan: RepairPlan, most: int, *, is_polite: bool) -> AsyncGenerator[Sequence[Letter], None]:
        if plan.query is None:
            for some in _slices(plan.ids, min(most, MOST)):
                yield self._of_ours(await self._store.get(some))
            return
        if plan.until is None:
            return
        query = up_to(plan.query, plan.until)
        is_behind = looks_behind(query)
        async with aclosing(walk(self._store, query, most=most, is_polite=is_polite)) as pages:
            async for page in pages:
                # Words that a store has not indexed yet must not make a letter match that has them.
                yield [letter for letter in page if matches(query, letter)] if is_behind else page

    def _of_ours(self, letters: Sequence[Letter | None]) -> list[Letter]:
        ours = self._within(EVERYTHING)
        return [letter for letter in letters if letter is not None and matches(ours, letter)]

    async def _missing(self, plan: RepairPlan) -> list[UUID]:
        """The ids of which there are no letters here."""
        missing: list[UUID] = []
        for some in _slices(plan.ids, MOST):
            known = {letter.id for letter in self._of_ours(await self._store.get(some))}
            missing += [id for id in some if id not in known]
        return missing

    async def _sweep(self, plan: RepairPlan, tally: Tally, most: int) -> None:
        stride = Stride(most)
        async with aclosing(self._pages(plan, most, is_polite=True)) as pages:
            async for page in pages:
                rest = list(page)
                while rest:
                    some, rest = rest[: stride.size], rest[stride.size :]
                    started = time.perf_counter()
                    await self._step(plan, some, tally)
                    tally.tell()
                    await stride.rest(time.perf_counter() - started, len(some))

    async def _step(self, plan: RepairPlan, letters: Sequence[Letter], tally: Tally) -> None:
        # A page may be seconds old by now, and meanwhile a letter may have been sent.
        fresh: list[Letter] = []
        for before, now in zip(letters, await self._store.get([letter.id for letter in letters]), strict=True):
            if now is None or now.generation != before.generation or not _is_still_meant(plan, now):
                tally.count(before.id, Same.CHANGED)
            else:
                fresh.append(now)
        for some in _slices(fresh, _AT_A_TIME):
            to_write: list[tuple[Material, Amendment]] = []
            for one, verdict in await self._verdicts(plan, some):
                if isinstance(verdict, Amendment):
                    to_write.append((one, verdict))
                else:
                    tally.count(one.letter.id, verdict)
            await to_its_end(self._write(plan, to_write, tally))

    async def _write(self, plan: RepairPlan, items: Sequence[tuple[Material, Amendment]], tally: Tally) -> None:
        verdicts = await self._written(plan, items) if items else []
        for (one, _), verdict in zip(items, verdicts, strict=True):
            tally.count(one.letter.id, verdict)

    async def _written(self, plan: RepairPlan, items: Sequence[tuple[Material, Amendment]]) -> list[Verdict]:
        try:
            answers = await self._amend([amendment for _, amendment in items], as_given=plan.mending.puts_back)
        except (BadSettings, BodyTooLarge) as error:
            if len(items) > 1:
                # Whichever it is, the others need not suffer for it.
                return [verdict for item in items for verdict in await self._written(plan, [item])]
            return [No(str(error).replace(f" of letter {items[0][0].letter.id}", ""))]
        except AnswerLost:
            known = await self._store.get([one.letter.id for one, _ in items])
            return [
                amendment if now is not None and await self._is_so(now, after_of(one, amendment)) else Same.CHANGED
                for (one, amendment), now in zip(items, known, strict=True)
            ]
        return [_became(answer, amendment) for answer, (_, amendment) in zip(answers, items, strict=True)]

    async def _is_so(self, letter: Letter, content: Original) -> bool:
        return replace(original_of(letter), body=await self._body_of(letter), body_ref=None) == content

    async def _verdicts(self, plan: RepairPlan, letters: Sequence[Letter]) -> list[tuple[Material, Verdict]]:
        loaded = [await self._loaded(plan, letter) for letter in letters]

        def decide() -> list[tuple[Material, Verdict]]:
            with outside():
                return [(one, no or decided(plan.mending, one, again=plan.again, check=self._check)) for one, no in loaded]

        # What a user's function does with a body may take long, and must hold nobody else up.
        return await aside(decide)

    async def _loaded(self, plan: RepairPlan, letter: Letter) -> tuple[Material, No | None]:
        no = why_not(letter)
        if no is not None:
            return Material(letter=letter), no
        try:
            body, original = await self._body_of(letter), b""
            if plan.mending.puts_back and letter.original is not None:
                original = await self._body_of(replace(letter, body=letter.original.body, body_ref=letter.original.body_ref))
        except StoreError as error:
            if error.transient:
                raise
            return Material(letter=letter), No(str(error))
        return Material(letter=letter, body=body, original=original), None

    async def _note(self, plan: RepairPlan, by: str, detail: str) -> None:
        ids = " ".join(map(str, plan.ids[:_IDS_TOLD])) + (
            f" and {len(plan.ids) - _IDS_TOLD:,} more" * (len(plan.ids) > _IDS_TOLD)
        )
        subject = ids if plan.query is None else spelled(plan.query)
        act = "undo" if plan.mending.puts_back else "edit"
        await self._desk.note(
            [AuditRow(at=datetime.now(UTC), by=by, act=act, subject=subject, detail=f"{detail} ({plan.mending.name})")]
        )


def _became(answer: Amended, amendment: Amendment) -> Verdict:
    match answer:
        case Amended.DONE:
            return amendment
        case Amended.LEASED:
            return HELD
        case _:
            return Same.CHANGED


def _is_still_meant(plan: RepairPlan, letter: Letter) -> bool:
    """Does the letter still match? One that is held does: why it is left alone is told by that."""
    return plan.query is None or letter.status is Status.RETRYING or matches(up_to(plan.query, plan.until), letter)


def _slices(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Some at a time; of letters no more than memory should hold with their bodies."""
    some: list[T] = []
    weight = 0
    for item in items:
        size = item.body_size if isinstance(item, Letter) else 0
        if some and (len(some) >= most or weight + size > _LOAD_BYTES):
            yield some
            some, weight = [], 0
        some.append(item)
        weight += size
    if some:
        yield some
