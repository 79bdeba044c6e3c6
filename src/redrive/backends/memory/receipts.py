"""The desk's receipts in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter

from redrive.model.receipt import Receipt, Which, begun, ended, is_over, lapsed


class MemoryReceipts:
    """Keeps receipts for as long as the process lives. Threads may ask at once, so that each verb is one step."""

    def __init__(self) -> None:
        self._receipts: dict[tuple[str, str, str], Receipt] = {}
        self._changing = threading.Lock()

    async def begin(
        self, receipts: Sequence[Receipt], lease: timedelta, *, again: bool = False, now: datetime | None = None
    ) -> list[Receipt]:
        moment = now or datetime.now(UTC)
        with self._changing:
            answers = []
            for one in receipts:
                after = begun(self._receipts.get(one.id), one, lease, again=again, now=moment)
                self._write(one, after)
                answers.append(after)
            return answers

    async def end(
        self, receipts: Sequence[Receipt], *, done: bool, keep: timedelta | None = None, now: datetime | None = None
    ) -> list[bool]:
        moment = now or datetime.now(UTC)
        with self._changing:
            answers = []
            for one in receipts:
                after, is_theirs = ended(self._receipts.get(one.id), one, done=done, keep=keep, now=moment)
                self._write(one, after)
                answers.append(is_theirs)
            return answers

    async def receipts(self, which: Which, *, limit: int = 100) -> list[Receipt]:
        with self._changing:
            chosen = [one for one in self._receipts.values() if which.takes(one)]
        return sorted(chosen, key=attrgetter("at", "handler", "key"), reverse=True)[:limit]

    async def forget(self, which: Which, *, limit: int = 1000) -> int:
        with self._changing:
            chosen = [one for one in self._receipts.values() if which.takes(one)][:limit]
            for one in chosen:
                self._write(one, None)
        return len(chosen)

    async def expire(self, *, limit: int = 1000, now: datetime | None = None) -> int:
        moment = now or datetime.now(UTC)
        with self._changing:
            over = [one for one in self._receipts.values() if is_over(one, moment)][:limit]
            for one in over:
                self._write(one, lapsed(one))
        return len(over)

    def _write(self, receipt: Receipt, after: Receipt | None) -> None:
        if after is None:
            self._receipts.pop(receipt.id, None)
        else:
            self._receipts[receipt.id] = after
