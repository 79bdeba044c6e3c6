"""What is served, apart from how: a table of endpoints behind one `handle`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct, json

from redrive.model.errors import RedriveError
from redrive.serve.errors import http_status

log = logging.getLogger("redrive.http")

JSON = "application/json"


class Reply(Struct, frozen=True, kw_only=True):
    """An answer: status, content type, bytes."""

    status: int = 200
    content_type: str = JSON
    body: bytes = b""
    allow: str | None = None
    """The method that would have been right."""

    @classmethod
    def of(cls, value: object, *, status: int = 200, content_type: str = JSON, allow: str | None = None) -> Reply:
        return cls(status=status, content_type=content_type, body=json.encode(value), allow=allow)


class Request(Struct, frozen=True, kw_only=True):
    """A question to an endpoint: the format its body has, the body, and the formats that the asker takes."""

    format: str = JSON
    body: bytes = b""
    accept: str = ""


Endpoint = Callable[[Request], Awaitable[Reply]]


class Surface:
    """Endpoints by path. Later surfaces join with `add`, on the same port."""

    def __init__(self) -> None:
        self._endpoints: dict[str, tuple[str, Endpoint]] = {}

    def add(self, endpoints: Mapping[str, Endpoint], *, method: str = "GET") -> None:
        """Serve these paths; a path can be taken once."""
        for path, endpoint in endpoints.items():
            if path in self._endpoints:
                raise ValueError(f"the path {path} is taken already")
            self._endpoints[path] = (method, endpoint)

    def method_of(self, path: str) -> str | None:
        """The method that a path answers to; None: there is no such path."""
        known = self._endpoints.get(path)
        return known[0] if known else None

    async def handle(self, path: str, request: Request) -> Reply:
        """Answer one request. An error of ours becomes its status and sentence; any other one 500, without its stack."""
        known = self._endpoints.get(path)
        if known is None:
            return Reply.of({"code": "not_found", "message": f"there is nothing at {path}"}, status=404)
        try:
            return await known[1](request)
        except RedriveError as error:
            return Reply.of({"code": error.code, "message": str(error)}, status=http_status(error))
        except Exception:
            log.exception("request failed", extra={"path": path})
            return Reply.of({"code": "internal", "message": "something went wrong here; the log says what"}, status=500)
