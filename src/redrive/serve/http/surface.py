"""What is served, apart from how: a table of endpoints, and what answers all paths that begin alike."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from msgspec import Struct, json

from redrive.model.errors import RedriveError
from redrive.serve.errors import http_status

log = logging.getLogger("redrive.http")

JSON = "application/json"
BODY_LIMIT = 5_000_000


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
    is_too_large: bool = False
    """Its body had more bytes than its path takes, and was dropped."""


Endpoint = Callable[[Request], Awaitable[Reply]]


class Branch(Protocol):
    """Answers every path under a prefix."""

    def limit_of(self, path: str) -> int:
        """How many bytes a request to this path may have."""
        ...

    async def answer(self, method: str, path: str, request: Request) -> Reply: ...


class Surface:
    """Endpoints by path. Later surfaces join with `add` or `mount`, on the same port."""

    def __init__(self) -> None:
        self._endpoints: dict[str, tuple[str, Endpoint]] = {}
        self._branches: dict[str, Branch] = {}

    def add(self, endpoints: Mapping[str, Endpoint], *, method: str = "GET") -> None:
        """Serve these paths; a path can be taken once."""
        for path, endpoint in endpoints.items():
            if path in self._endpoints:
                raise ValueError(f"the path {path} is taken already")
            self._endpoints[path] = (method, endpoint)

    def mount(self, prefix: str, branch: Branch) -> None:
        """Leave all paths that begin so to a branch."""
        self._branches[prefix] = branch

    def limit_of(self, path: str) -> int:
        """How many bytes a request to this path may have."""
        branch = self._branch(path)
        return branch.limit_of(path) if branch else BODY_LIMIT

    async def handle(self, method: str, path: str, request: Request) -> Reply:
        """Answer one request. An error of ours becomes its status and sentence; any other one 500, without its stack."""
        branch = self._branch(path)
        if branch is not None:
            return await branch.answer(method, path, request)
        if request.is_too_large:
            return Reply.of({"code": "body_too_large", "message": f"a request may have {BODY_LIMIT} bytes"}, status=413)
        known = self._endpoints.get(path)
        if known is None:
            return Reply.of({"code": "not_found", "message": f"there is nothing at {path}"}, status=404)
        allowed, endpoint = known
        if method != allowed and not (method == "HEAD" and allowed == "GET"):
            message = f"{path} takes {allowed}, not {method}"
            return Reply.of({"code": "method_not_allowed", "message": message}, status=405, allow=allowed)
        try:
            return await endpoint(request)
        except RedriveError as error:
            return Reply.of({"code": error.code, "message": str(error)}, status=http_status(error))
        except Exception:
            log.exception("request failed", extra={"path": path})
            return Reply.of({"code": "internal", "message": "something went wrong here; the log says what"}, status=500)

    def _branch(self, path: str) -> Branch | None:
        for prefix, branch in self._branches.items():
            if path.startswith(prefix):
                return branch
        return None
