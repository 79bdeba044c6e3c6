"""A bucket of tokens: how many items a rate lets pass now."""

from __future__ import annotations

from math import ceil

from msgspec import Struct


class Bucket(Struct, frozen=True):
    """Holds one second's worth of the rate, at least one; a new one is full."""

    tokens: float = 0.0
    at_us: int = 0

    def filled(self, rate: float, now_us: int) -> Bucket:
        """As it is at this instant. A clock that went back adds nothing."""
        passed_us = max(now_us - self.at_us, 0)
        return Bucket(min(max(rate, 1.0), self.tokens + passed_us * rate / 1e6), max(now_us, self.at_us))

    @property
    def whole(self) -> int:
        return int(self.tokens + 1e-9)

    def less(self, count: int) -> Bucket:
        return Bucket(self.tokens - count, self.at_us)

    def wait_us(self, rate: float) -> int:
        """How long until one more is there."""
        return max(ceil((1.0 - self.tokens) / rate * 1e6), 1)
