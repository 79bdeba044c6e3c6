"""A failure that was told of: there are words, and no exception."""

from __future__ import annotations

from redrive.model.category import Category
from redrive.model.fingerprint import VERSION, Trace, fingerprint_of
from redrive.model.letter import Failure


def failure(type: str, message: str, category: Category, *, traceback: str = "") -> Failure:
    """The failure, in the group that its words make."""
    found = fingerprint_of(Trace(type=type, message=message))
    return Failure(
        type=type,
        message=message,
        category=category,
        traceback=traceback,
        fingerprint=found.digest,
        fingerprint_version=VERSION,
        fingerprint_reason=found.reason,
    )
