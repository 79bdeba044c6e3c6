"""Hold: from here on the letter is ours. Put, confirmed; only then may the source be settled."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol
from uuid import uuid4

from msgspec.structs import replace

from redrive.engine import metrics
from redrive.engine.telemetry import Telemetry
from redrive.model.amendment import Amendment
from redrive.model.arrival import Held
from redrive.model.errors import BodyTooLarge, NotHeld, RedriveError, StoreError
from redrive.model.letter import BodyRef, Letter
from redrive.ports.bodies import Bodies
from redrive.ports.letters import LetterStore

log = logging.getLogger("redrive.hold")

_DRAIN_PAUSE_SECONDS = 1.0
_MAY_NOT_NEED_IT = (Held.ATTEMPT, Held.DUPLICATE, Held.REOPENED)
"""Ways to be held in which the letter may have its body already."""


def body_refs(letter: Letter | None) -> list[BodyRef]:
    """Every body file that a letter needs."""
    if letter is None:
        return []
    return [ref for ref in (letter.body_ref, letter.original and letter.original.body_ref) if ref]


class JournalLike(Protocol):
    """What holding needs of a journal; see `redrive.engine.journal`."""

    @property
    def waiting(self) -> int: ...

    async def append(self, letters: Sequence[Letter]) -> None: ...

    async def drain(self, store: LetterStore, batch: int = 100) -> int: ...

    def close(self) -> None: ...


class Holder:
    """Puts letters where they are safe: the store, or the journal while a remote store is down."""

    def __init__(
        self,
        store: LetterStore,
        *,
        bodies: Bodies | None,
        journal: JournalLike | None,
        body_limit: int,
        telemetry: Telemetry,
        start: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._store = store
        self._bodies = bodies
        self._journal = journal
        self._body_limit = body_limit
        self._telemetry = telemetry
        self._start = start
        self._next_drain = 0.0
        self._is_tending = False

    async def hold(self, letters: Sequence[Letter]) -> list[Held]:
        """Hold letters and say how each was held; `NotHeld` when none of them is: then do not settle the source."""
        if not letters:
            return []
        slim = [letter if len(letter.body) <= self._body_limit else await self._slimmed(letter) for letter in letters]
        if self._journal is not None:
            try:
                await self.drain()
            except RedriveError:
                # What waits there stays there; these letters must be held all the same.
                log.exception("journal not drained")
        try:
            answers = await self._store.put(slim)
        except StoreError as error:
            if self._journal is None:
                raise NotHeld(f"not held: {error}; do not acknowledge the source") from error
            await self._journal.append(slim)
            self._next_drain = time.monotonic() + _DRAIN_PAUSE_SECONDS
            answers = [Held.JOURNALED] * len(slim)
            self._tend()
        if self._bodies is not None and any(letter.body_ref for letter in slim):
            # The letters are held; a file too many is for `redrive doctor` to find.
            with contextlib.suppress(StoreError):
                await self._drop_unused(slim, answers)
        if self._telemetry.is_silent:
            return answers
        for letter, held in zip(slim, answers, strict=True):
            labels = {"source": letter.source, "held": held.value, "category": letter.failure.category.value}
            self._telemetry.add(metrics.LETTERS_HELD, 1, **labels)
        return answers

    async def drain(self) -> int:
        """Move what waits in the journal, and in those of processes that died, to the store; at most once a second."""
        if self._journal is None or time.monotonic() < self._next_drain:
            return 0
        self._next_drain = time.monotonic() + _DRAIN_PAUSE_SECONDS
        moved = await self._journal.drain(self._store)
        self._telemetry.set(metrics.JOURNAL_LETTERS, self._journal.waiting)
        return moved

    def _tend(self) -> None:
        """See to it that the journal drains when the store is back, also when nothing more is held meanwhile."""
        if not self._is_tending:
            self._is_tending = True
            self._start(self._drain_until_empty())

    async def _drain_until_empty(self) -> None:
        assert self._journal is not None
        try:
            while self._journal.waiting:
                await asyncio.sleep(_DRAIN_PAUSE_SECONDS)
                try:
                    await self.drain()
                except RedriveError:
                    log.exception("journal not drained")
        finally:
            self._is_tending = False

    async def body_of(self, letter: Letter) -> bytes:
        """The letter's body, wherever it lies."""
        if letter.body_ref is None:
            return letter.body
        if self._bodies is None:
            raise StoreError(
                f"letter {letter.id} has its body in a file ({letter.body_ref.name}), and this store has no folder for bodies"
            )
        return await self._bodies.load(letter.body_ref)

    async def drop_bodies(self, letters: Sequence[Letter]) -> None:
        """Remove the body files of letters that are gone."""
        refs = [ref for letter in letters for ref in body_refs(letter)]
        if refs and self._bodies is not None:
            await self._bodies.drop(refs)

    async def _drop_unused(self, letters: Sequence[Letter], answers: Sequence[Held]) -> None:
        """Remove body files that the store did not take, because the letter has its body already."""
        assert self._bodies is not None
        kept = [letter for letter, held in zip(letters, answers, strict=True) if letter.body_ref and held in _MAY_NOT_NEED_IT]
        for letter, known in zip(kept, await self._store.get([letter.id for letter in kept]), strict=True):
            if letter.body_ref is not None and letter.body_ref not in body_refs(known):
                await self._bodies.drop([letter.body_ref])

    async def slim(self, amendment: Amendment) -> Amendment:
        """The amendment with a body over the limit in a file, as it would be for a letter."""
        if not isinstance(amendment.body, bytes) or len(amendment.body) <= self._body_limit:
            return amendment
        if self._bodies is None:
            raise BodyTooLarge(f"the new body has {len(amendment.body)} bytes, the limit is {self._body_limit}; raise body_limit")
        return replace(amendment, body=b"", body_ref=await self._bodies.keep(f"{amendment.id}-{uuid4()}", amendment.body))

    async def _slimmed(self, letter: Letter) -> Letter:
        """The letter with its body, which is over the limit, in a file."""
        size = len(letter.body)
        if self._bodies is None:
            raise BodyTooLarge(
                f"the body of message '{letter.source_id}' from '{letter.source}' has {size} bytes, the limit is {self._body_limit};"
                " raise body_limit, or use a store that keeps large bodies in files"
            )
        try:
            # A file of its own for each failure: no purge of another one's letter can take it away.
            ref = await self._bodies.keep(f"{letter.id}-{letter.history[-1].occurrence}", letter.body)
        except StoreError as error:
            raise NotHeld(f"the body of message '{letter.source_id}' could not be kept: {error}") from error
        return replace(letter, body=b"", body_ref=ref)
