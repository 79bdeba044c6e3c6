"""By rule: letters that go back without a person, whenever a rule finds some.

Several may follow the same rule on one desk. Whoever wants to begin writes its operation down first and looks afterwards: if
another of that rule is there, it takes its own back. So of two, at most one goes on, without a lock that somebody could die over.
"""

from __future__ import annotations

import logging
import random
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from redrive.engine.choose import RedrivePlan
from redrive.engine.operations import LOOKED_AT, Operations
from redrive.model.counted import counted
from redrive.model.errors import BadSettings, RedriveError
from redrive.model.lane import Lane
from redrive.model.operation import OVER, RULE, Entry, Operation, OperationStatus
from redrive.model.replay import ReplayRule
from redrive.ports.desk import Desk

log = logging.getLogger("redrive.dispatcher")

PATIENCE = timedelta(minutes=10)
"""An operation that says nothing for so long has nobody who runs it. A handler may take its time over a batch."""
STOPPED = "the dispatcher stopped; it goes on where one follows this rule"
_INTERRUPTED = "interrupted"
_LOOK = timedelta(seconds=30)
"""How often it looks at an operation that is not over."""
_SOON = timedelta(seconds=10)
_LONGEST = 6
"""How often the time between two looks is doubled at most, where nothing that is sent works."""


class ByRule:
    """Follows one rule: says which operation is to be run now, if any, and when to look again."""

    def __init__(
        self, rule: ReplayRule, operations: Operations, desk: Desk, namespace: str, *, patience: timedelta = PATIENCE
    ) -> None:
        """Raises what is wrong with the rule's target, as far as that can be known before something is sent."""
        try:
            self._target = operations.named(rule.to)
        except RedriveError as error:
            raise BadSettings(f"replay rule {rule.name}: {error}") from error
        self.rule = rule
        self.lane = Lane(namespace, rule.when_closed) if rule.when_closed else None
        # A desk may serve several namespaces, each with rules of its own.
        self._by = f"{RULE}{rule.name}" if namespace == "default" else f"{RULE}{namespace}/{rule.name}"
        self._operations = operations
        self._desk = desk
        self._patience = patience
        self._seen: tuple[Operation, float] | None = None
        """What is under way, and since when it has been just so, by a clock that nobody sets."""
        self._told: UUID | None = None
        self._left_out: set[str] = set()

    def to(self, operation: Operation) -> Any:
        """Where an operation of this rule goes: as the rule says, for that may have a login, unless it was another then."""
        return self.rule.to if operation.target == self._target else None

    async def next(self) -> tuple[Operation | None, timedelta]:
        """The operation to run now, which is ours alone; and how long to rest after that, or when there is none."""
        known = await self._known()
        under_way = [one for one in known if one.status not in OVER]
        if under_way:
            return await self._gone_on_with(under_way[0]), min(self.rule.every, _LOOK)
        self._seen = self._told = None
        rest = _rest(self.rule.every, known, datetime.now(UTC))
        if rest > timedelta():
            return None, rest
        return await self._begun()

    async def _begun(self) -> tuple[Operation | None, timedelta]:
        rule = self.rule
        query = rule.asked(datetime.now(UTC))
        plan = await self._operations.plan(rule.to, query=query, tempo=rule.tempo, by=self._by, most=rule.most)
        self._tell_left_out(plan)
        others = [one for one in await self._known() if one.id != plan.operation.id and one.status not in OVER]
        if not plan.total or others:
            await self._operations.forget(plan.operation.id)
            # Two who came at the same time do not come at the same time again.
            return None, min(rule.every, _SOON) * random.uniform(0.1, 1) if others else rule.every  # noqa: S311 - no secret
        log.info("replay rule %s has chosen %s", rule.name, counted(plan.total, "letter"))
        return plan.operation, rule.every

    async def _gone_on_with(self, operation: Operation) -> Operation | None:
        """An operation of this rule that is not over: ours if nobody else runs it, or a person's to decide."""
        is_paused = operation.status is OperationStatus.PAUSED
        self._told = self._told if is_paused else None
        if is_paused and operation.why != STOPPED:
            self._tell(operation)
            return None
        if not is_paused and not self._is_silent(operation):
            return None
        if operation.status is OperationStatus.PLANNED:
            gone = replace(operation, status=OperationStatus.CANCELLED, why="whoever chose its letters died")
            await self._desk.change(operation, replace(gone, finished_at=datetime.now(UTC)))
            return None
        ours = replace(operation, status=OperationStatus.RUNNING, why="", seen_at=datetime.now(UTC))
        if not await self._desk.change(operation, ours):
            return None
        log.info("replay rule %s goes on with its operation %s", self.rule.name, str(ours.id)[:8])
        return ours

    def _is_silent(self, operation: Operation) -> bool:
        """Has whoever runs it said nothing for too long? By what is seen here: hosts' clocks may be off, or be set."""
        now = time.monotonic()
        if self._seen is None or self._seen[0] != operation:
            self._seen = (operation, now)
        return now - self._seen[1] > self._patience.total_seconds()

    def _tell(self, operation: Operation) -> None:
        """Say once that a person has to decide."""
        if self._told == operation.id:
            return
        self._told = operation.id
        short = str(operation.id)[:8]
        log.warning(
            "replay rule %s waits: its operation %s is paused (%s); redrive ops resume %s or redrive ops cancel %s lets it go on",
            *(self.rule.name, short, operation.why, short, short),
        )

    def _tell_left_out(self, plan: RedrivePlan) -> None:
        """Say once why letters that match do not go."""
        for why in plan.refused.keys() - self._left_out:
            log.warning("replay rule %s leaves letters out: %s", self.rule.name, why)
        self._left_out = set(plan.refused)

    async def stopped(self, id: UUID) -> None:
        """This dispatcher stops: what it has interrupted is gone on with by whoever follows the rule next."""
        operation = await self._operations.get(id)
        if operation.status is OperationStatus.PAUSED and operation.why == _INTERRUPTED:
            await self._desk.change(operation, replace(operation, why=STOPPED))

    async def _known(self) -> list[Operation]:
        return [one for one in await self._operations.list(limit=LOOKED_AT) if one.by == self._by]


def _rest(every: timedelta, known: list[Operation], now: datetime) -> timedelta:
    """How long until the rule may begin again. Each time that nothing worked doubles it: what fails is not hammered.

    A clock that was put back makes nobody wait: what lies in the future was long ago.
    """
    if not known:
        return timedelta()
    fruitless = 0
    while fruitless < min(_LONGEST, len(known)) and set(_became(known[fruitless])) == {Entry.FAILED}:
        fruitless += 1
    since = now - known[0].started_at
    return timedelta() if since < timedelta() else max(timedelta(), every * 2**fruitless - since)


def _became(operation: Operation) -> list[Entry]:
    return [entry for entry, count in operation.entries.items() if count and entry is not Entry.SKIPPED]
