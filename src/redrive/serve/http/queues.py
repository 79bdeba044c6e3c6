"""Queues over HTTP: the interface under /v1/, in JSON and protobuf.

The original's endpoints are as the original has them. Those under /v1/more/ say and take more: keys, priorities, headers, the
failure that a retry tells of, leases of one's own length, and how a dead item came to die.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from redrive.model.errors import NoSuchItem, NotLeased, QueueClosing, QueueRefused, RedriveError
from redrive.queues import Queues
from redrive.queues.line import CLOSING
from redrive.queues.wire import proto, protojson
from redrive.queues.wire.messages import Message
from redrive.queues.wire.messages import Reply as Told
from redrive.queues.wire.stamps import BadStamp
from redrive.serve.errors import http_status
from redrive.serve.http.queue_verbs import MORE, SMALL, VERBS, Endpoint
from redrive.serve.http.surface import JSON, Reply, Request

log = logging.getLogger("redrive.http")

PREFIX = "/v1/"
PROTOBUF = "application/protobuf"
TEXTS: Mapping[int, str] = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 409: "Conflict",
    429: "Too Many Requests", 452: "Client Error", 453: "Request Failed", 454: "Retry Request", 455: "Client Content Error",
    500: "Internal Error", 501: "Not Implemented", 512: "Transport Error",
}  # fmt: skip
_ANY = ("", "*/*", "application/*", JSON)
_DONE = {kind: write(Told(code=200)) for kind, write in ((JSON, protojson.write), (PROTOBUF, proto.write))}

Verb = Callable[[Queues, Any], Awaitable[Message | None]]


class ContentError(QueueRefused):
    """The request's bytes, or its headers, cannot be understood. Mend what the sentence names."""

    code = "content_error"


class QueueSurface:
    """Answers all requests under /v1/."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._is_closing = False

    def close(self) -> None:
        """From now on everybody is told that this is shutting down; who waits for an item is told at once."""
        self._is_closing = True
        self._queues.dismiss()

    def limit_of(self, path: str) -> int:
        """How many bytes a request to this path may have."""
        known = VERBS.get(path)
        return known.limit if known else SMALL

    async def answer(self, method: str, path: str, request: Request) -> Reply:
        content_type = _accepted(request.accept)
        try:
            if method != "POST":
                raise QueueRefused(f"http method '{method}' not allowed; only POST")
            known = VERBS.get(path)
            if known is None:
                return _told(501, f"no such method; {path}", content_type or JSON)
            if content_type is None:
                raise ContentError(
                    f"Accept header '{_first(request.accept)}' is invalid format or unrecognized content type,"
                    f" only [{JSON},{PROTOBUF}] are supported by this method"
                )
            if request.is_too_large:
                raise QueueRefused(f"request body exceeds {known.limit_text} limit")
            if self._is_closing:
                raise QueueClosing(CLOSING)
            verb, message = _asked(known, request)
            try:
                answer = await verb(self._queues, message)
            except BadStamp as error:
                if request.format.lower().startswith(PROTOBUF):
                    raise ContentError(f"proto: invalid google.protobuf.Timestamp value: {error}") from None
                protojson.carefully(known.request, request.body)
                raise
            if answer is None:
                return Reply(content_type=content_type, body=_DONE[content_type])
            body = protojson.write(answer) if content_type is JSON else proto.write(answer)
            return Reply(content_type=content_type, body=body)
        except (protojson.NotProtojson, proto.NotProtobuf, ContentError) as error:
            return _told(455, str(error), content_type or JSON)
        except RedriveError as error:
            status = http_status(error)
            code = 454 if error.transient else status if status in TEXTS else 500
            return _told(code, str(error), content_type or JSON, error if path.startswith(MORE) else None)
        except Exception:
            log.exception("request failed", extra={"path": path})
            return _told(500, "something went wrong here; the log says what", content_type or JSON)


def _told(code: int, message: str, content_type: str, error: RedriveError | None = None) -> Reply:
    """A refusal; on endpoints of our own, with the error's code, which is more than its status tells."""
    details = {} if error is None else {"code": error.code}
    if isinstance(error, NoSuchItem | NotLeased):
        details["id"] = error.id
    told = Told(code=code, code_text=TEXTS[code], message=message, details=details)
    body = protojson.write(told) if content_type == JSON else proto.write(told)
    return Reply(status=code, content_type=content_type, body=body)


def _accepted(accept: str) -> str | None:
    """The format that the asker wants its answer in; None: one that we do not speak."""
    if accept in _ANY:
        return JSON
    first = _first(accept).lower()
    return JSON if first in _ANY else PROTOBUF if first == PROTOBUF else None


def _first(accept: str) -> str:
    return accept.partition(",")[0].partition(";")[0].strip()


def _asked(known: Endpoint, request: Request) -> tuple[Verb, Any]:
    """What is to be done, and the message that asks for it."""
    given = request.format
    plain = JSON if not given else given if given in (JSON, PROTOBUF) else given.partition(";")[0].strip().lower()
    if plain == JSON:
        return known.verb, protojson.read(known.request, request.body)
    if plain == PROTOBUF and known.raw is not None:
        return known.raw, proto.parsed(known.request, request.body)
    if plain == PROTOBUF:
        return known.verb, proto.read(known.request, request.body)
    raise ContentError(f"Content-Type header '{given}' is invalid format or unrecognized content type")
