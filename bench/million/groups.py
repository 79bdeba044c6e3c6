"""Groups and statistics, beside a GROUP BY over all letters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

from bench.million.grounds import PAGE
from bench.million.growth import Cost
from bench.million.questions import NAMESPACE, common
from bench.million.rounds import Rounds
from bench.million.source import Filled
from redrive.model.hours import HOUR
from redrive.model.instant import micros
from redrive.model.query import And, Field, GroupOrder, Is, Query

_GROUPS = (
    "SELECT fingerprint, count(*), min(dead_lettered_at), max(dead_lettered_at) FROM letters WHERE namespace = $1"
    " GROUP BY fingerprint ORDER BY {} DESC, fingerprint DESC LIMIT 101"
)
# Joined with nothing, so that letters are gone through in the order in which they lie, which is quicker than group by group.
_FILTERED = (
    "SELECT fingerprint || '', count(*), min(dead_lettered_at), max(dead_lettered_at) FROM letters WHERE namespace = $1 AND {} = $2"
    " GROUP BY 1 ORDER BY 4 DESC, 1 DESC LIMIT 101"
)
_ALONE = "SELECT count(*), min(dead_lettered_at), max(dead_lettered_at) FROM letters WHERE namespace = $1 AND fingerprint = $2"
_GROWN = (
    "SELECT fingerprint, sum(CASE WHEN dead_lettered_at >= $3 THEN 1 ELSE -1 END) FROM letters WHERE namespace = $1"
    " AND dead_lettered_at >= $2 GROUP BY fingerprint ORDER BY 2 DESC, 1 DESC LIMIT 101"
)


class Groups:
    """Measures what a dashboard asks for: failures, and how many letters there are of what."""

    def __init__(self, filled: Filled) -> None:
        self._filled = filled
        self._store = filled.store
        self._rounds = Rounds(filled.ground)

    async def groups(self) -> AsyncIterator[Cost]:
        """A page of groups, in each order."""
        now, within = self._filled.now, Is(Field.NAMESPACE, NAMESPACE)
        hour = micros(now) // HOUR
        statements = {
            GroupOrder.LAST_SEEN: self._rounds.fetch(_GROUPS.format("max(dead_lettered_at)"), NAMESPACE),
            GroupOrder.COUNT: self._rounds.fetch(_GROUPS.format("count(*)"), NAMESPACE),
            GroupOrder.GROWTH: self._rounds.fetch(_GROWN, NAMESPACE, (hour - 3) * HOUR, (hour - 1) * HOUR),
        }
        for order, statement in statements.items():

            async def listed(order: GroupOrder = order) -> object:
                return (await self._store.groups(within, order=order, limit=PAGE, now=now)).groups

            yield await self._rounds.beside_raw(
                f"groups-{order}", f"100 groups by {order}", listed, statement, goal=5, is_absolute=True
            )

    async def chosen(self) -> AsyncIterator[Cost]:
        """A page of groups of the letters that have a common value, and the largest group alone."""
        now, within = self._filled.now, Is(Field.NAMESPACE, NAMESPACE)
        for field in (Field.STATUS, Field.SOURCE, Field.CATEGORY):
            value, *_ = await common(self._store, field)

            async def listed(query: Query = And((within, Is(field, value)))) -> object:
                return (await self._store.groups(query, limit=PAGE, now=now)).groups

            statement = self._rounds.fetch(_FILTERED.format(field), NAMESPACE, value)
            yield await self._rounds.beside_raw(
                f"groups-of-{field}", f"100 groups of one {field}, by last-seen", listed, statement, note=value
            )
        largest, *_ = await common(self._store, Field.GROUP)

        async def alone() -> object:
            return (await self._store.groups(And((within, Is(Field.GROUP, largest))), now=now)).groups

        statement = self._rounds.fetch(_ALONE, NAMESPACE, largest)
        yield await self._rounds.beside_raw("group-alone", "the largest group alone", alone, statement, goal=5, is_absolute=True)

    async def statistics(self) -> AsyncIterator[Cost]:
        """Letters by a field, and by the hour."""
        now, within = self._filled.now, Is(Field.NAMESPACE, NAMESPACE)
        for field in (Field.STATUS, Field.SOURCE, Field.CATEGORY):

            async def tallied(field: Field = field) -> object:
                return await self._store.tally(field, within, now=now)

            statement = self._rounds.fetch(f"SELECT {field}, count(*) FROM letters WHERE namespace = $1 GROUP BY 1", NAMESPACE)
            yield await self._rounds.beside_raw(
                f"tally-{field}", f"letters by {field}", tallied, statement, goal=5, is_absolute=True
            )

        async def hourly() -> object:
            return await self._store.hourly(now - timedelta(hours=23), now, within, now=now)

        since = (micros(now) // HOUR - 23) * HOUR
        statement = self._rounds.fetch(
            f"SELECT dead_lettered_at / {HOUR}, count(*) FROM letters WHERE namespace = $1 AND dead_lettered_at >= $2 GROUP BY 1",
            NAMESPACE,
            since,
        )
        yield await self._rounds.beside_raw("hourly", "letters of the last 24 hours", hourly, statement, goal=5, is_absolute=True)
