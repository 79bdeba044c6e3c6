"""Large bodies as files in a folder, one a body. A file is whole or not there: it is written aside, then renamed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ParamSpec, TypeVar

from redrive.model.errors import StoreCorrupt, StoreError, StoreFull, StoreNotWritable
from redrive.model.letter import BodyRef
from redrive.ports.files import meaning, sync_folder
from redrive.ports.inline import here

P = ParamSpec("P")
T = TypeVar("T")

_BODY = re.compile(r"[A-Za-z0-9_-]{0,80}\.[0-9a-f]{32}\.body")
_TEMPORARY = re.compile(r"\.[A-Za-z0-9_-]{0,80}\.[0-9a-f]{32}\.body\.[0-9a-f]{16}\.tmp")


class FileBodies:
    """Bodies in a folder of their own, made on first use. A reference's name is the name of the body's file.

    That name is made of the given name and the body's digest: two bodies under one name never overwrite each other.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def keep(self, name: str, body: bytes) -> BodyRef:
        return await here(self._keep, name, body)

    async def load(self, ref: BodyRef) -> bytes:
        return await here(self._load, ref)

    async def drop(self, refs: list[BodyRef]) -> None:
        await here(self._drop, [ref.name for ref in refs])

    async def orphans(self, known: Collection[str], older_than: timedelta, *, now: datetime | None = None) -> list[str]:
        """Names of files older than `older_than` that no reference in `known` names: bodies, and unfinished writes.

        `known` must name the bodies of all letters, those included that wait in a journal and those kept as originals.
        A body is written before its letter is held, so `older_than` must be longer than a letter takes to be held.
        """
        return await here(self._orphans, frozenset(known), (now or datetime.now(UTC)) - older_than)

    def _keep(self, name: str, body: bytes) -> BodyRef:
        digest = hashlib.sha256(body)
        ref = BodyRef(name=_file_name(name, digest.digest()), size=len(body), sha256=digest.hexdigest())
        path = self._folder / ref.name
        with self._translating():
            if not self._folder.is_dir():
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                sync_folder(self._folder.parent)
            if not _holds(path, ref):
                self._write(path, body)
            # Also when the file was there: whoever wrote it may have died before its name was durable.
            sync_folder(self._folder)
        return ref

    def _write(self, path: Path, body: bytes) -> None:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        try:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0) as file:
                rest = memoryview(body)
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def _load(self, ref: BodyRef) -> bytes:
        # References come from stored letters: one that was tampered with must not name a file outside the folder.
        if not _BODY.fullmatch(ref.name):
            raise StoreCorrupt(f"{ref.name!r} is not the name of a body; its letter is damaged")
        with self._translating():
            try:
                body = (self._folder / ref.name).read_bytes()
            except FileNotFoundError as error:
                raise StoreCorrupt(f"the body {ref.name} is missing from {self._folder}; restore it from a backup") from error
        if len(body) != ref.size or hashlib.sha256(body).hexdigest() != ref.sha256:
            raise StoreCorrupt(f"the body {ref.name} in {self._folder} is not what was kept; restore it from a backup")
        return body

    def _drop(self, names: list[str]) -> None:
        with self._translating():
            if not self._folder.is_dir():
                return
            for name in names:
                if _BODY.fullmatch(name) or _TEMPORARY.fullmatch(name):
                    (self._folder / name).unlink(missing_ok=True)
            sync_folder(self._folder)

    def _orphans(self, known: frozenset[str], before: datetime) -> list[str]:
        found = []
        with self._translating():
            for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
                is_ours = _TEMPORARY.fullmatch(path.name) or (_BODY.fullmatch(path.name) and path.name not in known)
                # A file may be dropped, or renamed into place, while we look.
                with contextlib.suppress(FileNotFoundError):
                    if is_ours and path.lstat().st_mtime < before.timestamp():
                        found.append(path.name)
        return found

    @contextlib.contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            kind = meaning(error)
            if kind is StoreFull:
                raise StoreFull(f"no space is left for bodies in {self._folder}; free some, then try again") from error
            if kind is StoreNotWritable:
                raise StoreNotWritable(
                    f"cannot use {self._folder} for bodies; mend its rights or choose another folder"
                ) from error
            raise StoreError(f"reading or writing bodies in {self._folder} failed: {error.strerror}") from error


def _file_name(name: str, digest: bytes) -> str:
    """A legible start that is safe in every file system, and a digest of name and body that makes it unique."""
    legible = re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:80]
    unique = hashlib.sha256(digest + name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{legible}.{unique}.body"


def _holds(path: Path, ref: BodyRef) -> bool:
    try:
        return path.stat().st_size == ref.size and hashlib.sha256(path.read_bytes()).hexdigest() == ref.sha256
    except FileNotFoundError:
        return False
