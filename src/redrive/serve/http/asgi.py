"""A surface as an ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from redrive.serve.http.surface import JSON, Reply, Request, Surface

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BODY_LIMIT = 5 * 1024 * 1024


def asgi(surface: Surface) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """The application that uvicorn, or any other server, runs."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            await _reply(send, await _answer(surface, scope, receive), is_head=scope["method"] == "HEAD")

    return application


async def _answer(surface: Surface, scope: Scope, receive: Receive) -> Reply:
    path, method = scope["path"], scope["method"]
    allowed = surface.method_of(path)
    if allowed is not None and method != allowed and not (method == "HEAD" and allowed == "GET"):
        return Reply.of(
            {"code": "method_not_allowed", "message": f"{path} takes {allowed}, not {method}"}, status=405, allow=allowed
        )
    body = bytearray()
    while True:
        event = await receive()
        body += event.get("body", b"")
        if len(body) > BODY_LIMIT:
            return Reply.of({"code": "body_too_large", "message": f"a request may have {BODY_LIMIT} bytes"}, status=413)
        if not event.get("more_body"):
            break
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    return await surface.handle(
        path, Request(format=headers.get(b"content-type", JSON), body=bytes(body), accept=headers.get(b"accept", ""))
    )


async def _reply(send: Send, reply: Reply, *, is_head: bool) -> None:
    headers = [(b"content-type", reply.content_type.encode()), (b"content-length", str(len(reply.body)).encode())]
    if reply.allow is not None:
        headers.append((b"allow", reply.allow.encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if is_head else reply.body})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return
