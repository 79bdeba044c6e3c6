"""How many letters of a group came in each of its last hours: all that a page of groups shows, in a few bytes beside the group."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, msgpack

from redrive.model.hours import SHOWN

_KNOWN = SHOWN + 8
"""Hours that are known: whoever turns pages sees those up to the first page's."""


class Recent(Struct, array_like=True, gc=False):
    """Goes back from the latest hour that a letter ever came in, and knows nothing of what was long before."""

    latest: int
    counts: list[int]
    """The latest first; behind the last of them there were none."""

    @property
    def first(self) -> int:
        """The first hour that is known. That none came later than the latest is known too."""
        return self.latest - _KNOWN + 1

    def hours(self) -> dict[int, int]:
        """How many came in each hour that is known; one in which none came is left out."""
        return {self.latest - ago: count for ago, count in enumerate(self.counts) if count}

    def until(self, hour: int) -> list[int] | None:
        """How many came in each of the hours that are shown, the last of which is this one; None when not all are known."""
        later = self.latest - hour
        if later + SHOWN > _KNOWN:
            return None
        shown = self.counts[later : later + SHOWN] if later >= 0 else [*[0] * -max(later, -SHOWN), *self.counts][:SHOWN]
        shown += [0] * (SHOWN - len(shown))
        shown.reverse()
        return shown

    def growth(self, hour: int) -> int | None:
        """`redrive.model.hours.growth` of the hours until this one; None when not all are known."""
        later = self.latest - hour
        if later + 4 > _KNOWN:
            return None
        if later < -3:
            return 0
        if later < 0:
            counts = [*[0] * -later, *self.counts[: 4 + later]]
            return sum(counts[:2]) - sum(counts[2:])
        return sum(self.counts[later : later + 2]) - sum(self.counts[later + 2 : later + 4])

    def changed(self, changes: Mapping[int, int]) -> Recent:
        """With so many more in these hours; what is before the first that is known is not counted."""
        latest = max(self.latest, *changes)
        counts = [*[0] * min(latest - self.latest, _KNOWN), *self.counts, *[0] * _KNOWN][:_KNOWN]
        for hour, by in changes.items():
            if latest - hour < _KNOWN:
                counts[latest - hour] += by
        while counts and not counts[-1]:
            counts.pop()
        return Recent(latest, counts)


def recent(known: bytes | None, changes: Mapping[int, int]) -> Recent:
    """What was known of a group's hours, changed; of a group of which nothing was known there were no letters."""
    return (Recent(max(changes), []) if known is None else unpacked(known)).changed(changes)


packed = msgpack.Encoder().encode
"""As bytes for a store."""
unpacked = msgpack.Decoder(Recent).decode
