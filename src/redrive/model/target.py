"""The words in which a target is written down."""

from __future__ import annotations

SOURCE = "source"
"""Back to where each letter came from."""

HIDDEN = "***"
"""Stands in a target's name for what must not be told."""


def own(given: str) -> str:
    """A letter's own target as the letter has it: that of its source is none."""
    return "" if given == SOURCE else given
