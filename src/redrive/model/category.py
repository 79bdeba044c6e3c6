"""What kinds of failure there are, and how each is retried unless told otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct


class Category(StrEnum):
    TRANSIENT = "transient"
    NETWORK = "network"
    RESOURCE = "resource"
    PERMISSION = "permission"
    VALIDATION = "validation"
    PERMANENT = "permanent"

    @property
    def default_retry(self) -> DefaultRetry:
        """How a failure of this kind is retried when nobody says otherwise."""
        return DEFAULT_RETRIES[self]


class DefaultRetry(Struct, frozen=True):
    """A retry policy by its name, and how often it is followed."""

    policy: str
    max_retries: int


DEFAULT_RETRIES: Mapping[Category, DefaultRetry] = MappingProxyType(
    {
        Category.TRANSIENT: DefaultRetry("exponential", 5),
        Category.NETWORK: DefaultRetry("exponential", 3),
        Category.RESOURCE: DefaultRetry("linear", 2),
        Category.PERMISSION: DefaultRetry("never", 0),
        Category.VALIDATION: DefaultRetry("never", 0),
        Category.PERMANENT: DefaultRetry("never", 0),
    }
)
"""What a retry could mend is retried; all else waits for a person."""
