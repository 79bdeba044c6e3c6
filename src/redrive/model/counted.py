"""Numbers of things, as people read them."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """`1 letter`, `2,000 letters`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
