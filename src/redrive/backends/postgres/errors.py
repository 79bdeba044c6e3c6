"""PostgreSQL's errors in redrive's words: the foreign exceptions end here."""

from __future__ import annotations

import os

from asyncpg import ClientConfigurationError, InterfaceError, InternalClientError, PostgresError

from redrive.model.errors import (
    AnswerLost,
    BadSettings,
    RedriveError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreNotWritable,
    StoreUnavailable,
)


class AlreadyThere(StoreError):
    """One of the rows is there already; nothing was written. Never leaves this backend."""


class Blocked(StoreUnavailable):
    """Another transaction holds what this one waited for, and did not end in time; nothing was written."""


LOST = (OSError, TimeoutError, InterfaceError, InternalClientError)
"""What the driver raises when the connection breaks or no answer comes in time; the last when the server has ended the session
and its goodbye, but not yet the end of the connection, was heard.
"""

_MEANING: dict[str, tuple[type[StoreError], str]] = {
    "23505": (AlreadyThere, "one of the letters is there already at {name}"),
    "28": (StoreNotWritable, "PostgreSQL at {name} refused the login ({error}); check user and password"),
    "3D000": (StoreNotWritable, "there is no such database at {name}; create it, or choose another"),
    "42501": (StoreNotWritable, "the user may not do this at {name} ({error}); grant the rights, or choose another schema"),
    "25006": (StoreNotWritable, "{name} may only be read (a standby?); use the primary"),
    "42P01": (StoreCorrupt, "a table of redrive is missing at {name} ({error}); restore it from a backup"),
    "53100": (StoreFull, "the disk of PostgreSQL at {name} is full; free some space"),
    "53": (StoreUnavailable, "PostgreSQL at {name} has no room for this now ({error}); try again"),
    "55P03": (Blocked, "another transaction at {name} holds a lock for too long; try again"),
    "57014": (StoreUnavailable, "PostgreSQL at {name} broke this off ({error}); try again"),
    "57": (StoreUnavailable, "PostgreSQL at {name} is stopping or starting ({error}); try again"),
    "40": (StoreUnavailable, "PostgreSQL at {name} broke off because of another transaction; try again"),
    "08": (StoreUnavailable, "the connection to PostgreSQL at {name} broke ({error}); try again"),
}
"""By SQLSTATE, the longest prefix first."""


def translated(error: Exception, name: str, *, may_be_done: bool) -> RedriveError:
    """What this error means for the caller. `may_be_done`: what would change something was on its way."""
    if isinstance(error, ClientConfigurationError):
        return BadSettings(f"the URL of PostgreSQL at {name} cannot be used: {_said(error)}")
    code = getattr(error, "sqlstate", None) if isinstance(error, PostgresError) else None
    is_connection = isinstance(error, LOST) or (code or "").startswith("08")
    if is_connection and may_be_done:
        return AnswerLost(f"the answer of PostgreSQL at {name} was lost ({_said(error)}); it may have been done")
    if isinstance(error, LOST):
        return StoreUnavailable(f"PostgreSQL at {name} cannot be reached ({_said(error)}); is it running, and the address right?")
    for length in (5, 2):
        if (meaning := _MEANING.get((code or "")[:length])) is not None:
            kind, sentence = meaning
            return kind(sentence.format(name=name, error=_said(error)))
    return StoreError(f"PostgreSQL at {name} could not do it: {_said(error)}")


def _said(error: Exception) -> str:
    """The error's first line, without an ending that would not fit into a sentence."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, InternalClientError):
        return "the session was ended"
    if isinstance(error, OSError) and error.errno is not None:
        return (os.strerror(error.errno) if error.errno > 0 else error.strerror or str(error)).lower()
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
