"""The letter: a message that was given up on, with its failure and its history."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from redrive.model.category import Category
from redrive.model.ids import uuid_of
from redrive.model.status import Status

Headers = tuple[tuple[str, bytes], ...]
"""Names may repeat and values are raw, as brokers have them; `headers()` makes them from friendlier shapes."""

HISTORY_LIMIT = 100
"""Attempts kept a letter: the first, and the latest of the rest; `history_dropped` counts what was let go."""

_OCCURRENCES_LIMIT = 1000
"""Occurrences that are known again after their attempts were let go."""


class Origin(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where the message came from, as far as its source told."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    node: str | None = None
    reply_to: str | None = None
    request_id: str | None = None
    trace: str | None = None
    """W3C `traceparent` of the span in which it failed."""


class Cause(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One link in the chain behind a failure."""

    type: str
    message: str


class Failure(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What went wrong."""

    type: str
    """Fully qualified: `builtins.ValueError`, `httpx.ConnectTimeout`."""
    message: str = ""
    category: Category = Category.PERMANENT
    traceback: str = ""
    causes: tuple[Cause, ...] = ()
    fingerprint: str = ""
    fingerprint_version: int = 0
    fingerprint_reason: str = ""
    """Why it belongs to its group: `in shop.orders:handle`, `by its message: …`, `custom: …`."""


class Attempt(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One try that failed."""

    at: datetime
    occurrence: UUID
    """Minted once a capture, kept through journal and retries: the same occurrence is never counted twice."""
    error: str = ""
    message: str = ""
    took: timedelta | None = None
    generation: int = 1
    outcome_unknown: bool = False
    """The answer was lost: it may have worked."""


class RetryPlan(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """When redrive itself tries again. Without a plan (`never`), a letter waits for a person."""

    policy: str = "never"
    retry_count: int = 0
    max_retries: int | None = None
    """None: manual retries may go on for ever and exhaust nothing."""
    next_retry_at: datetime | None = None
    waits_for: str = ""
    """What stood in the way when its turn came last: a letter it depends on, a breaker that is open."""


class RedriveMark(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How often the letter was sent back, when last, and by which operation."""

    count: int = 0
    last_at: datetime | None = None
    operation: UUID | None = None


class BodyRef(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A body too large for the store: where it lies instead."""

    name: str
    size: int
    sha256: str


class Original(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Content as it came, kept for ever once a letter was amended."""

    body: bytes = b""
    body_ref: BodyRef | None = None
    content_type: str = ""
    headers: Headers = ()
    target: str = ""


class Letter(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One frozen value, the same on every engine and surface. A change makes a copy."""

    id: UUID
    source: str
    source_id: str
    failure: Failure
    first_received_at: datetime
    dead_lettered_at: datetime
    updated_at: datetime
    namespace: str = "default"
    generation: int = 1
    """How often this letter was opened."""
    body: bytes = b""
    body_ref: BodyRef | None = None
    content_type: str = "application/octet-stream"
    headers: Headers = ()
    key: bytes | None = None
    target: str = ""
    """Where it goes back to instead of its source; empty: to its source."""
    kind: str | None = None
    reference: str | None = None
    origin: Origin = Origin()
    history: tuple[Attempt, ...] = ()
    history_dropped: int = 0
    forgotten: bytes = b""
    """Occurrence ids of attempts that were let go, 16 bytes each: so that they are still known as duplicates."""
    expires_at: datetime | None = None
    retry: RetryPlan = RetryPlan()
    status: Status = Status.PENDING
    priority: int = 0
    """Higher goes first."""
    depends_on: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    redrive: RedriveMark = RedriveMark()
    original: Original | None = None
    redacted: tuple[str, ...] = ()
    """Parts of the content that were redacted at capture: `body`, `key`, `headers.authorization` … A mark stands in each."""

    @property
    def attempts(self) -> int:
        """How many tries failed, those no longer in the history included."""
        return len(self.history) + self.history_dropped

    @property
    def body_size(self) -> int:
        return self.body_ref.size if self.body_ref else len(self.body)

    def header(self, name: str) -> str | None:
        """The first header of that name as text, without regard to case."""
        wanted = name.lower()
        for known, value in self.headers:
            if known.lower() == wanted:
                return value.decode("utf-8", "replace")
        return None


def letter_id(namespace: str, source: str, source_id: str) -> UUID:
    """The id that this message's letter has on every engine: a UUIDv8 digest of the three names."""
    digest = _digest_of(namespace, source).copy()
    digest.update(_framed(source_id))
    number = int.from_bytes(digest.digest(), "big")
    number = number & ~(0xF << 76) | (0x8 << 76)
    number = number & ~(0x3 << 62) | (0x2 << 62)
    return uuid_of(number)


@lru_cache(maxsize=1024)
def _digest_of(namespace: str, source: str) -> hashlib.blake2b:
    return hashlib.blake2b(_framed(namespace) + _framed(source), digest_size=16)


def _framed(name: str) -> bytes:
    """A name with its length before it, so that no two lists of names look alike."""
    raw = name.encode("utf-8", "surrogatepass")
    return len(raw).to_bytes(8, "big") + raw


def headers(given: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> Headers:
    """Headers from a mapping or pairs; bytes stay as they are, all else becomes text in UTF-8."""
    pairs = given.items() if isinstance(given, Mapping) else given
    return tuple((str(name), _header(value)) for name, value in pairs)


def _header(value: Any) -> bytes:
    if value is None:
        return b""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return str(value).encode("utf-8", "surrogatepass")


def original_of(letter: Letter) -> Original:
    """The letter's content as it is now, to be kept."""
    return Original(
        body=letter.body,
        body_ref=letter.body_ref,
        content_type=letter.content_type,
        headers=letter.headers,
        target=letter.target,
    )


def with_attempts(letter: Letter, attempts: Iterable[Attempt]) -> Letter:
    """The letter with more attempts at the end of its history, which stays within its limit."""
    history = tuple(dict.fromkeys((*letter.history, *attempts)))
    excess = len(history) - HISTORY_LIMIT
    if excess <= 0:
        return letter if len(history) == len(letter.history) else replace(letter, history=history)
    kept, gone = (history[0], *history[1 + excess :]), history[1 : 1 + excess]
    forgotten = letter.forgotten + b"".join(dict.fromkeys(attempt.occurrence.bytes for attempt in gone))
    return replace(
        letter,
        history=kept,
        history_dropped=letter.history_dropped + excess,
        forgotten=forgotten[-16 * _OCCURRENCES_LIMIT :],
    )


def occurrences(letter: Letter) -> set[bytes]:
    """Every occurrence this letter knows."""
    known = {attempt.occurrence.bytes for attempt in letter.history}
    known.update(letter.forgotten[start : start + 16] for start in range(0, len(letter.forgotten), 16))
    return known
