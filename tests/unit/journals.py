"""Journals to test with: numbered letters, a store that can be down, and the files that owners leave behind."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid5

from redrive.backends.memory.letters import MemoryLetters
from redrive.engine.journal import Journal
from redrive.model.arrival import Held
from redrive.model.errors import AnswerLost, StoreUnavailable
from redrive.model.letter import Attempt, Failure, Letter, letter_id
from redrive.ports.inline import drive

STORE = "postgresql://user:***@host/letters"
AT = datetime(2024, 5, 1, tzinfo=UTC)
HEADER = 8 + 2 + 8 + 16 + 4 + 8 + 4
FRAME = 8 + 4 + 4


def letter(number: int, body: bytes = b"", source_id: str | None = None) -> Letter:
    source_id = source_id or str(number)
    return Letter(
        id=letter_id("default", "orders", source_id),
        source="orders",
        source_id=source_id,
        failure=Failure(type="builtins.ValueError", message=f"failure {number}"),
        first_received_at=AT,
        dead_lettered_at=AT,
        updated_at=AT,
        body=body or b"secret %d" % number,
        history=(Attempt(at=AT, occurrence=uuid5(UUID(int=0), str(number)), message=str(number)),),
    )


def letters(*numbers: int) -> list[Letter]:
    return [letter(number) for number in numbers]


class Store(MemoryLetters):
    """A store that remembers what was put, can be down, and can lose its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[list[int]] = []
        self.puts_left: int | None = None
        self.loses_answers = False
        self.refuses: type[Exception] | None = None
        self.meanwhile: Callable[[], None] | None = None

    async def put(self, letters: Sequence[Letter], *, now: datetime | None = None) -> list[Held]:
        if self.meanwhile is not None:
            self.meanwhile()
        if self.puts_left == 0 and not self.loses_answers:
            raise StoreUnavailable("down")
        if self.refuses is not None:
            raise self.refuses("refused")
        held = await super().put(letters, now=now)
        self.puts.append([number_of(letter) for letter in letters])
        if self.puts_left == 0:
            raise AnswerLost("the answer was lost")
        if self.puts_left is not None:
            self.puts_left -= 1
        return held

    @property
    def received(self) -> list[int]:
        return [number for batch in self.puts for number in batch]

    @property
    def first_seen(self) -> list[int]:
        return list(dict.fromkeys(self.received))

    @property
    def occurrences(self) -> list[UUID]:
        """Of every letter, as the store counts them."""
        held = [one for one in drive(self.get([letter_id("default", "orders", str(n)) for n in range(1000)])) if one]
        return [attempt.occurrence for one in held for attempt in one.history]


def number_of(letter: Letter) -> int:
    return int(letter.history[0].message)


@contextmanager
def opened(folder: Path, store_name: str = STORE) -> Iterator[Journal]:
    journal = Journal(folder, store_name)
    try:
        yield journal
    finally:
        journal.close()


def drained(folder: Path, store: Store | None = None, batch: int = 100) -> list[int]:
    """What another process would find."""
    store = store or Store()
    with opened(folder) as journal:
        drive(journal.drain(store, batch))
    return store.received


def only_file(folder: Path) -> Path:
    (path,) = folder.glob("*.journal")
    return path


def left_behind(folder: Path, *numbers: int) -> Path:
    """The file of an owner that is gone, with these letters."""
    with opened(folder) as journal:
        drive(journal.append(letters(*numbers)))
    return only_file(folder)


def spans(path: Path) -> list[tuple[int, int]]:
    """Where each frame of an undamaged file begins and ends."""
    data, at, found = path.read_bytes(), HEADER, []
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at + 8)
        found.append((at, at + FRAME + length))
        at += FRAME + length
    return found
