"""Durable ends of the way: a folder of message files to receive from, and a file of lines to send to."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

from msgspec import Struct, json, msgpack

from redrive.model.errors import Unsupported
from redrive.model.message import Message
from redrive.model.operation import Delivered, Delivery
from redrive.ports.files import sync_folder
from redrive.ports.transport import Parcel

_SUFFIX = ".message"


class Spool:
    """A folder with a file for each message, first in first out. To acknowledge is to remove the file, durably.

    What was received is remembered in this process only: when it dies, everything that was not acknowledged is there.
    """

    def __init__(self, folder: Path) -> None:
        self.name = f"spool:{folder.name}"
        self._folder = folder
        self._given: dict[str, float] = {}

    async def send(self, messages: Sequence[Message]) -> list[Delivery]:
        for message in messages:
            path = self._folder / f"{time.time_ns():020d}-{uuid4().hex}{_SUFFIX}"
            unfinished = path.with_suffix(".unfinished")
            _write(unfinished, os.O_CREAT | os.O_EXCL, msgpack.encode(message))
            unfinished.rename(path)
        sync_folder(self._folder)
        return [Delivered()] * len(messages)

    async def receive(self, *, limit: int = 10, lease: timedelta = timedelta(seconds=30)) -> list[Parcel]:
        now = time.monotonic()
        free = [path for path in self._paths() if self._given.get(path.name, now) <= now][:limit]
        self._given |= {path.name: now + lease.total_seconds() for path in free}
        return [Parcel(message=_read(path), handle=path.name) for path in free]

    async def settle(self, handles: Sequence[str], *, done: bool) -> list[bool]:
        now = time.monotonic()
        answers = []
        for handle in handles:
            is_held = self._given.pop(handle, now) > now
            if is_held and done:
                (self._folder / handle).unlink()
            answers.append(is_held)
        sync_folder(self._folder)
        return answers

    async def peek(self, *, limit: int = 10) -> list[Message]:
        return [_read(path) for path in self._paths()[:limit]]

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob(f"*{_SUFFIX}"))


class Line(Struct, frozen=True, kw_only=True):
    """What a sink keeps of a message."""

    id: str | None
    redrive_id: str | None
    generation: int
    digest: str


class Sink:
    """A file with a line for each message that arrived, on the disk before it is confirmed."""

    def __init__(self, path: Path) -> None:
        self.name = f"sink:{path.name}"
        self._path = path

    async def send(self, messages: Sequence[Message]) -> list[Delivery]:
        self._cut()
        for message in messages:
            _write(self._path, os.O_CREAT | os.O_APPEND, json.encode(_line(message)) + b"\n")
        sync_folder(self._path.parent)
        return [Delivered(confirmed=True)] * len(messages)

    async def receive(self, *, limit: int = 10, lease: timedelta = timedelta(seconds=30)) -> list[Parcel]:
        self._cannot("receive")

    async def settle(self, handles: Sequence[str], *, done: bool) -> list[bool]:
        self._cannot("settle")

    async def peek(self, *, limit: int = 10) -> list[Message]:
        self._cannot("peek")

    def lines(self) -> list[Line]:
        """What arrived. A line that was cut off by a kill did not."""
        if not self._path.exists():
            return []
        return [json.decode(line, type=Line) for line in self._path.read_bytes().split(b"\n")[:-1]]

    def _cut(self) -> None:
        """Drop what a killed writer left of a line, or the next one would be spoilt too."""
        whole = self._path.read_bytes() if self._path.exists() else b""
        if not whole.endswith(b"\n") and whole:
            os.truncate(self._path, whole.rfind(b"\n") + 1)

    def _cannot(self, verb: str) -> NoReturn:
        raise Unsupported(f"a sink can be sent to, but not {verb}")


def digest(body: bytes) -> str:
    """By what a sink knows a body again."""
    return hashlib.sha256(body).hexdigest()


def _line(message: Message) -> Line:
    redrive_id = message.redrive_id
    return Line(
        id=message.id,
        redrive_id=None if redrive_id is None else str(redrive_id),
        generation=message.generation,
        digest=digest(message.body),
    )


def _read(path: Path) -> Message:
    return msgpack.decode(path.read_bytes(), type=Message)


def _write(path: Path, flags: int, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | flags, 0o600)
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
