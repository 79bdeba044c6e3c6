"""Receipts in the handler's own transaction: effect and receipt are committed together, or neither is.

The connection is the user's, of whichever driver; it is known by the name of its type, and no driver is imported for that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from inspect import Signature, isawaitable
from typing import Any, TypeVar, overload

from redrive.engine.apart import ensure_duration
from redrive.engine.once import Key, last_parameter, with_receipts
from redrive.engine.transactions import IN_USE, KINDS, Transaction, kind_of
from redrive.model.errors import BadSettings
from redrive.ports.inline import drive, outside, pause

log = logging.getLogger("redrive.once")

R = TypeVar("R")
T = TypeVar("T")

Where = Any
"""A connection, or a function that gives one or a context manager of one, such as a pool's `acquire`."""

_inside: ContextVar[frozenset[Exact]] = ContextVar("inside", default=frozenset())
"""On whose connection a handler is working here: it would wait for itself for ever."""

_SWEEP_SECONDS = 3600.0
_LOOK_SECONDS = 0.002


class Exact:
    """Made by `redrive.once`: receipts are kept in the handler's database. Decorates plain and coroutine functions.

    The handler is given the connection as its last argument. What it does there is committed together with its receipt; when it
    raises, both are undone. It must neither commit nor roll back itself.
    """

    def __init__(self, where: Where, *, name: str | None, key: Key | None, keep: timedelta | None) -> None:
        if kind_of(where) is None and not callable(where):
            raise BadSettings(_not_a_connection(where))
        if keep is not None:
            ensure_duration("keep", keep)
        self.keep = keep
        self._where = where
        self._name = name
        self._key = key
        self._is_shared = kind_of(where) is not None
        # A loop must not wait for a thread; where both use one connection, whoever finds it in a transaction is told.
        self._async_turn = threading.Lock()
        self._blocking_turn = threading.Lock()
        self._swept_at: dict[str, float] = {}

    @overload
    def __call__(self, handler: Callable[..., Coroutine[Any, Any, R]]) -> Callable[..., Coroutine[Any, Any, R | None]]: ...
    @overload
    def __call__(self, handler: Callable[..., R]) -> Callable[..., R | None]: ...
    def __call__(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        return with_receipts(handler, self, name=self._name, key=self._key)

    def prepared(self, handler: Callable[..., Any], is_async: bool) -> Callable[[str, str], _Work]:
        if self._is_shared:
            fitting(self._where, is_async=is_async)
        return partial(_Work, self, last_parameter(handler), is_async)

    def shown(self, own: Signature) -> Signature:
        parameters = list(own.parameters.values())
        named = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
        return own.replace(parameters=[one for one in parameters if one is not named[-1]])

    def run(self, verb: Coroutine[Any, Any, T]) -> T:
        return drive(verb)

    async def opened(self, *, is_async: bool) -> tuple[Any, Any]:
        """A connection, and what has to be left after its use: a context manager, or None."""
        if self._is_shared:
            await self._turn(is_async=is_async)
            return self._where, None
        with outside():
            given = self._where()
        if kind_of(given) is not None:
            return given, None
        if is_async and hasattr(given, "__aenter__"):
            return await given.__aenter__(), given
        if hasattr(given, "__enter__"):
            with outside():
                return given.__enter__(), given
        if is_async and isawaitable(given):
            return await given, None
        return given, None

    async def left(self, manager: Any, error: BaseException | None, *, is_async: bool) -> None:
        """Give the connection back. What goes wrong with that is told, and changes nothing: the work is committed or undone."""
        if self._is_shared:
            self._give_turn(is_async=is_async)
            return
        told = (type(error), error, error.__traceback__) if error is not None else (None, None, None)
        try:
            if is_async and hasattr(manager, "__aexit__"):
                await manager.__aexit__(*told)
            elif manager is not None:
                with outside():
                    manager.__exit__(*told)
        except Exception as trouble:
            if trouble is not error:
                log.warning("a connection could not be given back: %s", trouble)

    def is_sweep_due(self, handler: str) -> bool:
        """Is it time to forget old receipts of this handler? Answers True at first, and once an hour."""
        now = time.monotonic()
        if handler in self._swept_at and now - self._swept_at[handler] < _SWEEP_SECONDS:
            return False
        self._swept_at[handler] = now
        return True

    async def _turn(self, *, is_async: bool) -> None:
        """One after another on one connection: it has but one transaction."""
        if self in _inside.get():
            raise BadSettings(IN_USE)
        if is_async:
            while not self._async_turn.acquire(blocking=False):
                await pause(_LOOK_SECONDS)
        else:
            self._blocking_turn.acquire()
        _inside.set(_inside.get() | {self})

    def _give_turn(self, *, is_async: bool) -> None:
        _inside.set(_inside.get() - {self})
        (self._async_turn if is_async else self._blocking_turn).release()


class _Work:
    """The work on one delivery, in one transaction."""

    def __init__(self, exact: Exact, parameter: str, is_async: bool, handler: str, key: str) -> None:
        self.given: Mapping[str, Any] = {}
        self._exact = exact
        self._parameter = parameter
        self._is_async = is_async
        self._handler = handler
        self._key = key
        self._manager: Any = None
        self._transaction: Transaction | None = None

    async def begin(self) -> bool:
        connection, self._manager = await self._exact.opened(is_async=self._is_async)
        try:
            self._transaction = fitting(connection, is_async=self._is_async)(connection)
            is_ours = await self._transaction.begin(self._handler, self._key)
        except BaseException as error:
            await self._left(error)
            raise
        self.given = {self._parameter: connection}
        if not is_ours:
            await self._left(None)
        return is_ours

    async def done(self) -> None:
        assert self._transaction is not None
        try:
            await self._transaction.commit()
        except BaseException as error:
            await self.failed(error)
            raise
        if self._exact.keep is not None and self._exact.is_sweep_due(self._handler):
            try:
                await self._transaction.sweep(self._handler, self._exact.keep)
            except Exception as trouble:
                log.warning("old receipts of '%s' could not be forgotten: %s", self._handler, trouble)
        await self._left(None)

    async def failed(self, error: BaseException) -> None:
        assert self._transaction is not None
        try:
            await self._transaction.rollback(error)
        except Exception as trouble:
            # What cannot even be undone was not committed either; the error that matters is the first.
            log.debug("a transaction could not be rolled back: %s", trouble)
        await self._left(error)

    async def _left(self, error: BaseException | None) -> None:
        await self._exact.left(self._manager, error, is_async=self._is_async)


def fitting(connection: Any, *, is_async: bool) -> Callable[[Any], Transaction]:
    """What makes transactions on such a connection; `BadSettings` when it is none that such a handler can use."""
    kind = kind_of(connection)
    if kind is None:
        raise BadSettings(_not_a_connection(connection))
    if kind.is_async not in (None, is_async):
        wanted, other = ("a coroutine function", "an async def") if kind.is_async else ("a plain function", "a def")
        named = f"{type(connection).__module__}.{type(connection).__qualname__}"
        raise BadSettings(f"{named} needs {wanted} as its handler; make it {other}")
    return kind.transaction


def _not_a_connection(given: Any) -> str:
    if hasattr(given, "once"):
        return "redrive.once takes the connection that the handler works on; for receipts on a store's desk, use @dlq.once()"
    known = ", ".join(sorted(KINDS))
    return (
        f"redrive.once cannot use a {type(given).__qualname__}; give it a connection ({known}), or a function that gives one,"
        " such as pool.acquire or lambda: closing(sqlite3.connect(path))"
    )
