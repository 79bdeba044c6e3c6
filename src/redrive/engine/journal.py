"""The journal: letters wait on the local disk while a remote store is down, and go there when it is back.

Each process writes a file of its own, under a lock that ends with the process. Whoever drains takes its own file and
those whose owners died, the oldest first. A file is removed when the store has confirmed all of it, and is never written
again; so a crash at any instant leaves letters that are put once more, which the store ignores.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from redrive.engine.journal_file import Found, JournalFile, journal_files
from redrive.model.errors import NotHeld, RedriveError, StoreFull, StoreNotWritable, StoreUnavailable
from redrive.model.letter import Letter
from redrive.model.stored import stored
from redrive.ports.files import meaning, sync_folder
from redrive.ports.inline import here
from redrive.ports.letters import LetterStore

P = ParamSpec("P")
T = TypeVar("T")

DRAIN_STOPPED = "drain_stopped file=%s drained=%d reason=%s"
FILE_REFUSED = "file_refused file=%s reason=%s"
FILE_VANISHED = "file_vanished file=%s letters=%d"

_log = logging.getLogger("redrive.journal")


class Pending(NamedTuple):
    """A file in which letters wait."""

    name: str
    letters: int | None
    """None: the file cannot be read by this redrive, or not by this user."""
    size: int
    """In bytes, on the disk."""
    is_owned: bool
    """A living process holds it, and will drain it."""


class _Entry:
    """One caller's letters, and what became of them."""

    __slots__ = ("failure", "is_done", "payloads")

    def __init__(self, payloads: list[bytes]) -> None:
        self.payloads = payloads
        self.is_done = False
        self.failure: OSError | None = InterruptedError(errno.EINTR, "interrupted")


class Journal:
    """Keeps letters for one store in a folder that processes may share. Safe from threads, and over a fork."""

    def __init__(self, folder: Path, store_name: str) -> None:
        self._folder = folder
        self._identity = hashlib.sha256(store_name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self._is_closed = False
        self._files: weakref.WeakSet[JournalFile] = weakref.WeakSet()
        self._begin()
        # A forked child shares the parent's locks for as long as it has the files open: it lets go of them at once, or
        # nobody could take the letters over after the parent died.
        forked = weakref.WeakMethod(self._forked)
        os.register_at_fork(after_in_child=lambda: call() if (call := forked()) is not None else None)

    def _begin(self) -> None:
        self._file: JournalFile | None = None
        self._entries: deque[_Entry] = deque()
        self._lock = threading.Lock()
        self._draining = threading.Lock()

    def _forked(self) -> None:
        for file in list(self._files):
            file.abandon()
        self._files.clear()
        self._begin()

    @property
    def waiting(self) -> int:
        """How many letters wait in this process's own file."""
        file = self._file
        return file.waiting if file is not None else 0

    async def append(self, letters: Sequence[Letter]) -> None:
        """Keep letters, in this order and after all earlier ones; they are on the disk when this returns.

        Raises `NotHeld` when they are not: then none of them is kept. Concurrent calls share one fsync. A call that is
        cancelled may have kept its letters.
        """
        if letters:
            await here(self._append, _Entry([stored(letter) for letter in letters]))

    async def drain(self, store: LetterStore, batch: int = 100) -> int:
        """Put all letters that wait, here and in files whose owners died, into the store; say how many it confirmed.

        Ends early when the store is unavailable, and leaves the rest in order. A file that cannot be drained (a newer
        redrive wrote it, the store refuses all) stays as it is and holds up no other; its error is raised at the end.
        While another drain of this journal is under way, this one does nothing.
        """
        if not self._draining.acquire(blocking=False):
            return 0
        drained = 0
        refused: RedriveError | None = None
        try:
            for path in await here(self._listed):
                try:
                    async for confirmed in self._emptied(path, store, batch):
                        drained += confirmed
                except StoreUnavailable as error:
                    _log.info(DRAIN_STOPPED, path.name, drained, error.code)
                    break
                except RedriveError as error:
                    _log.warning(FILE_REFUSED, path.name, error.code)
                    refused = refused or error
        finally:
            self._draining.release()
        if refused is not None:
            raise refused
        return drained

    def close(self) -> None:
        """Give up the own file: removed when no letter waits in it, else left for the next drain. Twice is fine."""
        with self._lock:
            self._is_closed = True
            file, self._file = self._file, None
        if file is not None:
            if file.position >= file.end:
                # An empty file that stays does no harm: the next drain removes it.
                with contextlib.suppress(OSError):
                    file.remove()
            file.close()

    def _append(self, entry: _Entry) -> None:
        self._entries.append(entry)
        with self._lock:
            if not entry.is_done:
                self._lead()
        if entry.failure is not None:
            raise NotHeld(_sentence(entry.failure, self._folder)) from entry.failure

    def _lead(self) -> None:
        """Write what all callers wait for, with one fsync. Called by whoever holds the lock."""
        entries = [self._entries.popleft() for _ in range(len(self._entries))]
        failure: OSError | None = None
        try:
            self._own().append([payload for entry in entries for payload in entry.payloads])
        except OSError as error:
            failure = error
        finally:
            for entry in entries:
                entry.is_done = True
        for entry in entries:
            entry.failure = failure

    def _own(self) -> JournalFile:
        """This process's file: the one at hand, or a new one."""
        if self._is_closed:
            raise OSError(errno.EBADF, "the journal was closed")
        if self._file is not None and self._file.is_gone:
            _log.error(FILE_VANISHED, self._file.path.name, self._file.waiting)
            self._file.close()
            self._file = None
        if self._file is None:
            if not self._folder.is_dir():
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                sync_folder(self._folder.parent)
            self._file = JournalFile.create(self._folder, self._identity)
            self._files.add(self._file)
        return self._file

    async def _emptied(self, path: Path, store: LetterStore, limit: int) -> AsyncGenerator[int, None]:
        """Move a file's letters to the store, batch by batch; yields how many each confirmed batch had."""
        file = await here(self._taken, path)
        if file is None:
            return
        try:
            while (found := await here(self._next, file, limit)) is not None:
                confirmed = await self._put(store, file, found.letters)
                await here(self._advance, file, found)
                yield confirmed
        finally:
            if file is not self._file:
                file.close()

    async def _put(self, store: LetterStore, file: JournalFile, letters: Sequence[Letter]) -> int:
        """Put letters together or, when that is refused, one by one; answer how many the store has.

        A letter that is refused while others are taken is set aside for a person, so that it does not hold up the rest
        for ever. When none is taken, it is the store that is at fault, and all stay.
        """
        if not letters:
            return 0
        try:
            await store.put(letters)
        except StoreUnavailable:
            raise
        except RedriveError as error:
            refusal = error
        else:
            return len(letters)
        refused = []
        for letter in letters:
            try:
                await store.put([letter])
            except StoreUnavailable:
                raise
            except RedriveError:
                refused.append(letter)
        if len(refused) == len(letters):
            raise refusal
        for letter in refused:
            await here(file.set_letter_aside, str(letter.id), stored(letter))
        return len(letters) - len(refused)

    def _listed(self) -> list[Path]:
        with _translating(self._folder):
            return journal_files(self._folder, self._identity)

    def _taken(self, path: Path) -> JournalFile | None:
        """The file, when it is this process's own or its owner died; None when it is not ours to drain."""
        with _translating(self._folder), self._lock:
            if self._file is not None and self._file.path == path:
                return self._file
            file = JournalFile.adopt(path)
            if file is None:
                return None
            if file.identity != self._identity:
                _log.warning(FILE_REFUSED, path.name, "another store's")
                file.close()
                return None
            self._files.add(file)
            return file

    def _next(self, file: JournalFile, limit: int) -> Found | None:
        """The next letters of a file; when there are none, the file is removed."""
        with _translating(self._folder):
            # Under the lock, so that no append slips in between the last look and the removal.
            with self._lock:
                if file.position >= file.end:
                    file.remove()
                    if self._file is file:
                        self._file = None
                    return None
            return file.read(limit)

    def _advance(self, file: JournalFile, found: Found) -> None:
        with _translating(self._folder):
            file.advance(found)


def pending(folder: Path) -> list[Pending]:
    """The journals in a folder, of all stores, oldest first. Changes nothing."""
    found = []
    for path in journal_files(folder):
        try:
            found.append(Pending(path.name, *JournalFile.look(path)))
        except FileNotFoundError:
            continue
        except OSError:
            found.append(Pending(path.name, None, path.stat().st_size, False))
    return found


def set_aside(folder: Path) -> list[Path]:
    """What could not be drained, each in a file of its own for a person to look at: no letters, or refused ones."""
    return sorted(path for kind in ("torn", "damaged", "refused") for path in folder.glob(f"*.journal.*.{kind}"))


def _sentence(error: OSError, folder: Path) -> str:
    kind = meaning(error)
    if kind is StoreFull:
        return f"no space is left for the journal in {folder}; free some, then try again"
    if kind is StoreNotWritable:
        return f"cannot write the journal in {folder}; mend its rights or choose another folder"
    return f"the journal in {folder} cannot be used: {error.strerror or error}"


@contextlib.contextmanager
def _translating(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise meaning(error)(_sentence(error, folder)) from error
