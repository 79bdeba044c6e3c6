"""Every error redrive raises. Each class answers: what should the caller do?

RedriveError
├── NotHeld                 the letter is nowhere durable: do not acknowledge the source
│   └── BodyTooLarge        raise the limit, or give the store a folder for bodies
├── StoreError              the store could not do it
│   ├── StoreUnavailable    transient: try again later
│   │   └── AnswerLost      it may have been done: look by the letter's key before doing it again
│   ├── StoreFull           free some space, then try again
│   ├── StoreCorrupt        restore the file from a backup, or move it aside
│   ├── StoreNotWritable    mend the path or its rights
│   └── SchemaTooNew        upgrade redrive
├── LeaseLost               another worker took this letter over: drop it
├── LetterLeased            somebody holds this letter: wait, or try again after the lease
├── AlreadyBegun            transient: somebody works on this delivery; try again later
├── OutcomeUnknown          who worked on this delivery died over it: look whether its effect is there, then say so
├── IllegalTransition       this act is not allowed from the letter's status
├── UnknownLetter           no such letter: check the id
├── UnknownOperation        no such operation: check the id
├── CircularDependency      a letter would wait for itself: leave one of its dependencies out
├── QueueRefused            mend the request as the sentence says
│   ├── NoSuchQueue         create the queue first
│   ├── QueueGone           the queue was deleted meanwhile
│   ├── NoSuchItem          check the item's id
│   └── NotLeased           the lease is over, or never was: drop the item
├── QueueBusy               transient: try again
│   └── QueueEmpty          nothing came while the request waited; ask again
├── QueueClosing            the server is shutting down: go to another, or come back
├── QueueFull               archive or retry some letters first; the failure is still the caller's
├── NotNotified             people were not told: mend what the sentence names
│   └── NotifierUnavailable transient: try again later
├── BadSettings             mend the setting that is named
│   ├── UnknownScheme       use one of the schemes that are listed
│   ├── BadQuery            mend the question at the column that is named
│   └── BadCursor           start again from the first page
├── MissingExtra            install the extra that is named
└── Unsupported             this backend cannot do it: choose another way or another backend
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import ClassVar
from uuid import UUID


class RedriveError(Exception):
    """The root of all that redrive raises."""

    code: ClassVar[str] = "error"
    transient: ClassVar[bool] = False


class NotHeld(RedriveError):
    """The letter could not be held anywhere. Do not acknowledge the source: the message is still its own."""

    code = "not_held"


class BodyTooLarge(NotHeld):
    """The body is over the limit and the store has no folder for large bodies. Raise the limit or configure one."""

    code = "body_too_large"


class StoreError(RedriveError):
    """The store could not do what it was asked to; nothing was changed, unless the answer was lost."""

    code = "store_error"


class StoreUnavailable(StoreError):
    """The store did not answer, or is busy. Try again later."""

    code = "store_unavailable"
    transient = True


class AnswerLost(StoreUnavailable):
    """The connection broke before the answer came: it may have been done or not. Look by the letter's key, or repeat what may be repeated."""

    code = "answer_lost"


class StoreFull(StoreError):
    """No space is left for the store. Free some, then try again."""

    code = "store_full"


class StoreCorrupt(StoreError):
    """The store's data cannot be read. Restore it from a backup, or move it aside."""

    code = "store_corrupt"


class StoreNotWritable(StoreError):
    """The store's place cannot be opened or written. Mend the path or its rights."""

    code = "store_not_writable"


class SchemaTooNew(StoreError):
    """A newer redrive wrote this store. Upgrade redrive before opening it."""

    code = "schema_too_new"


class LeaseLost(RedriveError):
    """Another worker took this letter over. Drop it; do not retry."""

    code = "lease_lost"


class LetterLeased(RedriveError):
    """Somebody holds this letter. Wait until they settle it or their lease ends."""

    code = "letter_leased"


class AlreadyBegun(RedriveError):
    """Somebody is working on this delivery. Try again later: then it is done, or it is yours."""

    code = "already_begun"
    transient = True


class OutcomeUnknown(RedriveError):
    """Who worked on this delivery never said how it ended. Look for its effect; if there is none, forget the receipt, try again."""

    code = "outcome_unknown"


class IllegalTransition(RedriveError):
    """This act is not allowed from the letter's status. Nothing was changed."""

    code = "illegal_transition"


class UnknownLetter(RedriveError):
    """There is no such letter. Check the id."""

    code = "unknown_letter"


class UnknownOperation(RedriveError):
    """There is no such operation. Check the id."""

    code = "unknown_operation"


class CircularDependency(RedriveError, ValueError):
    """A letter would wait for itself. Leave one of its dependencies out."""

    code = "circular_dependency"


class QueueRefused(RedriveError):
    """A request to a queue is wrong. Mend what the sentence names."""

    code = "queue_refused"


class NoSuchQueue(QueueRefused):
    """There is no queue of this name. Create it first."""

    code = "no_such_queue"


class QueueGone(QueueRefused):
    """The queue was deleted meanwhile. What is under its name now, if anything, is another queue."""

    code = "queue_gone"


class NoSuchItem(QueueRefused):
    """No item has this id. It was completed, retried or deleted, or never was."""

    code = "no_such_item"

    def __init__(self, id: str, sentence: str = "") -> None:
        super().__init__(sentence or f"invalid storage id; '{id}' does not exist")
        self.id = id


class NotLeased(QueueRefused):
    """Nobody has leased this item, or the lease is over. Drop it; somebody else may be working on it."""

    code = "not_leased"

    def __init__(self, id: str, sentence: str = "") -> None:
        super().__init__(sentence or f"'{id}' is not marked as leased")
        self.id = id


class QueueBusy(RedriveError):
    """The queue has more to do than it can. Try again."""

    code = "queue_busy"
    transient = True


class QueueEmpty(QueueBusy):
    """No item came while the request waited. Ask again."""

    code = "queue_empty"


class QueueClosing(RedriveError):
    """The server is shutting down; nothing was done. Go to another, or come back."""

    code = "queue_closing"


class QueueFull(RedriveError, ValueError):
    """A queue has as many open letters as it may. Archive or retry some first; the failure is still the caller's."""

    code = "queue_full"


class NotNotified(RedriveError):
    """An alert's target refused it. Mend what the sentence names; the letters themselves are safe in their store."""

    code = "not_notified"

    def __init__(self, what: str = "", *, alerts: Iterable[UUID] = (), after: timedelta | None = None) -> None:
        super().__init__(what)
        self.alerts = frozenset(alerts)
        """The ids of those that were not delivered; empty: none was."""
        self.after = after
        """How long the target asks to be left alone, if it does."""


class NotifierUnavailable(NotNotified):
    """An alert's target could not be reached, or is busy. Try again later: the same alert, under the same id."""

    code = "notifier_unavailable"
    transient = True


class BadSettings(RedriveError):
    """A setting is wrong. Mend the one that is named."""

    code = "bad_settings"


class UnknownScheme(BadSettings):
    """No backend answers to this URL's scheme. Use one that is listed."""

    code = "unknown_scheme"


class BadQuery(BadSettings):
    """A question cannot be read. Mend it at the column that is named."""

    code = "bad_query"

    def __init__(self, what: str = "", *, text: str = "", column: int = 1, width: int = 1) -> None:
        super().__init__(f"{what} (column {column})")
        self.text = text
        self.column = column
        """Counted from 1."""
        self.width = width


class BadCursor(BadSettings):
    """This cursor was not made by this listing. Start again from the first page."""

    code = "bad_cursor"


class MissingExtra(RedriveError):
    """An optional part is not installed. Install the extra that is named."""

    code = "missing_extra"


class Unsupported(RedriveError):
    """This backend cannot do it. Choose another way, or another backend."""

    code = "unsupported"
