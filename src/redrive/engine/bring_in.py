"""Bring in: letters that were written out as lines go into a store, whole, and are read back there as proof.

A file of letters is to `copy` one more store to read from. So an import has what a copy has: what is in the store already,
and equal, is passed over; cut short at any instant it is simply started again, and done twice it changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from redrive.engine.copy import Copied, copy
from redrive.engine.whole import Side
from redrive.model.errors import BadSettings
from redrive.model.letter import Letter
from redrive.model.query import Order, Page
from redrive.model.status import Status
from redrive.ports.letters import LetterStore

_PAGE_BYTES = 8 * 1024 * 1024
"""What is read at a time, so that memory stays flat however large the bodies are."""
_TOLD = 20
"""Lines that a report names; the rest is counted."""


class BroughtIn(Struct, frozen=True, kw_only=True):
    """What became of an import. While it is under way: how far it has come."""

    lines: int = 0
    """Lines that were read, those that are blank left out."""
    brought: int = 0
    already: int = 0
    """They were in the store before, and are the same there."""
    replaced: int = 0
    differing: int = 0
    """They are in the store, but not as they are in the file; they were left alone."""
    unreadable: int = 0
    """Lines that hold no letter."""
    failed: int = 0
    """The store refused them."""
    held: int = 0
    """Somebody held them when they were written out, so where they stood cannot be seen; they come in as pending."""
    differing_ids: tuple[UUID, ...] = ()
    mistakes: tuple[str, ...] = ()
    """What is wrong with lines that hold no letter, each with its number."""
    problems: tuple[str, ...] = ()
    """Why the store refused letters. Of ids, mistakes and problems alike, only the first are named."""

    @property
    def is_whole(self) -> bool:
        """Is every letter of the file in the store, as it is in the file?"""
        return not (self.differing or self.unreadable or self.failed)


async def bring_in(
    lines: Iterable[bytes],
    read: Callable[[bytes], Letter],
    target: Side,
    *,
    batch: int = 500,
    overwrite: bool = False,
    dry_run: bool = False,
    progress: Callable[[BroughtIn], None] | None = None,
) -> BroughtIn:
    """Put the letter that `read` finds in each line into the store, `batch` at most at a time; say what became of them.

    Every field is kept, also status, history and generation. A line for which `read` raises `BadSettings` is told of and
    the others come. A letter that is in the store and differs is left alone unless `overwrite` is given. A dry run only
    compares, and counts as brought what it would bring. Raises what a store raises; what was brought until then stays, and
    the same call goes on from there.
    """
    source = _Lines(lines, read)
    # `copy` asks of either side no other verbs than these have.
    here = Side(letters=cast("LetterStore", source))

    def told(copied: Copied) -> None:
        if progress is not None:
            progress(source.report(copied))

    return source.report(await copy(here, target, batch=batch, overwrite=overwrite, dry_run=dry_run, progress=told))


class _Lines:
    """Letters in lines, as a store that can be read once, from its first page to its last."""

    def __init__(self, lines: Iterable[bytes], read: Callable[[bytes], Letter]) -> None:
        self._lines = enumerate(lines, 1)
        self._read = read
        self._next: tuple[Letter, int] | None = None
        self._page: dict[UUID, Letter] = {}
        self._seen = self._found = self._unreadable = self._held = 0
        self._mistakes: list[str] = []

    def report(self, copied: Copied) -> BroughtIn:
        return BroughtIn(
            lines=self._seen,
            brought=copied.copied,
            already=copied.already,
            replaced=copied.replaced,
            differing=copied.differing,
            unreadable=self._unreadable,
            failed=copied.failed,
            held=self._held,
            differing_ids=copied.differing_ids,
            mistakes=tuple(self._mistakes),
            problems=copied.problems,
        )

    async def count(self) -> int:
        return self._found

    async def get(self, ids: Sequence[UUID]) -> list[Letter | None]:
        return [self._page.get(id) for id in ids]

    async def find(self, *, order: Order, limit: int, after: str | None) -> Page:
        """The next letters, in the order of their lines: some `limit`, fewer when they are large; no letter twice."""
        self._page = {}
        weight = 0
        while (found := self._next or self._letter()) is not None:
            letter, size = self._next = found
            is_full = len(self._page) >= limit or weight + size > _PAGE_BYTES
            # A letter that comes twice is compared with what came of the first, which must be in the store by then.
            if self._page and (is_full or letter.id in self._page):
                break
            self._page[letter.id] = letter
            weight += size
            self._next = None
        self._found += len(self._page)
        return Page(letters=tuple(self._page.values()), next=str(self._found) if self._next else None)

    def _letter(self) -> tuple[Letter, int] | None:
        """The next letter and about how many bytes it takes; None at the end."""
        for number, line in self._lines:
            if not line.strip():
                continue
            self._seen += 1
            try:
                letter = self._read(line)
            except BadSettings as error:
                self._mistake(number, line, error)
                continue
            if letter.status is Status.RETRYING:
                self._held += 1
                letter = replace(letter, status=Status.PENDING)
            return letter, len(line)
        return None

    def _mistake(self, number: int, line: bytes, error: BadSettings) -> None:
        self._unreadable += 1
        if len(self._mistakes) < _TOLD:
            cut = "" if line.endswith(b"\n") else "; all ends there: it may have been cut off"
            self._mistakes.append(f"line {number}: {error}{cut}")
