"""One file of the journal: a header, then letters in frames that can be found again behind damaged bytes.

    header    8 bytes `redrive` NUL | version u16 | marker 8 bytes | store 16 bytes hex | crc32 of these
    position  u64 | its crc32: where the first letter lies that the store has not confirmed
    frame     marker 8 bytes | length u32 | crc32 of length and letter | `stored(letter)`, repeated to the end

All numbers are big-endian. The marker is drawn for each file: behind damage the next frame is found by it, and no body
can be made to look like a frame. The name is `<store>-<nanoseconds>-<marker>.journal`, so that names sort by age and a
file with a damaged header still says whose letters it holds.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from struct import Struct as Layout
from typing import NamedTuple
from zlib import crc32

from redrive.model.errors import SchemaTooNew, StoreCorrupt
from redrive.model.letter import Letter
from redrive.model.stored import restored
from redrive.ports.files import sync_folder

VERSION = 1

LETTER_REFUSED = "letter_refused file=%s bytes=%d kept_as=%s"
TORN_TAIL_KEPT = "torn_tail_kept file=%s offset=%d bytes=%d kept_as=%s"
DAMAGE_KEPT = "damage_kept file=%s offset=%d bytes=%d kept_as=%s"
CUT_FAILED = "cut_failed file=%s offset=%d error=%s"

_MAGIC = b"redrive\0"
_HEADER = Layout(">8sH8s16sI")
_POSITION = Layout(">QI")
_FRAME = Layout(">8sII")
_START = _HEADER.size + _POSITION.size
_NAME = re.compile(r"([0-9a-f]{16})-([0-9]{20})-([0-9a-f]{16})\.journal")
_CHUNK = 1 << 20

_log = logging.getLogger("redrive.journal")


class Found(NamedTuple):
    """Letters in their order, and where the next one begins."""

    letters: list[Letter]
    until: int


class JournalFile:
    """An open file. Its lock is held until `close`, the end of the process, or until nobody refers to this object.

    Safe from threads: closing waits for what is under way, and a closed file does nothing any more.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        name = _NAME.fullmatch(path.name)
        assert name is not None
        self.path = path
        self.identity = name[1]
        self.position = 0
        self.end = 0
        self.waiting = 0
        self._marker = bytes.fromhex(name[3])
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._has_header = False

    def __del__(self) -> None:
        self.abandon()

    @classmethod
    def create(cls, folder: Path, identity: str) -> JournalFile:
        """A new, empty file that sorts behind all others of this store, locked."""
        while True:
            newest = max((int(path.name.split("-")[1]) for path in journal_files(folder, identity)), default=0)
            stamp = max(time.time_ns(), newest + 1)
            path = folder / f"{identity}-{stamp:020d}-{secrets.token_hex(8)}.journal"
            file = cls(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            try:
                fcntl.flock(file._descriptor, fcntl.LOCK_EX)
                if not file.is_gone:
                    return file
            except BaseException:
                path.unlink(missing_ok=True)
                raise
            # Between open and lock, another process took the empty file for one of a dead owner, and removed it.
            file.close()

    @classmethod
    def adopt(cls, path: Path) -> JournalFile | None:
        """The file of a dead owner, locked; None when its owner lives or it is gone."""
        try:
            file = cls(path, os.open(path, os.O_RDWR | os.O_NOFOLLOW))
        except FileNotFoundError:
            return None
        try:
            if not file._takes(fcntl.LOCK_EX) or file.is_gone:
                file.close()
                return None
            file._load()
        except BaseException:
            file.close()
            raise
        return file

    @classmethod
    def look(cls, path: Path) -> tuple[int | None, int, bool]:
        """How many letters wait in a file, its size, and whether an owner lives; None letters: a newer redrive's."""
        file = cls(path, os.open(path, os.O_RDONLY | os.O_NOFOLLOW))
        try:
            is_owned = not file._takes(fcntl.LOCK_SH)
            try:
                file._load()
                letters: int | None = sum(payload is not None for _, _, payload in file._frames(file.position))
            except SchemaTooNew:
                letters = None
            return letters, os.fstat(file._descriptor).st_size, is_owned
        finally:
            file.close()

    @property
    def is_gone(self) -> bool:
        """Was the file removed by somebody else?"""
        return os.fstat(self._descriptor).st_nlink == 0

    def append(self, payloads: Sequence[bytes]) -> None:
        """Write stored letters; they are on the disk when this returns, and none of them is there when it raises."""
        with self._lock:
            is_first = self.end == 0
            parts = [self._header()] if is_first else []
            for payload in payloads:
                parts += (_FRAME.pack(self._marker, len(payload), _checksum(payload)), payload)
            data = b"".join(parts)
            try:
                _write(self._descriptor, data, self.end)
                os.fsync(self._descriptor)
                if is_first:
                    sync_folder(self.path.parent)
            except BaseException:
                self._cut()
                raise
            if is_first:
                self.position, self._has_header = _START, True
            self.end += len(data)
            self.waiting += len(payloads)

    def read(self, limit: int) -> Found | None:
        """Up to `limit` of the letters that wait; None when there are no more. Bytes that are none are set aside."""
        with self._lock:
            if self._descriptor < 0 or self.position >= self.end:
                return None
            letters: list[Letter] = []
            until = self.position
            for at, after, payload in self._frames(self.position):
                try:
                    if payload is None:
                        self._set_aside(at, after)
                    else:
                        letters.append(restored(payload))
                except SchemaTooNew:
                    if until == self.position:
                        raise
                    break
                except StoreCorrupt:
                    self._set_aside(at, after)
                until = after
                if len(letters) >= limit:
                    break
            return Found(letters, until)

    def advance(self, found: Found) -> None:
        """The store confirmed these letters: never read them again.

        The position outlives the process at once, a power cut only when the system wrote it: then letters that the store
        knows are put again.
        """
        with self._lock:
            # A drain that was cancelled may still be on its way here, behind a later one.
            if self._descriptor < 0 or found.until <= self.position:
                return
            if self._has_header:
                number = found.until.to_bytes(8, "big")
                _write(self._descriptor, number + crc32(number).to_bytes(4, "big"), _HEADER.size)
            self.position = found.until
            self.waiting = max(0, self.waiting - len(found.letters))

    def remove(self) -> None:
        """Remove the file and let go of it."""
        with self._lock:
            if self._descriptor < 0:
                return
            self.path.unlink(missing_ok=True)
            sync_folder(self.path.parent)
            self.abandon()

    def close(self) -> None:
        """Let go of the file and its lock; what was confirmed stays."""
        with self._lock:
            self.abandon()

    def abandon(self) -> None:
        """Close without waiting for anybody: for a forked child, where the lock's holder may not exist."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _takes(self, kind: int) -> bool:
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _header(self) -> bytes:
        head = _HEADER.pack(_MAGIC, VERSION, self._marker, self.identity.encode(), 0)[:-4]
        number = _START.to_bytes(8, "big")
        return head + crc32(head).to_bytes(4, "big") + number + crc32(number).to_bytes(4, "big")

    def _load(self) -> None:
        """Read the header. When it is damaged, the name tells what it said, and reading begins at the first byte."""
        self.end = os.fstat(self._descriptor).st_size
        head = os.pread(self._descriptor, _START, 0)
        if len(head) < _START:
            return
        magic, version, marker, identity, checksum = _HEADER.unpack_from(head)
        if magic == _MAGIC and version > VERSION:
            raise SchemaTooNew(
                f"the journal {self.path.name} has version {version}, this redrive knows {VERSION}; upgrade redrive"
            )
        if magic != _MAGIC or checksum != crc32(head[: _HEADER.size - 4]):
            return
        self._marker, self.identity, self._has_header = marker, identity.decode("ascii", "replace"), True
        position, checksum = _POSITION.unpack_from(head, _HEADER.size)
        is_sound = checksum == crc32(head[_HEADER.size : _HEADER.size + 8]) and _START <= position <= self.end
        self.position = position if is_sound else _START

    def _frames(self, at: int) -> Iterator[tuple[int, int, bytes | None]]:
        """Begin, end and content of each frame; None for content where bytes are no frame."""
        while at < self.end:
            payload = self._frame(at)
            after = self._next_frame(at + 1) if payload is None else at + _FRAME.size + len(payload)
            yield at, after, payload
            at = after

    def _frame(self, at: int) -> bytes | None:
        head = os.pread(self._descriptor, _FRAME.size, at)
        if len(head) < _FRAME.size:
            return None
        marker, length, checksum = _FRAME.unpack(head)
        if marker != self._marker or at + _FRAME.size + length > self.end:
            return None
        payload = os.pread(self._descriptor, length, at + _FRAME.size)
        return payload if len(payload) == length and _checksum(payload) == checksum else None

    def _next_frame(self, at: int) -> int:
        while at < self.end:
            chunk = os.pread(self._descriptor, min(_CHUNK, self.end - at), at)
            here = chunk.find(self._marker)
            if here >= 0 and self._frame(at + here) is not None:
                return at + here
            # A marker may lie across two chunks.
            at += here + 1 if here >= 0 else max(1, len(chunk) - len(self._marker) + 1)
        return self.end

    def _set_aside(self, begin: int, end: int) -> None:
        """Keep bytes that are no letter in a file of their own; doing it again writes the same file."""
        is_tail = end == self.end
        kept = self.path.with_name(f"{self.path.name}.{begin}.{'torn' if is_tail else 'damaged'}")
        _keep(kept, (os.pread(self._descriptor, min(_CHUNK, end - at), at) for at in range(begin, end, _CHUNK)))
        _log.warning(TORN_TAIL_KEPT if is_tail else DAMAGE_KEPT, self.path.name, begin, end - begin, kept.name)

    def set_letter_aside(self, name: str, data: bytes) -> None:
        """Keep a letter that its store refuses in a file of its own; doing it again writes the same file."""
        kept = self.path.with_name(f"{self.path.name}.{name}.refused")
        _keep(kept, [data])
        _log.warning(LETTER_REFUSED, self.path.name, len(data), kept.name)

    def _cut(self) -> None:
        """Drop what was written behind the last good end, so that it is never taken for a letter."""
        try:
            os.ftruncate(self._descriptor, self.end)
            os.fsync(self._descriptor)
        except OSError as error:
            _log.error(CUT_FAILED, self.path.name, self.end, error.strerror)


def _keep(path: Path, chunks: Iterable[bytes]) -> None:
    """Write a file durably."""
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        at = 0
        for chunk in chunks:
            _write(target, chunk, at)
            at += len(chunk)
        os.fsync(target)
    finally:
        os.close(target)
    sync_folder(path.parent)


def journal_files(folder: Path, identity: str = "") -> list[Path]:
    """The journals in a folder, of one store or of all, oldest first."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    found = [name for name in names if name.startswith(identity) and _NAME.fullmatch(name)]
    return [folder / name for name in sorted(found, key=lambda name: name.split("-")[1:])]


def _checksum(payload: bytes) -> int:
    return crc32(payload, crc32(len(payload).to_bytes(4, "big")))


def _write(descriptor: int, data: bytes, at: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, at)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest, at = rest[written:], at + written
