"""Confirm: a message that redrive sent back has worked, so its letter is done. The operation that sent it sees that in the letter."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from inspect import Parameter, iscoroutinefunction, signature
from typing import Any

from redrive.model.amendment import Amended, Amendment
from redrive.model.message import Message
from redrive.model.status import Act
from redrive.ports.inline import drive, pause
from redrive.ports.letters import LetterStore

log = logging.getLogger("redrive.confirm")

_TRIES = 10
_PAUSE_SECONDS = 0.05
"""Who sent it settles the letter right afterwards, and a quick consumer may be done before."""

Confirm = Callable[[Sequence[Message]], Awaitable[int]]
"""Told of messages that have worked; answers how many letters are done by that."""


async def confirmed(store: LetterStore, messages: Sequence[Message]) -> int:
    """Note that these have worked; how many letters are done by that. Never raises: the work is done, whatever a store says."""
    waiting = [
        Amendment(id=message.redrive_id, generation=message.generation, act=Act.CONFIRM)
        for message in messages
        if message.generation and message.redrive_id is not None
    ]
    done = 0
    try:
        for number in range(_TRIES):
            if number:
                await pause(_PAUSE_SECONDS)
            answers = await store.amend(waiting) if waiting else []
            done += answers.count(Amended.DONE)
            waiting = [one for one, answer in zip(waiting, answers, strict=True) if answer is Amended.LEASED]
            if not waiting:
                break
    except Exception as error:
        # Whatever it is: a guard would take it for the handler's, and try again what has worked. Their letters stay `redriven`,
        # which says that nobody knows; nothing is lost.
        log.warning("%d messages have worked, and their letters could not be told: %s", len(waiting), error)
    return done


def takes_message(handler: Callable[..., Any]) -> bool:
    """Is the handler given the message itself, with its headers?"""
    return _message_place(handler) is not None


def confirming(handler: Callable[..., Any], confirm: Confirm) -> Callable[..., Any]:
    """The handler; when it has worked on a message that redrive sent back, its letter is told."""
    place = _message_place(handler)
    assert place is not None
    position, name = place

    def given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Message | None:
        message = args[position] if len(args) > position else kwargs.get(name)
        return message if isinstance(message, Message) and message.headers and message.generation else None

    if iscoroutinefunction(handler):

        @wraps(handler)
        async def worked_async(*args: Any, **kwargs: Any) -> Any:
            result = await handler(*args, **kwargs)
            if (message := given(args, kwargs)) is not None:
                await confirm([message])
            return result

        return worked_async

    @wraps(handler)
    def worked(*args: Any, **kwargs: Any) -> Any:
        result = handler(*args, **kwargs)
        if (message := given(args, kwargs)) is not None:
            drive(_counted(confirm, message))
        return result

    return worked


async def _counted(confirm: Confirm, message: Message) -> int:
    return await confirm([message])


def _message_place(handler: Callable[..., Any]) -> tuple[int, str] | None:
    """The position and the name of the parameter that says it is a `Message`; None: there is none."""
    try:
        parameters = list(signature(handler).parameters.values())
    except (TypeError, ValueError):
        return None
    for position, one in enumerate(parameters[:2]):
        is_positional = one.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        told = one.annotation
        if is_positional and (told is Message or (isinstance(told, str) and told.rpartition(".")[2] == "Message")):
            return position, one.name
    return None
