"""A surface as an ASGI application, for those who have a server of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from redrive.serve.http.surface import Reply, Request, Surface

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def asgi(surface: Surface) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """The application that any ASGI server runs."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            await _reply(send, await _answer(surface, scope, receive), is_head=scope["method"] == "HEAD")

    return application


async def _answer(surface: Surface, scope: Scope, receive: Receive) -> Reply:
    path = scope["path"]
    limit = surface.limit_of(path)
    body = bytearray()
    is_too_large = False
    while True:
        event = await receive()
        body += event.get("body", b"")
        if len(body) > limit:
            is_too_large = True
            body.clear()
        if not event.get("more_body"):
            break
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    request = Request(
        format=headers.get(b"content-type", ""),
        body=bytes(body),
        accept=headers.get(b"accept", ""),
        is_too_large=is_too_large,
    )
    return await surface.handle(scope["method"], path, request)


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
