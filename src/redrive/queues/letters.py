"""Items as messages and as letters: what waits in a queue, in the words of the rest of redrive."""

from __future__ import annotations

from datetime import datetime
from hashlib import blake2b
from uuid import UUID

from msgspec.structs import replace

from redrive.engine.capture import Labels, Try, captured
from redrive.engine.describe import told as failure_told
from redrive.model.instant import instant
from redrive.model.item import Fresh, Item, Why
from redrive.model.letter import Failure, Letter, Origin
from redrive.model.message import Message
from redrive.model.story import Story, heard, told

SCHEME = "queue:"
_PLAIN = "application/octet-stream"
_REASONS = {
    Why.ATTEMPTS: ("redrive.queues.MaxAttempts", "it was leased {attempts} times and never completed"),
    Why.EXPIRED: ("redrive.queues.Expired", "it waited longer than its queue lets items wait"),
    Why.TOLD: ("redrive.queues.GivenUp", "its consumer gave it up"),
}


def message_of(item: Item, queue: str, partition: int) -> Message:
    """A stored or leased item as a message."""
    story = heard(item.story)
    return Message(
        body=item.payload,
        content_type=item.encoding or _PLAIN,
        id=item.message_id or item.id,
        headers=story.headers,
        key=item.key.encode() if item.key else None,
        kind=item.kind or None,
        reference=item.reference or None,
        origin=_origin(story, queue, partition),
        delivery_count=(story.attempts or item.attempts) or None,
        received_at=instant(story.created_us or item.created_us) if story.created_us or item.created_us else None,
    )


def fresh_of(message: Message) -> Fresh:
    """A message as an item. One that redrive sends back is put once, however often it is sent."""
    sent = f"{message.redrive_id}.{message.generation}" if message.redrive_id and message.generation else ""
    return Fresh(
        payload=message.body,
        reference=message.reference or "",
        encoding="" if message.content_type == _PLAIN else message.content_type,
        kind=message.kind or "",
        key=(message.key or b"").decode("utf-8", "replace"),
        story=told(Story(headers=message.headers, origin=_carried(message.origin))),
        message_id=message.id or "",
        source_id=sent,
    )


def _origin(story: Story, queue: str, partition: int) -> Origin:
    """What is known of where it came from first; else the queue."""
    known = story.origin or Origin()
    return known if known.topic else replace(known, topic=queue, partition=partition)


def _carried(origin: Origin) -> Origin | None:
    """What of a message's origin still holds where it goes."""
    carried = Origin(reply_to=origin.reply_to, request_id=origin.request_id, trace=origin.trace)
    return None if carried == Origin() else carried


def letter_of(item: Item, queue: str, partition: int, namespace: str, now: datetime, home: str | None = None) -> Letter:
    """The letter that an item of a dead queue is. Made twice it is the same, so that it is counted once.

    `home`: the source of the letter that it was before redrive sent it.
    """
    story = heard(item.story)
    source = home or story.source or f"{SCHEME}{story.queue or queue}"
    died = instant(story.died_us) if story.died_us else now
    occurrence = UUID(bytes=blake2b(f"{queue}\0{item.source_id or item.message_id or item.id}".encode(), digest_size=16).digest())
    message = message_of(item, story.queue or queue, story.partition if story.queue else partition)
    tried = Try(at=died, failure=story.failure or _failure(story))
    labels = Labels(namespace=namespace, source=source, metadata=_known(story, queue))
    return captured(message, [tried], labels, now=died, occurrence=occurrence)


def _failure(story: Story) -> Failure:
    """What is known of the failure where no consumer told of it."""
    kind, sentence = _REASONS.get(Why(story.why), _REASONS[Why.TOLD]) if story.why else _REASONS[Why.TOLD]
    return failure_told(kind, sentence.format(attempts=story.attempts))


def _known(story: Story, queue: str) -> dict[str, object]:
    return {"dead_queue": queue, "why": story.why, "attempts": story.attempts} if story.queue else {"dead_queue": queue}
