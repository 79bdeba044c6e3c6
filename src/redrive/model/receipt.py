"""A receipt: what is known of one handler's work on one delivery, so that a second delivery of the same is not worked again."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace


class ReceiptState(StrEnum):
    """How far the work is."""

    BEGUN = "begun"
    """Somebody works on it, until its time is over."""
    DONE = "done"
    """The work is done; a second delivery is not worked again."""
    UNKNOWN = "unknown"
    """Whoever began it never said how it ended: its effect may be there or not."""


class Receipt(Struct, frozen=True, kw_only=True):
    """One handler's work on one delivery. There is one for each namespace, handler and key."""

    namespace: str
    handler: str
    key: str
    """What identifies the delivery: the same for every delivery of the same message."""
    token: UUID
    """Whose work it is: minted for each call."""
    at: datetime
    """When it was begun."""
    state: ReceiptState = ReceiptState.BEGUN
    until: datetime | None = None
    """Begun: it becomes unknown then. Done: it is forgotten then. None: never."""
    by: str = ""
    """Who works on it, for people to read."""

    @property
    def id(self) -> tuple[str, str, str]:
        return self.namespace, self.handler, self.key


class Which(Struct, frozen=True, kw_only=True):
    """A choice of receipts: all that is given must hold."""

    namespace: str
    handler: str | None = None
    key: str | None = None
    states: Collection[ReceiptState] | None = None
    before: datetime | None = None
    """Begun before then."""

    def takes(self, receipt: Receipt) -> bool:
        """Is it one of them?"""
        return (
            receipt.namespace == self.namespace
            and (self.handler is None or receipt.handler == self.handler)
            and (self.key is None or receipt.key == self.key)
            and (self.states is None or receipt.state in self.states)
            and (self.before is None or receipt.at < self.before)
        )


def is_over(receipt: Receipt, now: datetime) -> bool:
    """Has its time come?"""
    return receipt.until is not None and receipt.until <= now


def begun(known: Receipt | None, asked: Receipt, lease: timedelta, *, again: bool, now: datetime) -> Receipt:
    """The receipt as it stands after somebody asked for the work: with the token that was asked with, the work is theirs."""
    if known is not None and is_over(known, now):
        known = lapsed(known)
    if known is None or (again and known.state is ReceiptState.UNKNOWN and known.token != asked.token):
        return replace(asked, state=ReceiptState.BEGUN, at=now, until=now + lease)
    return known


def lapsed(receipt: Receipt) -> Receipt | None:
    """What becomes of a receipt whose time is over; None: it is forgotten."""
    if receipt.state is not ReceiptState.BEGUN:
        return None
    return replace(receipt, state=ReceiptState.UNKNOWN, until=None)


def ended(
    known: Receipt | None, asked: Receipt, *, done: bool, keep: timedelta | None, now: datetime
) -> tuple[Receipt | None, bool]:
    """The receipt after the work ended, None: it is gone; and whether it was still theirs who say so.

    Whoever has the token is believed, also when their time was over meanwhile; what is done stays done.
    """
    if known is None or known.token != asked.token:
        return known, False
    if not done:
        return (known, False) if known.state is ReceiptState.DONE else (None, True)
    return replace(known, state=ReceiptState.DONE, until=None if keep is None else now + keep), True
