"""Named points before, after and amid the verbs of ports, and what ends the process at one of them."""

from __future__ import annotations

import inspect
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar, cast

from msgspec import Struct

from redrive.model.message import Message
from redrive.model.operation import Delivery, Entry, LedgerRow
from redrive.ports.desk import Desk
from redrive.ports.letters import LetterStore
from redrive.ports.transport import Transport

Port = TypeVar("Port")

Visit = Callable[[str], None]
"""Called with the name of each point as it is passed."""

VERBS = ("receive", "keep", "put", "acknowledge", "choose", "claim", "intend", "send", "record", "settle")
"""The steps of the whole way, in order. `choose`, `intend` and `record` are the desk's `record` of what is to be sent, of intents and
of outcomes."""
_RECORDED = {Entry.CHOSEN: "choose", Entry.INTENDED: "intend"}

AMID_SEND = "amid send"
"""Between two messages of a batch: one is sent, the next is not."""

POINTS = (*(f"{moment} {verb}" for verb in VERBS for moment in ("before", "after")), AMID_SEND)


class Kill(Struct, frozen=True):
    """End the process at the n-th visit of a point."""

    point: str
    nth: int = 1


class Visits:
    """Counts the visits of each point, and ends this process as `kill -9` does at the one that was chosen."""

    def __init__(self, kill: Kill | None = None) -> None:
        self.seen: Counter[str] = Counter()
        self._kill = kill

    def __call__(self, point: str) -> None:
        self.seen[point] += 1
        if self._kill is not None and self._kill == Kill(point, self.seen[point]):
            os.kill(os.getpid(), signal.SIGKILL)


def watched(port: Port, visit: Visit, **called: str) -> Port:
    """The port, with a point before and after each of its verbs. `called` renames verbs: `settle="acknowledge"`."""
    return cast("Port", _Watched(port, visit, called))


def watched_desk(desk: Desk, visit: Visit) -> Desk:
    """The desk, with a point before and after each verb; recording intents is told from recording outcomes."""
    return cast("Desk", _WatchedDesk(desk, visit, {}))


def watched_transport(transport: Transport, visit: Visit) -> Transport:
    """The transport, with a point before and after each verb and amid every batch that is sent."""
    return cast("Transport", _WatchedTransport(transport, visit, {"settle": "acknowledge"}))


def at(store: LetterStore, now: datetime) -> LetterStore:
    """The store, at this instant for ever: another process may live an hour later without waiting for it."""
    return cast("LetterStore", _At(store, now))


class _Watched:
    def __init__(self, port: object, visit: Visit, called: dict[str, str]) -> None:
        self._port = port
        self._visit = visit
        self._called = called

    def __getattr__(self, verb: str) -> Any:
        attribute = getattr(self._port, verb)
        if not inspect.iscoroutinefunction(attribute):
            return attribute

        async def call(*args: Any, **kwargs: Any) -> Any:
            point = self._point(verb, args)
            self._visit(f"before {point}")
            answer = await self._pass_on(verb, args, kwargs)
            self._visit(f"after {point}")
            return answer

        return call

    def _point(self, verb: str, args: tuple[Any, ...]) -> str:
        return self._called.get(verb, verb)

    async def _pass_on(self, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return await getattr(self._port, verb)(*args, **kwargs)


class _WatchedDesk(_Watched):
    def _point(self, verb: str, args: tuple[Any, ...]) -> str:
        if verb != "record":
            return verb
        rows: Sequence[LedgerRow] = args[0]
        entries = {row.entry for row in rows}
        return _RECORDED.get(entries.pop(), "record") if len(entries) == 1 else "record"


class _WatchedTransport(_Watched):
    async def _pass_on(self, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if verb != "send":
            return await super()._pass_on(verb, args, kwargs)
        messages: Sequence[Message] = args[0]
        deliveries: list[Delivery] = []
        for message in messages:
            if deliveries:
                self._visit(AMID_SEND)
            deliveries += await super()._pass_on(verb, ([message],), kwargs)
        return deliveries


class _At:
    def __init__(self, store: LetterStore, now: datetime) -> None:
        self._store = store
        self._now = now

    def __getattr__(self, verb: str) -> Any:
        attribute = getattr(self._store, verb)
        if not inspect.iscoroutinefunction(attribute) or "now" not in inspect.signature(attribute).parameters:
            return attribute

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await attribute(*args, **{"now": self._now, **kwargs})

        return call
