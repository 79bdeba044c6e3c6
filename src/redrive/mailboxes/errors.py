"""What mailboxes raise. Each class answers: what should the caller do?

RedriveError
└── MailboxError
    ├── InvalidParameterError        mend the argument that is named
    ├── MailboxFullError             transient: wait until somebody has worked, or send elsewhere
    ├── MailboxConnectionError       transient: the store could not be reached, or the mailbox is closed
    ├── MailboxResolutionError       no mailbox has this name: register it, or give a factory
    ├── SerializationError           the body does not fit the mailbox's type
    ├── ReceiptHandleExpiredError    the message is somebody else's by now: drop it
    ├── MessageFinalizedError        it was acknowledged or given back already
    └── ReplyNotAvailableError       nobody asked for a reply, or nobody knows that mailbox
"""

from __future__ import annotations

from redrive.model.errors import RedriveError


class MailboxError(RedriveError):
    """The root of all that mailboxes raise."""

    code = "mailbox_error"


class InvalidParameterError(MailboxError, ValueError):
    """An argument is outside its limits. Nothing was done."""

    code = "invalid_parameter"


class MailboxFullError(MailboxError):
    """The mailbox holds as many messages as it may. Nothing was sent; try again when some are worked off."""

    code = "mailbox_full"
    transient = True


class MailboxConnectionError(MailboxError):
    """The store behind the mailbox did not answer, or the mailbox is closed. A send may have been done."""

    code = "mailbox_unavailable"
    transient = True


class MailboxResolutionError(MailboxError):
    """Nobody knows a mailbox of this name. Register it, or give a factory."""

    code = "mailbox_unknown"

    def __init__(self, name: str) -> None:
        super().__init__(f"Cannot resolve mailbox identifier: {name}")
        self.name = name


class SerializationError(MailboxError):
    """A body cannot be written, or is not what the mailbox's type says. The message itself is as it was."""

    code = "not_serializable"


class ReceiptHandleExpiredError(MailboxError):
    """The message is no longer this receiver's: its time is over, or it was settled. Drop it; it may come to somebody else."""

    code = "receipt_handle_expired"

    def __init__(self, handle: str) -> None:
        super().__init__(f"Receipt handle '{handle}' is no longer valid")
        self.handle = handle


class MessageFinalizedError(MailboxError):
    """The message was acknowledged or given back; nothing more can be done with it."""

    code = "message_finalized"


class ReplyNotAvailableError(MailboxError):
    """There is no mailbox to reply to."""

    code = "reply_not_available"
