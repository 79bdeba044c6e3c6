"""Kills at any instant of a life, however long a life is on this machine at this moment."""

from __future__ import annotations

import random

from redrive.testing import Harness

_LONGEST_SECONDS = 0.5
_SHORTEST_SECONDS = 0.02


class Instants:
    """Kills children at random, and learns from those that came to their end before how long a life is."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._life = _LONGEST_SECONDS

    def live(self, harness: Harness) -> bool:
        """Let a child live until some instant; was it killed?"""
        was_killed = harness.live(after_seconds=self._dice.uniform(0.005, self._life))
        self._life = min(self._life * 1.3, _LONGEST_SECONDS) if was_killed else max(self._life * 0.6, _SHORTEST_SECONDS)
        return was_killed
