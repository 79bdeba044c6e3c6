"""Receipts apart from the work, on the desk: begun before the handler is called, done after.

A process that is killed in between leaves a receipt that is begun; when its time is over nobody can know whether the work was
done, and it is said so: the receipt becomes unknown, and so does whoever comes with the same delivery.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import Signature
from typing import Any, Literal, ParamSpec, TypeVar, assert_never, overload

from redrive.engine.bridge import Bridge
from redrive.engine.mint import minted
from redrive.engine.once import Key, with_receipts
from redrive.engine.owner import owner_name
from redrive.model.errors import AlreadyBegun, BadSettings, OutcomeUnknown, StoreUnavailable
from redrive.model.receipt import Receipt, ReceiptState
from redrive.ports.desk import Desk
from redrive.ports.inline import pause

log = logging.getLogger("redrive.once")

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

WhenUnknown = Literal["raise", "again"]
"""What to do with a delivery of which nobody knows whether it was worked on."""

LEASE = timedelta(minutes=5)
"""How long a handler may take before others think that it died."""
_TRIES = 3
_PAUSE_SECONDS = 0.05


class Apart:
    """Made by `DeadLetters.once`: receipts are kept on its desk. Decorates plain and coroutine functions."""

    def __init__(
        self,
        desk: Desk,
        bridge: Bridge,
        namespace: str,
        *,
        name: str | None,
        key: Key | None,
        unknown: WhenUnknown,
        lease: timedelta,
        keep: timedelta | None,
    ) -> None:
        if unknown not in ("raise", "again"):
            raise BadSettings(f"unknown='{unknown}' must be 'raise' or 'again'")
        ensure_duration("lease", lease)
        if keep is not None:
            ensure_duration("keep", keep)
        self.desk = desk
        self.namespace = namespace
        self.is_again = unknown == "again"
        self.lease = lease
        self.keep = keep
        self._bridge = bridge
        self._name = name
        self._key = key

    @overload
    def __call__(self, handler: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R | None]]: ...
    @overload
    def __call__(self, handler: Callable[P, R]) -> Callable[P, R | None]: ...
    def __call__(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        return with_receipts(handler, self, name=self._name, key=self._key)

    def prepared(self, handler: Callable[..., Any], is_async: bool) -> Callable[[str, str], _Work]:
        return partial(_Work, self)

    def shown(self, own: Signature) -> Signature:
        return own

    def run(self, verb: Coroutine[Any, Any, T]) -> T:
        return self._bridge.run(verb)


class _Work:
    """The work on one delivery, known by its token."""

    given: Mapping[str, Any] = {}

    def __init__(self, apart: Apart, handler: str, key: str) -> None:
        self._apart = apart
        self._receipt = Receipt(
            namespace=apart.namespace, handler=handler, key=key, token=minted(), at=datetime.now(UTC), by=owner_name()
        )

    async def begin(self) -> bool:
        apart = self._apart
        try:
            (standing,) = await _insisted(lambda: apart.desk.begin([self._receipt], apart.lease, again=apart.is_again))
        except Exception:
            raise
        except BaseException:
            # Cut short before the handler was called: nothing was done, and that is known.
            await self._taken_back()
            raise
        what = f"'{standing.handler}' on delivery {standing.key}"
        since = f"since {standing.at:%Y-%m-%d %H:%M:%S} UTC ({standing.by})"
        match standing.state:
            case ReceiptState.DONE:
                return False
            case ReceiptState.BEGUN if standing.token == self._receipt.token:
                return True
            case ReceiptState.BEGUN:
                raise AlreadyBegun(f"the work of {what} is under way {since}; try again later")
            case ReceiptState.UNKNOWN:
                raise OutcomeUnknown(
                    f"the work of {what} was begun {since} and never ended, so nobody knows whether its effect is there; look,"
                    " and if it is not, forget the receipt and send it again:"
                    f" redrive receipts forget {standing.handler} {standing.key}"
                )
            case _:
                assert_never(standing.state)

    async def done(self) -> None:
        try:
            (is_ours,) = await _insisted(lambda: self._apart.desk.end([self._receipt], done=True, keep=self._apart.keep))
        except Exception as error:
            # It must not look as if the work had failed. The receipt stays begun, and becomes unknown, which is true of it.
            log.warning("a delivery was worked by '%s', and its receipt could not be told: %s", self._receipt.handler, error)
            return
        if not is_ours:
            log.warning("'%s' took longer than its lease, and its delivery was begun again meanwhile", self._receipt.handler)

    async def failed(self, error: BaseException) -> None:
        if not isinstance(error, Exception):
            # Cut short, not failed: nobody knows how far it came. The receipt stays begun, and becomes unknown.
            return
        await self._taken_back()

    async def _taken_back(self) -> None:
        try:
            await _insisted(lambda: self._apart.desk.end([self._receipt], done=False))
        except Exception as trouble:
            log.warning(
                "'%s' did not work on a delivery, and its receipt could not be taken back: %s", self._receipt.handler, trouble
            )


async def _insisted(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again when no answer came: a token makes it the same question."""
    for number in range(1, _TRIES + 1):
        try:
            return await ask()
        except StoreUnavailable:
            if number == _TRIES:
                raise
            await pause(_PAUSE_SECONDS)
    raise AssertionError("unreachable")


def ensure_duration(name: str, given: object) -> None:
    """Raise `BadSettings` unless it is a timedelta longer than nothing."""
    if not isinstance(given, timedelta) or given <= timedelta():
        raise BadSettings(f"{name} must be a timedelta longer than nothing, got {given!r}")
