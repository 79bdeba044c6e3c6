"""Copy: every letter of one store goes to another, and is read back there as proof that it arrived.

No state is kept anywhere. What is in the target already, and equal, is passed over: so a copy that was cut short at any
instant is simply started again, and done twice it changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from redrive.engine.hold import body_refs
from redrive.engine.walk import Stride
from redrive.engine.whole import Side, Whole, loads, placed, whole
from redrive.model.amendment import Amendment
from redrive.model.errors import (
    BadSettings,
    NotHeld,
    RedriveError,
    SchemaTooNew,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreNotWritable,
    Unsupported,
)
from redrive.model.letter import Letter
from redrive.model.status import Status

_RESTS = 0.5
"""For how long others have the target, of the time that a call took."""
_TOLD = 20
"""Ids and reasons that a report names; the rest is counted."""
_ITS_OWN = (StoreFull, StoreNotWritable, StoreCorrupt, SchemaTooNew)
"""What a store says that is at fault itself, unless it takes others meanwhile: then it is the letter, such as one that is too large."""


_Write: TypeAlias = Callable[[Sequence[Letter]], Awaitable[object]]


class Copied(Struct, frozen=True, kw_only=True):
    """What became of a copy. While it is under way: how far it has come."""

    seen: int = 0
    """Letters that were read from the source."""
    copied: int = 0
    already: int = 0
    """They were in the target before, and are the same there."""
    replaced: int = 0
    differing: int = 0
    """They are in the target, but not as they are in the source."""
    held: int = 0
    """Somebody holds them in the source right now, so where they stand cannot be seen; they were not copied."""
    failed: int = 0
    """They could not be read, or the target refused them."""
    differing_ids: tuple[UUID, ...] = ()
    held_ids: tuple[UUID, ...] = ()
    problems: tuple[str, ...] = ()
    """Why letters failed. Of ids and problems alike, only the first are named."""
    source_count: int = 0
    target_count: int = 0
    source_checksum: str = ""
    """Of all letters that were read: the same for the same letters, in any order and in any store."""
    target_checksum: str = ""
    """Of the same letters, as they were read back from the target."""

    @property
    def arrived(self) -> int:
        """How many letters of the source are in the target as they should be."""
        return self.copied + self.already + self.replaced

    @property
    def others(self) -> int:
        """How many letters the target has that did not come from the source."""
        return max(0, self.target_count - self.arrived - self.differing)

    @property
    def is_verified(self) -> bool:
        """Is every letter of the source in the target, by count and by checksum?"""
        is_whole = self.arrived == self.seen == self.source_count <= self.target_count
        return is_whole and self.source_checksum == self.target_checksum


async def copy(
    source: Side,
    target: Side,
    *,
    batch: int = 500,
    overwrite: bool = False,
    dry_run: bool = False,
    progress: Callable[[Copied], None] | None = None,
) -> Copied:
    """Copy all letters of all namespaces, oldest first, `batch` at most at a time; say what became of them.

    A letter that is in the target and differs is left alone unless `overwrite` is given. A dry run only compares, and
    counts as copied what it would copy. Raises what a store raises; what was copied until then stays, and the same call
    goes on from there.
    """
    if batch < 1:
        raise BadSettings(f"a batch must have at least 1 letter, got {batch}")
    work = _Copy(source, target, overwrite=overwrite, dry_run=dry_run)
    work.source_count = await source.letters.count()
    async for letters in loads(source.letters, batch):
        await work.carry(letters)
        if progress is not None:
            progress(work.report())
    work.source_count = await source.letters.count()
    work.target_count = await target.letters.count()
    return work.report()


class _Copy:
    """One copy under way: what it counted, and what it does with each load of letters."""

    def __init__(self, source: Side, target: Side, *, overwrite: bool, dry_run: bool) -> None:
        self._source = source
        self._target = target
        self._overwrite = overwrite
        self._dry_run = dry_run
        self.source_count = self.target_count = 0
        self._counts: Counter[str] = Counter()
        self._named: dict[str, list[UUID]] = {"differing": [], "held": []}
        self._problems: list[str] = []
        self._source_sum = self._target_sum = 0
        self._stride = Stride(rests=_RESTS)

    def report(self) -> Copied:
        return Copied(
            **self._counts,
            differing_ids=tuple(self._named["differing"]),
            held_ids=tuple(self._named["held"]),
            problems=tuple(self._problems),
            source_count=self.source_count,
            target_count=self.target_count,
            source_checksum=_checksum(self._source_sum),
            target_checksum=_checksum(self._target_sum),
        )

    async def carry(self, letters: Sequence[Letter]) -> None:
        """See to it that these letters of the source are in the target."""
        self._counts["seen"] += len(letters)
        missing: list[Whole] = []
        differing: list[Whole] = []
        for letter, known in zip(letters, await self._there(letters), strict=True):
            if letter.status is Status.RETRYING:
                self._count("held", letter.id)
            elif (one := await self._read(letter)) is None:
                continue
            elif known is None:
                missing.append(one)
            elif await self._is_same(known, one):
                self._counts["already"] += 1
                self._target_sum += one.digest
            elif self._overwrite and not self._dry_run:
                differing.append(one)
            else:
                await self._differs(one, known)
        if self._dry_run:
            self._counts["copied"] += len(missing)
        else:
            await self._write(missing, "copied", self._target.letters.put)
            await self._replace(differing)

    async def _read(self, letter: Letter) -> Whole | None:
        """The letter with its bodies; None when they cannot be read, which is counted."""
        try:
            one = await whole(letter, self._source)
        except StoreError as error:
            if error.transient:
                raise
            self._fail(letter, error)
            return None
        self._source_sum += one.digest
        return one

    async def _write(self, wholes: Sequence[Whole], outcome: str, write: _Write) -> None:
        """Write letters to the target, and read them back."""
        if not wholes:
            return
        fitted = [await placed(one, self._target) for one in wholes]
        refused = await self._written(fitted, write)
        for one, known in zip(wholes, await self._there(fitted), strict=True):
            if one.letter.id in refused:
                continue
            if known is not None and await self._is_same(known, one):
                self._counts[outcome] += 1
                self._target_sum += one.digest
            else:
                await self._differs(one, known)

    async def _written(self, letters: Sequence[Letter], write: _Write) -> set[UUID]:
        """Write letters some at a time, for others write, too; or, when that is refused, one by one: a single letter must not hold up all others.
        Answers with those that were refused."""
        refused: list[tuple[Letter, RedriveError]] = []

        async def step(some: Sequence[Letter]) -> None:
            refusal = await self._refusal(some, write)
            if refusal is not None and len(some) == 1:
                refused.append((some[0], refusal))
            elif refusal is not None:
                refused.extend(
                    [(letter, error) for letter in some if (error := await self._refusal([letter], write)) is not None]
                )

        await self._stride.through(letters, step)
        if refused and len(refused) == len(letters) and isinstance(refused[-1][1], _ITS_OWN):
            raise refused[-1][1]
        for letter, error in refused:
            self._fail(letter, error)
        return {letter.id for letter, _ in refused}

    async def _refusal(self, letters: Sequence[Letter], write: _Write) -> RedriveError | None:
        """Write letters; why does the target not take them?"""
        try:
            await write(letters)
        except (NotHeld, Unsupported, StoreError) as error:
            if error.transient:
                raise
            return error
        return None

    async def _replace(self, wholes: Sequence[Whole]) -> None:
        """Put letters in the place of those that the target has; whoever holds one there keeps it."""
        if not wholes:
            return
        ids = [one.letter.id for one in wholes]
        before, here = await self._target.letters.get(ids), await self._source.letters.get(ids)
        fresh: list[Whole] = []
        for one, known, now in zip(wholes, before, here, strict=True):
            if now == one.letter:
                fresh.append(one)
            else:
                # It has changed in the source meanwhile, or left it; and perhaps both are one store, where nothing older may take its place.
                await self._differs(one, known)
        await self._write(fresh, "replaced", self._exchange)
        await self._drop_bodies([known for known in before if known is not None])

    async def _exchange(self, letters: Sequence[Letter]) -> object:
        return await self._target.letters.amend([Amendment(id=letter.id, instead=letter) for letter in letters])

    async def _drop_bodies(self, gone: Iterable[Letter]) -> None:
        """Remove the body files of letters that were replaced, but for those that the new ones need too."""
        old = {ref for letter in gone for ref in body_refs(letter)}
        if old and self._target.bodies is not None:
            needed = {ref for letter in await self._there(list(gone)) for ref in body_refs(letter)}
            await self._target.bodies.drop(list(old - needed))

    async def _there(self, letters: Sequence[Letter]) -> list[Letter | None]:
        return await self._target.letters.get([letter.id for letter in letters]) if letters else []

    async def _is_same(self, known: Letter, one: Whole) -> bool:
        # A lease in the target is not part of the letter, and hides where it stands; all else must be equal.
        unleased = replace(known, status=one.letter.status) if known.status is Status.RETRYING else known
        return await self._digest_there(unleased) == one.digest

    async def _digest_there(self, known: Letter) -> int | None:
        """The digest of a letter in the target; None when its body is missing or damaged there."""
        try:
            return (await whole(known, self._target)).digest
        except StoreError as error:
            if error.transient:
                raise
            return None

    async def _differs(self, one: Whole, known: Letter | None) -> None:
        self._count("differing", one.letter.id)
        self._target_sum += (known and await self._digest_there(known)) or 0

    def _fail(self, letter: Letter, error: Exception) -> None:
        self._counts["failed"] += 1
        if len(self._problems) < _TOLD:
            self._problems.append(f"{letter.id}: {error}")

    def _count(self, what: str, id: UUID) -> None:
        self._counts[what] += 1
        if len(self._named[what]) < _TOLD:
            self._named[what].append(id)


def _checksum(sum: int) -> str:
    """The sum of digests, which does not depend on their order."""
    return f"{sum % 2**256:064x}"
