"""A message: what a consumer received, and what goes back to it."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from redrive.model.letter import Headers, Letter, Origin

REDRIVE_ID = "redrive-id"
REDRIVE_GENERATION = "redrive-generation"
REDRIVE_SOURCE_ID = "redrive-source-id"
"""With it, a consumer can tell that the mark belongs to a letter of its own source: the id is a digest of all three names."""

_MARKS = frozenset({REDRIVE_ID, REDRIVE_GENERATION, REDRIVE_SOURCE_ID})

_DIGITS = 9
"""A longer generation is no number of ours, and would not fit everywhere."""


class Message(Struct, frozen=True, kw_only=True, gc=False):
    """Content and where it came from. `id` is the source's own; without one, each failure is a letter of its own."""

    body: bytes
    content_type: str = "application/octet-stream"
    id: str | None = None
    headers: Headers = ()
    key: bytes | None = None
    kind: str | None = None
    reference: str | None = None
    origin: Origin = Origin()
    delivery_count: int | None = None
    """Deliveries so far, this one included; None: the source does not count."""
    received_at: datetime | None = None
    """The first delivery, when the source knows it."""

    @property
    def redrive_id(self) -> UUID | None:
        """The letter that this message was before redrive sent it back."""
        raw = self._header(REDRIVE_ID)
        try:
            return UUID(raw) if raw else None
        except ValueError:
            return None

    @property
    def redrive_source_id(self) -> str | None:
        """The id that the message had when it became a letter."""
        return next((value.decode("utf-8", "replace") for name, value in self.headers if name.lower() == REDRIVE_SOURCE_ID), None)

    @property
    def generation(self) -> int:
        """The letter's generation when it was sent; 0: redrive did not send this message."""
        raw = self._header(REDRIVE_GENERATION)
        is_number = raw is not None and len(raw) <= _DIGITS and raw.isascii() and raw.isdecimal()
        return int(raw) if raw and is_number and self.redrive_id else 0

    def _header(self, name: str) -> str | None:
        for known, value in self.headers:
            if known.lower() == name:
                return value.decode("ascii", "replace")
        return None


def outgoing(letter: Letter, body: bytes) -> Message:
    """The message to send for a letter: its content, marked with the letter's id and generation."""
    marks = (
        (REDRIVE_ID, str(letter.id).encode()),
        (REDRIVE_GENERATION, str(letter.generation).encode()),
        (REDRIVE_SOURCE_ID, letter.source_id.encode()),
    )
    kept = tuple([pair for pair in letter.headers if pair[0].lower() not in _MARKS]) if letter.headers else ()
    return Message(
        body=body,
        content_type=letter.content_type,
        id=letter.source_id,
        headers=kept + marks,
        key=letter.key,
        kind=letter.kind,
        reference=letter.reference,
        origin=letter.origin,
        received_at=letter.first_received_at,
    )
