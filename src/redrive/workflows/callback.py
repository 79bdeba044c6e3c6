"""The retry callback as a target: it is called with the task and its repositories, and knows which task it is retrying."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

from redrive.engine.call import FunctionTransport, refusal
from redrive.model.message import Message
from redrive.model.operation import Delivery
from redrive.ports.transport import Parcel

RetryCallback = Callable[[dict[str, Any], list[str]], Any]
"""Async or plain. It has failed when it raises, or returns `{"status": "failed"}` or `{"success": False}`."""


class _Retry:
    """One retry that goes on; what it has set off may outlive it."""

    def __init__(self, task_id: str | None) -> None:
        self.task_id = task_id
        self.is_over = False


_here: ContextVar[_Retry | None] = ContextVar("redrive_workflows_retry", default=None)


def retried_here() -> str | None:
    """The id of the task that is being retried right here. Should it fail again, its own letter says so: no other is made."""
    retry = _here.get()
    return None if retry is None or retry.is_over else retry.task_id


class CallbackTransport:
    """Calls back once a message."""

    def __init__(self, callback: RetryCallback) -> None:
        self._function = FunctionTransport(callback, refusal=refusal)
        self.name = self._function.name

    async def send(self, messages: Sequence[Message]) -> list[Delivery]:
        answers: list[Delivery] = []
        for message in messages:
            retry = _Retry(message.id)
            token = _here.set(retry)
            try:
                answers += await self._function.send([message])
            finally:
                retry.is_over = True
                _here.reset(token)
        return answers

    async def receive(self, *, limit: int = 10, lease: timedelta = timedelta(seconds=30)) -> list[Parcel]:
        return await self._function.receive(limit=limit, lease=lease)

    async def settle(self, handles: Sequence[str], *, done: bool) -> list[bool]:
        return await self._function.settle(handles, done=done)

    async def peek(self, *, limit: int = 10) -> list[Message]:
        return await self._function.peek(limit=limit)
