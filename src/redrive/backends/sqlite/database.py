"""One SQLite file, shared by letters, desk and queues: group commit for writers, a few connections for readers.

Writers queue up. Whoever leads takes all that wait, runs them in one transaction with one fsync, and tells each its
answer. A blocking caller leads in its own thread; async callers are led by a writer thread, so that no event loop ever
waits for a disk. Requests of the same verb are run together: few statements a transaction, because sqlite3 lets go of
the GIL at each, and beside a busy thread every one of them may cost a whole switch interval.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, TypeVar

from redrive.backends.sqlite import schema
from redrive.backends.sqlite.errors import translated, translating
from redrive.model.errors import StoreError, StoreUnavailable
from redrive.model.instant import instant
from redrive.ports.inline import is_inline

Request = TypeVar("Request")
Answer = TypeVar("Answer")

Verb = Callable[[sqlite3.Connection, list[Request]], list[Answer]]
"""What is done for many requests at once, inside a transaction. It may be run again after a rollback."""

_GROUP_LIMIT = 1000
_READERS = 4
_STATEMENTS = 256


class _Job:
    """One caller's request, and where its answer goes."""

    __slots__ = ("answer", "error", "future", "is_done", "loop", "request", "verb")

    def __init__(self, verb: Verb[Any, Any], request: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        self.verb = verb
        self.request = request
        self.loop = loop
        self.future: asyncio.Future[Any] | None = loop.create_future() if loop else None
        self.is_done = False
        self.answer: Any = None
        self.error: Exception | None = None


class Database:
    """Opens on first use; a forked child opens its own connections."""

    def __init__(self, path: str, *, busy_timeout_seconds: float = 10.0) -> None:
        self.path = path
        self._busy_timeout = busy_timeout_seconds
        self._opening = threading.Lock()
        self._abandoned: list[Any] = []
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._writer: sqlite3.Connection | None = None
        self._idle: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
        self._pool: ThreadPoolExecutor | None = None
        self._pending: deque[_Job] = deque()
        self._leading = threading.Lock()
        self._bell: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._is_rung = False
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._floor = 0

    async def write(self, verb: Verb[Request, Answer], request: Request) -> Answer:
        """Run a verb for this request in a transaction that is durable when this returns."""
        self._open()
        if is_inline():
            job = _Job(verb, request, None)
            self._pending.append(job)
            with self._leading:
                while not job.is_done:
                    self._lead()
            if job.error is not None:
                raise job.error
            return job.answer  # type: ignore[no-any-return]  # a job carries any verb's answer
        job = _Job(verb, request, asyncio.get_running_loop())
        self._pending.append(job)
        if self._is_closed:
            # Closed since it was found open: nobody may be listening for the bell any more.
            with self._leading:
                self._lead()
        elif not self._is_rung:
            self._is_rung = True
            self._bell.put(True)
        assert job.future is not None
        return await job.future  # type: ignore[no-any-return]  # a job carries any verb's answer

    async def read(self, query: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """Run a query on a snapshot of what is committed."""
        self._open()
        if is_inline():
            return self._read(query)
        assert self._pool is not None
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, query)

    def now(self, given: datetime | None) -> datetime:
        """The given instant, else this store's clock, which never goes back behind what it wrote."""
        if given is not None:
            return given
        self._floor = max(self._floor, time.time_ns() // 1000)
        return instant(self._floor)

    def passed(self, moment: int) -> None:
        """The clock is known to have passed this instant."""
        self._floor = max(self._floor, moment)

    async def check(self) -> None:
        """Raise unless the file can be written; changes nothing."""
        await self.write(_touch, None)

    def close(self) -> None:
        """Finish what waits, then let go of the file."""
        if self._is_closed or self._pid != os.getpid():
            return
        self._is_closed = True
        if self._thread is not None:
            self._bell.put(False)
            self._thread.join()
        if self._pool is not None:
            self._pool.shutdown()
        with self._leading:
            while self._pending:
                self._lead()
            while not self._idle.empty():
                self._idle.get_nowait().close()
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def _open(self) -> None:
        if self._writer is not None and self._pid == os.getpid():
            return
        with self._opening:
            if self._pid != os.getpid():
                # SQLite's locks do not survive a fork: closing the parent's connections here would drop them for the
                # parent, so they are kept aside and never touched again.
                self._abandoned.append((self._writer, self._idle))
                self._reset()
            if self._is_closed:
                raise StoreUnavailable(f"{self.path} was closed; open it again")
            if self._writer is not None:
                return
            with translating(self.path):
                writer = self._connect()
                try:
                    writer.execute("PRAGMA journal_mode = WAL")
                    schema.upgrade(writer, self.path)
                    (self._floor,) = writer.execute("SELECT token FROM fence").fetchone()
                except BaseException:
                    writer.close()
                    raise
            self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="redrive-read")
            self._thread = threading.Thread(target=self._lead_for_async, name="redrive-write", daemon=True)
            self._thread.start()
            self._writer = writer

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=self._busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_STATEMENTS,
        )
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _read(self, query: Callable[[sqlite3.Connection], Answer]) -> Answer:
        with translating(self.path):
            try:
                connection = self._idle.get_nowait()
            except queue.Empty:
                connection = self._connect()
            try:
                return query(connection)
            finally:
                if self._is_closed:
                    connection.close()
                else:
                    self._idle.put(connection)

    def _lead_for_async(self) -> None:
        while self._bell.get():
            self._is_rung = False
            with self._leading:
                while self._pending:
                    self._lead()

    def _lead(self) -> None:
        """Take what waits, commit it as one, and answer. Called by whoever holds the lead."""
        jobs = [self._pending.popleft() for _ in range(min(len(self._pending), _GROUP_LIMIT))]
        if not jobs:
            return
        if self._writer is None:
            error: Exception | None = StoreUnavailable(f"{self.path} was closed; open it again")
        else:
            error = self._commit(jobs)
        if error is not None and len(jobs) > 1 and not isinstance(error, StoreError):
            # One request of the group is at fault: run each alone, so that only its own caller hears of it.
            for job in jobs:
                job.error = self._commit([job])
        else:
            for job in jobs:
                job.error = error
        self._answer(jobs)

    def _commit(self, jobs: list[_Job]) -> Exception | None:
        writer = self._writer
        assert writer is not None
        by_verb: dict[Verb[Any, Any], list[_Job]] = {}
        for job in jobs:
            by_verb.setdefault(job.verb, []).append(job)
        try:
            writer.execute("BEGIN IMMEDIATE")
            for verb, alike in by_verb.items():
                answers = verb(writer, [job.request for job in alike])
                for job, answer in zip(alike, answers, strict=True):
                    job.answer = answer
            writer.execute("COMMIT")
        except BaseException as error:
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                return translated(error, self.path)
            if isinstance(error, Exception):
                return error
            # Somebody pressed Ctrl-C in the leader's thread: those it led hear that nothing was done.
            for job in jobs:
                job.error = StoreUnavailable(f"writing to {self.path} was interrupted; try again")
            self._answer(jobs)
            raise
        return None

    def _answer(self, jobs: list[_Job]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        for job in jobs:
            job.is_done = True
            if job.loop is not None:
                by_loop.setdefault(job.loop, []).append(job)
        for loop, theirs in by_loop.items():
            try:
                loop.call_soon_threadsafe(_resolve, theirs)
            except RuntimeError:
                # The loop was closed while its callers waited: nobody is left to hear the answer.
                continue


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        assert job.future is not None
        if job.future.cancelled():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.answer)


def _touch(connection: sqlite3.Connection, requests: list[None]) -> list[None]:
    connection.execute("UPDATE fence SET token = token")
    return requests
