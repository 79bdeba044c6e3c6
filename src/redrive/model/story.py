"""What is known of an item besides its content: its headers, and once it died, where and of what."""

from __future__ import annotations

from msgspec import Struct, msgpack

from redrive.model.letter import Failure, Headers, Origin


class Story(Struct, frozen=True, kw_only=True, omit_defaults=True):
    headers: Headers = ()
    failure: Failure | None = None
    """The last one that a consumer told."""
    source: str = ""
    """Where it failed, when that was no queue."""
    queue: str = ""
    """The queue it died in."""
    partition: int = 0
    attempts: int = 0
    """How often it was leased there."""
    created_us: int = 0
    died_us: int = 0
    why: str = ""
    """Why it was given up on there: see `redrive.model.item.Why`."""
    origin: Origin | None = None
    """Where it came from, as far as that is known: who waits for a reply, say."""


NOTHING = Story()
_decoder = msgpack.Decoder(Story)


def told(story: Story) -> bytes:
    """Its stored form; nothing for nothing."""
    return b"" if story == NOTHING else msgpack.encode(story)


def heard(stored: bytes) -> Story:
    return _decoder.decode(stored) if stored else NOTHING


_failures = msgpack.Decoder(Failure)


def failure_told(failure: Failure | None) -> bytes:
    """Its stored form; nothing for nothing."""
    return b"" if failure is None else msgpack.encode(failure)


def failure_heard(stored: bytes) -> Failure | None:
    return _failures.decode(stored) if stored else None
