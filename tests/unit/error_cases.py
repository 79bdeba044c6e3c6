"""A case of the table: how an error comes about, and the category that it should have."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from redrive import Category
from tests.unit.places import Place

T, N, R = Category.TRANSIENT, Category.NETWORK, Category.RESOURCE
P, V, F = Category.PERMISSION, Category.VALIDATION, Category.PERMANENT


class Case(NamedTuple):
    name: str
    category: Category
    fail: Callable[[Place], object]
    """Raises."""


def at(path: str) -> Callable[[Place], str]:
    return lambda place: f"{place.http}/{path}"
