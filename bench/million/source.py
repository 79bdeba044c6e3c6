"""Where the letters come from, and the store that they fill."""

from __future__ import annotations

import sys
from array import array
from collections import deque
from datetime import UTC, datetime, timedelta
from itertools import islice

from bench.harness import Watch
from bench.million.grounds import Ground
from redrive.model.instant import micros
from redrive.model.letter import Letter
from redrive.testing.fill import letters

FILL_BATCH = 500


class Source:
    """One generator for the whole fill. What was looked at ahead comes first when more is taken."""

    def __init__(self, most: int, groups: int) -> None:
        self._made = letters(most, groups=groups)
        self._ahead: deque[Letter] = deque()

    def ahead(self, number: int) -> list[Letter]:
        """The letters that come next, which are not taken by that."""
        while len(self._ahead) < number:
            self._ahead.append(next(self._made))
        return list(islice(self._ahead, number))

    def take(self, number: int) -> list[Letter]:
        taken = self.ahead(number)
        for _ in taken:
            self._ahead.popleft()
        return taken


class Filled:
    """A store that is filled step by step."""

    def __init__(self, ground: Ground, source: Source) -> None:
        self.ground = ground
        self.store = ground.dlq.letters
        self.source = source
        self.held = 0
        self._died = array("q")
        """When each letter died."""

    async def fill(self, size: int) -> None:
        """Up to so many letters."""
        with Watch() as watch:
            first = self.held
            while self.held < size:
                some = self.source.take(min(FILL_BATCH, size - self.held))
                await self.store.put(some)
                self._died.extend(micros(letter.dead_lettered_at) for letter in some)
                self.held += len(some)
                if self.held % 50_000 < FILL_BATCH and self.held < size:
                    self.say(f"{self.held:,} letters")
        self.say(f"{size:,} letters held, {watch.rate(size - first):,.0f} a second with making them")

    @property
    def now(self) -> datetime:
        """The instant that the letters end at."""
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=max(self._died))

    def say(self, text: str) -> None:
        """Tell whoever watches how far it is."""
        print(f"{datetime.now():%H:%M:%S} {self.ground.name}: {text}", file=sys.stderr, flush=True)  # noqa: DTZ005 - for whoever watches
