"""One SQLite file, shared by letters, desk and queues: group commit for writers, a few connections for readers.

Writers queue up. Whoever leads takes all that wait, runs them in one transaction with one fsync, and tells each its
answer. A blocking caller leads in its own thread; async callers are led by a writer thread, so that no event loop ever
waits for a disk, unless it is one of our own that has nothing better to do (`lead_on`). Requests of the same verb are run together: few statements a transaction, because sqlite3 lets go of
the GIL at each, and beside a busy thread every one of them may cost a whole switch interval.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from redrive.backends.sqlite.checkpoints import Checkpoints
from redrive.backends.sqlite.connections import Connections
from redrive.backends.sqlite.errors import translated, translating
from redrive.model.errors import AnswerLost, StoreCorrupt, StoreFull, StoreNotWritable, StoreUnavailable
from redrive.model.instant import instant
from redrive.ports.inline import is_inline, pause

Request = TypeVar("Request")
Answer = TypeVar("Answer")

Verb = Callable[[sqlite3.Connection, list[Request]], list[Answer]]
"""What is done for many requests at once, inside a transaction. It may be run again after a rollback."""

_EVERYBODYS = (StoreUnavailable, StoreFull, StoreCorrupt, StoreNotWritable)
"""Errors that would meet every request alike; all others are one request's own."""

_GROUP_LIMIT = 1000
_CATCH_UP_SECONDS = 0.05
_LOOK_SECONDS = 0.01
_READERS = 4
_SLOW_SECONDS = 0.02
"""A disk that takes longer than this is not waited for on an event loop, for some time."""
_SHY_SECONDS = 1.0
_GATHER_SECONDS = 0.0003
_REST_SECONDS = 0.001
"""Between two tries while another process writes."""


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
    """Opens on first use, and anew on both sides of a fork, or when the file was removed or replaced."""

    def __init__(self, path: str, *, patience_seconds: float = 10.0) -> None:
        self.path = path
        self._patience = patience_seconds
        """How long another process may write before we give up."""
        self._connections = Connections(path, before_fork=self._before_fork, after_fork=self._after_fork)
        self._floor = 0
        self._floor_at = time.monotonic_ns() // 1000
        self._is_closed = False
        self._home: asyncio.AbstractEventLoop | None = None
        self._shy_until = 0.0
        self._begin()

    def _begin(self) -> None:
        """What does not survive a fork: locks that a thread of the parent may hold, and threads."""
        self._starting = threading.Lock()
        self._leading = threading.Lock()
        self._pending: deque[_Job] = deque()
        self._bell: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._is_rung = False
        self._is_called = False
        self._called_at = 0.0
        self._company = 0
        """How many went together last time."""
        self._thread: threading.Thread | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._checkpoints = Checkpoints(self._connections, self._leading)

    def lead_on(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Lead on this event loop (None: on none), whose program does little else but ask this database: two hops between threads
        are saved, and all requests that come in one turn of the loop go together. While the disk is slow, or another process
        writes, the thread leads all the same."""
        self._home = loop

    async def write(self, verb: Verb[Request, Answer], request: Request) -> Answer:
        """Run a verb for this request in a transaction that is durable when this returns."""
        if is_inline():
            job = _Job(verb, request, None)
            self._pending.append(job)
            with self._leading:
                while not job.is_done:
                    self._lead()
            if job.error is not None:
                raise job.error
            return job.answer  # type: ignore[no-any-return]  # a job carries any verb's answer
        self._start()
        loop = asyncio.get_running_loop()
        job = _Job(verb, request, loop)
        self._pending.append(job)
        if loop is self._home and time.monotonic() >= self._shy_until and not self._is_closed:
            if not self._is_called:
                self._is_called = True
                loop.call_soon(self._lead_at_home)
        elif self._is_closed:
            # Closed meanwhile: nobody may be listening for the bell any more.
            with self._leading:
                self._lead()
        else:
            self._ring()
        assert job.future is not None
        return await job.future  # type: ignore[no-any-return]  # a job carries any verb's answer

    async def read(self, query: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """Run a query on a snapshot of what is committed."""
        if is_inline():
            return self._read(query)
        self._start()
        assert self._pool is not None
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, query)

    async def version(self) -> int:
        """A number that changes when another process has written. What was written here does not count."""
        if is_inline():
            return self._version()
        self._start()
        assert self._pool is not None
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._version)

    def _version(self) -> int:
        self._ensure_open()
        with translating(self.path), self._leading:
            if self._connections.was_taken_away:
                raise StoreUnavailable(f"{self.path} was removed or replaced while it was open; the next letter opens it anew")
            # Of the connection that writes, for it does not count its own; and without a transaction, so that nobody waits for it.
            (version,) = self._connections.writer().execute("PRAGMA data_version").fetchone()
        return int(version)

    async def catch_up(self) -> None:
        """Before work that can wait: let the log be copied first where it has grown long, though not for ever. What is copied at
        once holds up those who commit meanwhile."""
        until = time.monotonic() + _CATCH_UP_SECONDS
        while self._checkpoints.catch_up() and time.monotonic() < until:
            await pause(_LOOK_SECONDS)

    def now(self, given: datetime | None) -> datetime:
        """The given instant, else this store's clock, which never goes back behind what it wrote."""
        if given is not None:
            return given
        # When the system's clock was set back, ours runs on from the last instant, so that leases still come to their end.
        ticks = time.monotonic_ns() // 1000
        self._floor, self._floor_at = max(self._floor + ticks - self._floor_at, time.time_ns() // 1000), ticks
        return instant(self._floor)

    def passed(self, moment: int) -> None:
        """The clock is known to have passed this instant."""
        if moment > self._floor:
            self._floor, self._floor_at = moment, time.monotonic_ns() // 1000

    async def check(self) -> None:
        """Raise unless the file is there and can be written; changes nothing."""
        if self._connections.was_taken_away:
            raise StoreUnavailable(f"{self.path} was removed or replaced while it was open; the next letter opens it anew")
        await self.write(_touch, None)

    def close(self) -> None:
        """Finish what waits, then let go of the file."""
        if self._is_closed:
            return
        self._is_closed = True
        with self._starting:
            thread, pool = self._thread, self._pool
        if thread is not None:
            self._bell.put(False)
            thread.join()
        if pool is not None:
            pool.shutdown()
        self._checkpoints.close()
        with self._leading:
            while self._pending:
                self._lead()
            self._connections.close()

    def _start(self) -> None:
        """Start the threads that serve async callers."""
        with self._starting:
            if self._thread is None and not self._is_closed:
                self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="redrive-read")
                self._thread = threading.Thread(target=self._lead_for_async, name="redrive-write", daemon=True)
                self._thread.start()
        self._ensure_open()

    def _ensure_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable(f"{self.path} was closed; open it again")

    def _read(self, query: Callable[[sqlite3.Connection], Answer]) -> Answer:
        self._ensure_open()
        with translating(self.path), self._connections.reading() as connection:
            return query(connection)

    def _lead_for_async(self) -> None:
        while self._bell.get():
            self._is_rung = False
            with self._leading:
                while self._pending:
                    self._lead()

    def _ring(self) -> None:
        if not self._is_rung:
            self._is_rung = True
            self._bell.put(True)

    def _lead_at_home(self) -> None:
        """Lead on the event loop, where nobody has to be waited for; else leave it to the thread."""
        now = time.monotonic()
        if self._pending and len(self._pending) < self._company and self._home is not None:
            # Those who went together last time mostly come together again: look once more who is at the door, but not for long.
            self._called_at = self._called_at or now
            if now - self._called_at < _GATHER_SECONDS:
                self._home.call_soon(self._lead_at_home)
                return
        self._is_called, self._called_at, self._company = False, 0.0, len(self._pending)
        if not self._leading.acquire(blocking=False):
            self._ring()
            return
        began = time.monotonic()
        try:
            if self._pending:
                self._lead(is_at_home=True)
        finally:
            self._leading.release()
        if (now := time.monotonic()) - began > _SLOW_SECONDS:
            self._shy_until = now + _SHY_SECONDS
        if self._pending:
            self._ring()

    def _lead(self, *, is_at_home: bool = False) -> None:
        """Take what waits, commit it as one, and answer. Called by whoever holds the lead."""
        jobs: list[_Job] = []
        try:
            while self._pending and len(jobs) < _GROUP_LIMIT:
                jobs.append(self._pending.popleft())
            if not jobs:
                return
            if is_at_home and not self._is_free():
                self._pending.extendleft(reversed(jobs))
                jobs = []
                return
            error = self._commit(jobs)
            if error is not None and len(jobs) > 1 and not isinstance(error, _EVERYBODYS):
                # One request of the group is at fault: run each alone, so that only its own caller hears of it.
                for job in jobs:
                    job.error = self._commit([job])
            else:
                for job in jobs:
                    job.error = error
        except BaseException:
            # Somebody pressed Ctrl-C in the leader's thread: those it led hear that they cannot count on it.
            for job in jobs:
                job.error = AnswerLost(f"writing to {self.path} was interrupted; it may have been done")
            raise
        finally:
            self._answer(jobs, is_at_home=is_at_home)

    def _commit(self, jobs: list[_Job]) -> Exception | None:
        by_verb: dict[Verb[Any, Any], list[_Job]] = {}
        for job in jobs:
            by_verb.setdefault(job.verb, []).append(job)
        writer: sqlite3.Connection | None = None
        try:
            writer = self._begun()
            for verb, alike in by_verb.items():
                answers = verb(writer, [job.request for job in alike])
                for job, answer in zip(alike, answers, strict=True):
                    job.answer = answer
            writer.execute("COMMIT")
            self._checkpoints.committed()
        except BaseException as error:
            if writer is not None and writer.in_transaction:
                # What cannot even be rolled back is not committed either; the error that matters is the first.
                with suppress(sqlite3.Error):
                    writer.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                return translated(error, self.path)
            if isinstance(error, Exception):
                return error
            raise
        return None

    def _is_free(self) -> bool:
        """Does no other process write just now? Then we do, from here on."""
        try:
            self._connections.writer().execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if _is_busy(error):
                return False
        except sqlite3.Error:
            # What is wrong is told to whoever asks, by the ordinary way.
            return True
        return True

    def _begun(self) -> sqlite3.Connection:
        """The writer in a transaction. Waits for other processes, and meanwhile hears that this was closed."""
        deadline = time.monotonic() + self._patience
        while True:
            if self._is_closed and not self._connections.is_open:
                raise StoreUnavailable(f"{self.path} was closed; open it again")
            try:
                writer = self._connections.writer()
                self.passed(self._connections.floor)
                if not writer.in_transaction:
                    writer.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or self._is_closed or time.monotonic() > deadline:
                    raise
                time.sleep(_REST_SECONDS)
            else:
                return writer

    def _answer(self, jobs: list[_Job], *, is_at_home: bool = False) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        for job in jobs:
            job.is_done = True
            if job.loop is not None:
                by_loop.setdefault(job.loop, []).append(job)
        for loop, theirs in by_loop.items():
            if is_at_home and loop is self._home:
                _resolve(theirs)
                continue
            try:
                loop.call_soon_threadsafe(_resolve, theirs)
            except RuntimeError:
                # The loop was closed while its callers waited: nobody is left to hear the answer.
                continue

    def _before_fork(self) -> None:
        """Nobody writes while the process forks."""
        self._leading.acquire()

    def _after_fork(self, *, is_child: bool) -> None:
        if is_child:
            self._begin()
        else:
            self._leading.release()


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        assert job.future is not None
        if job.future.cancelled():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.answer)


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _touch(connection: sqlite3.Connection, requests: list[None]) -> list[None]:
    connection.execute("UPDATE fence SET token = token")
    return requests
