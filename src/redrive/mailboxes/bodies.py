"""Bodies of a type, as items of a queue and back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Generic, Protocol, TypeVar, cast, get_args, get_origin

import msgspec
from msgspec.structs import replace

from redrive.engine.extract import BYTES, JSON, MSGPACK, REPR, encoded
from redrive.mailboxes.dead_letter import DeadLetter, dead_letter_of, source_id_of, story_of
from redrive.mailboxes.errors import SerializationError
from redrive.model.item import Fresh, Item
from redrive.model.letter import Origin
from redrive.model.story import Story, heard, told
from redrive.queues.letters import letter_of

Body = TypeVar("Body")

_NAMESPACE = "default"
"""A dead letter has no namespace until it is collected."""


class Bodies(Protocol[Body]):
    """How the bodies of one mailbox are written and read."""

    def written(self, body: Body, reply_to: str | None) -> Fresh:
        """What is put into the queue; `SerializationError` when the body is of no kind that can be written."""
        ...

    def read(self, item: Item, mailbox: str, partition: int) -> Body:
        """What a received item holds; `SerializationError` when that is not of the mailbox's type."""
        ...


def bodies_of(kind: Any) -> Bodies[Any]:
    """For a type of bodies: dead letters keep their story beside the body of the message that died."""
    if kind is DeadLetter:
        return DeadBodies(Any)
    if get_origin(kind) is DeadLetter:
        return DeadBodies(get_args(kind)[0])
    return PlainBodies(kind)


class PlainBodies(Generic[Body]):
    """JSON, or MessagePack for what JSON would change; text and bytes as they are."""

    def __init__(self, kind: Any) -> None:
        self._kind = Any if isinstance(kind, TypeVar) else kind
        try:
            self._json = msgspec.json.Decoder(self._kind, dec_hook=_hook)
            self._msgpack = msgspec.msgpack.Decoder(self._kind, dec_hook=_hook)
        except TypeError as error:
            raise SerializationError(f"bodies cannot be of type {_named(kind)}: {error}") from error

    def written(self, body: Body, reply_to: str | None) -> Fresh:
        payload, content_type = self.encoded(body)
        request_id = getattr(body, "request_id", None)
        origin = Origin(reply_to=reply_to, request_id=None if request_id is None else str(request_id))
        is_known = reply_to is not None or request_id is not None
        return Fresh(payload=payload, encoding=content_type, story=told(Story(origin=origin)) if is_known else b"")

    def encoded(self, body: Body) -> tuple[bytes, str]:
        payload, content_type = encoded(body)
        if content_type == REPR:
            raise SerializationError(
                f"a body of type {type(body).__name__} cannot be written; give plain data, a msgspec struct, a dataclass or a"
                " pydantic model"
            )
        return payload, "" if content_type == BYTES else content_type

    def read(self, item: Item, mailbox: str, partition: int) -> Body:
        try:
            return cast("Body", self._decoded(item.payload, item.encoding.partition(";")[0].strip().lower()))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise SerializationError(
                f"Message '{item.message_id or item.id}' of mailbox '{mailbox}' is no {_named(self._kind)}: {error}"
            ) from error

    def _decoded(self, payload: bytes, content_type: str) -> Any:
        if self._kind is bytes:
            return payload
        if content_type == MSGPACK:
            return self._msgpack.decode(payload)
        if content_type.startswith("text/") and content_type != REPR:
            return msgspec.convert(payload.decode("utf-8", "surrogatepass"), self._kind, dec_hook=_hook)
        if content_type == JSON or self._kind is not Any:
            return self._json.decode(payload)
        return payload


class DeadBodies(Generic[Body]):
    """Dead letters: the message's own body is the item's, and its story lies beside it, as of every letter in a queue."""

    def __init__(self, kind: Any) -> None:
        self._plain: PlainBodies[Any] = PlainBodies(kind)

    def written(self, body: DeadLetter[Body], reply_to: str | None) -> Fresh:
        if not isinstance(body, DeadLetter):
            raise SerializationError(f"a mailbox of dead letters takes no {type(body).__name__}")
        payload, content_type = self._plain.encoded(body.body)
        story = story_of(body)
        if reply_to is not None and story.origin is not None:
            story = replace(story, origin=replace(story.origin, reply_to=reply_to))
        return Fresh(
            payload=payload,
            encoding=content_type,
            story=told(story),
            message_id=body.message_id,
            source_id=source_id_of(body),
        )

    def read(self, item: Item, mailbox: str, partition: int) -> DeadLetter[Body]:
        story = heard(item.story)
        if not story.why:
            raise SerializationError(
                f"Message '{item.message_id or item.id}' of mailbox '{mailbox}' is no dead letter: nobody has given it up"
            )
        letter = letter_of(item, mailbox, partition, _NAMESPACE, datetime.now(UTC))
        body = self._plain.read(item, mailbox, partition)
        return dead_letter_of(letter, body, attempts=story.attempts)


def _hook(kind: Any, value: Any) -> Any:
    """Types that msgspec does not know read themselves, as pydantic's models do."""
    if callable(validate := getattr(kind, "model_validate", None)):
        return validate(value)
    raise TypeError(f"{_named(kind)} cannot be read")


def _named(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)
