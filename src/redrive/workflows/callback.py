"""The retry callback as a target: it is called with the task and its repositories, and knows which task it is retrying."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from redrive.engine.call import FunctionTransport, refusal
from redrive.engine.extract import REPR, decoded
from redrive.model.errors import Unsupported
from redrive.model.message import Message
from redrive.model.operation import Delivery

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


class CallbackTransport(FunctionTransport):
    """Calls back once a message, with what `redrive.workflows.task` put into it."""

    def __init__(self, callback: RetryCallback) -> None:
        super().__init__(callback, refusal=refusal)

    async def send(self, messages: Sequence[Message]) -> list[Delivery]:
        answers: list[Delivery] = []
        for message in messages:
            retry = _Retry(message.id)
            token = _here.set(retry)
            try:
                answers += await super().send([message])
            finally:
                retry.is_over = True
                _here.reset(token)
        return answers

    def arguments(self, message: Message) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if message.content_type == REPR:
            return super().arguments(message)  # which says why there is nothing to call with
        (content, *_), _ = decoded(message)
        match content:
            case {"task": task, "repos": repos}:
                return (task, repos), {}
            case _:
                raise Unsupported("this letter holds no task with its repositories; repair its body first")
