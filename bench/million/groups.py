"""Groups and statistics, beside a GROUP BY over all letters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

from bench.million.grounds import PAGE
from bench.million.growth import Cost
from bench.million.questions import NAMESPACE
from bench.million.rounds import Rounds
from bench.million.source import Filled
from redrive.model.hours import HOUR
from redrive.model.instant import micros
from redrive.model.query import Field, GroupOrder, Is

_GROUPS = (
    "SELECT fingerprint, count(*), min(dead_lettered_at), max(dead_lettered_at) FROM letters WHERE namespace = $1"
    " GROUP BY fingerprint ORDER BY {} DESC, fingerprint DESC LIMIT 101"
)
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
