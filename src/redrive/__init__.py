"""redrive: the dead-letter layer for Python. No failed message is ever lost, and every one can go back.

dlq = redrive.open("sqlite:redrive.db")

@dlq.guard(source="orders", policy=Policy(max_attempts=3, backoff=exponential(timedelta(seconds=1))))
async def handle(order): ...
"""

from __future__ import annotations

from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any

from redrive.engine.extract import where
from redrive.model.amendment import Amendment
from redrive.model.arrival import Held
from redrive.model.backoff import custom, exponential, immediate, linear, never
from redrive.model.backoff import register as register_backoff
from redrive.model.category import Category
from redrive.model.classify import Rule
from redrive.model.errors import (
    AlreadyBegun,
    AnswerLost,
    BadCursor,
    BadQuery,
    BadSettings,
    BodyTooLarge,
    CircularDependency,
    IllegalTransition,
    LeaseLost,
    LetterLeased,
    MissingExtra,
    NoSuchItem,
    NoSuchQueue,
    NotHeld,
    NotifierUnavailable,
    NotLeased,
    NotNotified,
    OutcomeUnknown,
    QueueBusy,
    QueueClosing,
    QueueEmpty,
    QueueFull,
    QueueGone,
    QueueRefused,
    RedriveError,
    SchemaTooNew,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreNotWritable,
    StoreUnavailable,
    UnknownLetter,
    UnknownOperation,
    UnknownScheme,
    Unsupported,
)
from redrive.model.lane import Lane
from redrive.model.lease import Claim, Due
from redrive.model.letter import Attempt, Failure, Letter, Origin, RetryPlan
from redrive.model.message import Message
from redrive.model.operation import Entry
from redrive.model.pace import Pace
from redrive.model.policy import Bury, Discard, Policy, Retry, Route, Verdict
from redrive.model.query import EVERYTHING, And, Field, GroupOrder, Is, Not, Op, Or, Order, Text
from redrive.model.redaction import Redaction
from redrive.model.replay import ReplayRule
from redrive.model.settlement import Completed, Failed, Postponed, Redriven, Released
from redrive.model.status import Act, Status
from redrive.model.tempo import Tempo
from redrive.model.texts import Where
from redrive.version import __version__

if TYPE_CHECKING:
    from redrive.engine.dead_letters import DeadLetters
    from redrive.engine.exact import Exact
    from redrive.engine.once import Key

__all__ = [
    "EVERYTHING",
    "Act",
    "AlreadyBegun",
    "Amendment",
    "And",
    "AnswerLost",
    "Attempt",
    "BadCursor",
    "BadQuery",
    "BadSettings",
    "BodyTooLarge",
    "Bury",
    "Category",
    "CircularDependency",
    "Claim",
    "Completed",
    "Discard",
    "Due",
    "Entry",
    "Failed",
    "Failure",
    "Field",
    "GroupOrder",
    "Held",
    "IllegalTransition",
    "Is",
    "Lane",
    "LeaseLost",
    "Letter",
    "LetterLeased",
    "Message",
    "MissingExtra",
    "NoSuchItem",
    "NoSuchQueue",
    "Not",
    "NotHeld",
    "NotLeased",
    "NotNotified",
    "NotifierUnavailable",
    "Op",
    "Or",
    "Order",
    "Origin",
    "OutcomeUnknown",
    "Pace",
    "Policy",
    "Postponed",
    "QueueBusy",
    "QueueClosing",
    "QueueEmpty",
    "QueueFull",
    "QueueGone",
    "QueueRefused",
    "Redaction",
    "RedriveError",
    "Redriven",
    "Released",
    "ReplayRule",
    "Retry",
    "RetryPlan",
    "Route",
    "Rule",
    "SchemaTooNew",
    "Status",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreNotWritable",
    "StoreUnavailable",
    "Tempo",
    "Text",
    "UnknownLetter",
    "UnknownOperation",
    "UnknownScheme",
    "Unsupported",
    "Verdict",
    "Where",
    "__version__",
    "custom",
    "exponential",
    "immediate",
    "linear",
    "load_policy",
    "never",
    "once",
    "open",
    "register_backoff",
    "where",
]


def load_policy(file: str | PathLike[str]) -> Policy:
    """The policy in a TOML or YAML file; see docs/policies.md."""
    from redrive import settings  # the settings are loaded when something is read

    return settings.load_policy(file)


def open(url: str | None = None, *, redact: Redaction | None = None) -> DeadLetters:
    """Open a store, e.g. `sqlite:redrive.db`; without a URL, the one of the settings. Touches nothing until it is used."""
    from redrive import wiring  # asyncio and the backends are loaded when a store is opened, not when redrive is imported

    return wiring.open(url, redact=redact)


def once(where: Any, *, name: str | None = None, key: Key | None = None, keep: timedelta | None = timedelta(days=30)) -> Exact:
    """Give a handler receipts in its own database: `@redrive.once(connection)`. A second delivery of a message is not worked again.

    `where` is a connection (sqlite3, psycopg, asyncpg), or a function that gives one or a context manager of one, such as a pool's
    `acquire`. The handler is given it as its last argument, and what it writes there is committed together with its receipt, or
    not at all. For effects outside of a database there is `dlq.once()`. See docs/once.md.
    """
    from redrive.engine.exact import Exact  # loaded when a handler is decorated

    return Exact(where, name=name, key=key, keep=keep)
