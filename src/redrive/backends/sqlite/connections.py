"""The connections to one SQLite file: a writer and idle readers, opened when they are needed.

SQLite's locks belong to a process and are known to it in memory, so no connection may live through a fork: the child would
believe in locks it does not have, and the parent's last close would take the log from under it. All connections are closed
before a fork, and both sides open their own.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Protocol

from redrive.backends.sqlite import schema
from redrive.backends.sqlite.errors import translating
from redrive.backends.sqlite.query import AT, at
from redrive.model.errors import StoreUnavailable

_STATEMENTS = 256
PAGE_BYTES = 2048
"""Half of what SQLite takes else. Ids and groups are random, so that each letter dirties pages of their indexes all over the file, and each of
these is written to the log as a whole: among a million letters a fifth more are put in the same time, and what is read is read as fast.
"""
LOG_BYTES = 4 * 1024 * 1024
"""How long the log grows before its pages are copied into the file."""
_KEPT_LOG_BYTES = 4 * LOG_BYTES
"""What its file is cut to when it begins anew."""
_WRITER_CACHE_KB = 32_000
"""Of the connection that writes; a small store fills little of it."""
_LOG_PAGES = 64 * 1024 * 1024 // PAGE_BYTES
"""When it grows so long, copying does not keep up, and whoever commits next has to do it."""
_INCREMENTAL = 2
"""A file that gives its pages back a little at a time, as SQLite numbers its ways."""
_TURN_SECONDS = 0.25
"""How long SQLite itself waits for another process where we read or open. Who writes asks again soon: SQLite's own rests grow long."""


class AfterFork(Protocol):
    def __call__(self, *, is_child: bool) -> None: ...


class Connections:
    """Hands out the writer to whoever leads, and a reader to each who reads."""

    def __init__(self, path: str, *, before_fork: Callable[[], None], after_fork: AfterFork) -> None:
        self.path = path
        self.floor = 0
        """The last instant that the file is known to have passed."""
        self._writer: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._before_fork = before_fork
        self._after_fork = after_fork
        self._begin()
        _follow_forks(self)

    def _begin(self) -> None:
        self._opening = threading.RLock()
        self._quiet = threading.Condition()
        self._is_forking = False
        self._are_held_off = False
        self._reading = 0
        self._idle: list[sqlite3.Connection] = []

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    @property
    def was_taken_away(self) -> bool:
        """Was the file removed or replaced since it was opened?"""
        return self._writer is not None and self._file != _identity(self.path)

    def writer(self) -> sqlite3.Connection:
        """The connection to write with. A file that was removed or replaced since it was opened is opened anew."""
        if self._writer is not None and self._file == _identity(self.path):
            return self._writer
        with self._opening:
            if self.was_taken_away:
                self.close()
            if self._writer is None:
                opened = self._opened()
                # In this order: who looks meanwhile, from another thread, must not take the file for one that was taken away.
                self._file = _identity(self.path)
                self._writer = opened
            return self._writer

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection to read with."""
        if self._writer is None and self._is_not_there():
            # Looking must not make a store where there is none: there are just no letters.
            with closing(schema.empty()) as nothing:
                yield nothing
            return
        if self.was_taken_away:
            raise StoreUnavailable(f"{self.path} was removed or replaced while it was open; the next letter opens it anew")
        self._ensure_writer()
        with self._reader() as connection:
            yield connection

    @contextmanager
    def reading_alone(self, patience_seconds: float) -> Iterator[sqlite3.Connection | None]:
        """A connection to read with, while nobody else in this process begins to; None: those who were reading did not end in time."""
        with self._quiet:
            self._are_held_off = True
            is_quiet = self._quiet.wait_for(lambda: not self._reading, patience_seconds)
        try:
            if not is_quiet or self._writer is None or self.was_taken_away:
                yield None
            else:
                with self._reader(is_alone=True) as connection:
                    yield connection
        finally:
            with self._quiet:
                self._are_held_off = False
                self._quiet.notify_all()

    @contextmanager
    def _reader(self, *, is_alone: bool = False) -> Iterator[sqlite3.Connection]:
        with self._quiet:
            while self._is_forking or (self._are_held_off and not is_alone):
                self._quiet.wait()
            self._reading += 1
            file, connection = self._file, self._idle.pop() if self._idle else None
        try:
            if connection is None:
                connection = self._connect()
            yield connection
        finally:
            with self._quiet:
                self._reading -= 1
                if connection is not None:
                    if self._writer is not None and file == self._file:
                        self._idle.append(connection)
                    else:
                        connection.close()
                self._quiet.notify_all()

    def _is_not_there(self) -> bool:
        """Is there no file yet, in a folder that could hold one?"""
        try:
            os.stat(self.path)  # noqa: PTH116 - see `_identity`
        except FileNotFoundError:
            return os.access(os.path.dirname(self.path), os.W_OK | os.X_OK)  # noqa: PTH120 - see `_identity`
        except OSError:
            return False
        return False

    def _ensure_writer(self) -> None:
        """Check and upgrade the file, if nobody has yet."""
        if self._writer is None:
            with translating(self.path):
                self.writer()

    def close(self) -> None:
        """Let go of the file; what is being read is let go of when it has been read."""
        with self._opening, self._quiet:
            for connection in (*self._idle, *([self._writer] if self._writer else ())):
                connection.close()
            self._idle.clear()
            self._writer = None
            self._file = None

    def _opened(self) -> sqlite3.Connection:
        with suppress(OSError):
            # Letters hold other people's data: the file is its owner's alone. What is wrong with the path, SQLite tells. One that is there is not
            # to be opened here: to close it would end all locks that this process has on it, and another one would take the log away.
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        writer = self._connect()
        try:
            # Whose file it is comes first: another program's is not to be touched, not even by the log's mode.
            schema.ensure_ours(writer, self.path)
            # Before the first table is made, or never. What is purged gives its space back a little at a time.
            writer.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            if writer.execute("PRAGMA auto_vacuum").fetchone() != (_INCREMENTAL,):
                # It would write to the file each time, for which others who write are waited for.
                writer.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
            writer.execute("PRAGMA journal_mode = WAL")
            # Ids are random: with a million letters, each that is looked up lies on another page of their index.
            writer.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KB}")
            schema.upgrade(writer)
            writer.execute("PRAGMA busy_timeout = 0")
            (self.floor,) = writer.execute("SELECT token FROM fence").fetchone()
        except BaseException:
            writer.close()
            raise
        return writer

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=_TURN_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=_STATEMENTS
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {_KEPT_LOG_BYTES}")
            # Some systems' SQLite writes zeros over every page that is freed: a third of what a purge would write.
            connection.execute("PRAGMA secure_delete = FAST")
            # A statement over many rows keeps a copy of each page it touches until it ends: in a temporary file unless told.
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.create_function(AT, 2, at, deterministic=True)
        except BaseException:
            connection.close()
            raise
        return connection

    def before_fork(self) -> None:
        """Called in the forking process: end what is under way, and close."""
        with self._quiet:
            self._is_forking = True
            while self._reading:
                self._quiet.wait()
        # Behind those who read: who copies the log reads it, and then waits for the lead.
        self._before_fork()
        self._opening.acquire()
        self.close()

    def after_fork(self, *, is_child: bool) -> None:
        if is_child:
            self._begin()
        else:
            with self._quiet:
                self._is_forking = False
                self._quiet.notify_all()
            self._opening.release()
        self._after_fork(is_child=is_child)


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Several statements that see the same letters."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def _identity(path: str) -> tuple[int, int] | None:
    """Which file lies at the path."""
    try:
        found = os.stat(path)  # noqa: PTH116 - asked before every transaction: a Path would cost more than the answer
    except OSError:
        return None
    return found.st_dev, found.st_ino


class _Forks:
    """Everything in this process that must be told of a fork."""

    def __init__(self) -> None:
        self.all: weakref.WeakSet[Connections] = weakref.WeakSet()
        self._told: list[Connections] = []
        self._one_at_a_time = threading.Lock()

    def before(self) -> None:
        self._one_at_a_time.acquire()
        for connections in list(self.all):
            connections.before_fork()
            self._told.append(connections)

    def after(self, *, is_child: bool) -> None:
        try:
            while self._told:
                self._told.pop().after_fork(is_child=is_child)
        finally:
            self._one_at_a_time.release()


_forks = _Forks()
_hooked: list[bool] = []


def _follow_forks(connections: Connections) -> None:
    # Python has no way to take a hook back, so there is one for all, and it holds on to none of them.
    if not _hooked and hasattr(os, "register_at_fork"):
        _hooked.append(True)
        os.register_at_fork(
            before=_forks.before,
            after_in_parent=lambda: _forks.after(is_child=False),
            after_in_child=lambda: _forks.after(is_child=True),
        )
    _forks.all.add(connections)
