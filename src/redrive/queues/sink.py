"""A queue at the end of a policy's route: what a consumer gives up on waits there, with the story of its failure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec.structs import replace

from redrive.engine.dead_letters import DeadLetters
from redrive.model.arrival import Held
from redrive.model.errors import NotHeld, RedriveError
from redrive.model.instant import micros
from redrive.model.item import Fresh, Why
from redrive.model.letter import Letter
from redrive.model.message import outgoing
from redrive.model.story import Story, told
from redrive.queues import opening
from redrive.queues.checks import MOST_ITEMS
from redrive.queues.letters import SCHEME, fresh_of
from redrive.queues.line import partition_of
from redrive.queues.service import Queues
from redrive.settings import Settings

_PATIENCE = timedelta(seconds=30)


def beside(dlq: DeadLetters, settings: Settings, url: str) -> QueueSink:
    return QueueSink(opening.beside(dlq, settings), url.removeprefix(SCHEME), dlq)


class QueueSink:
    """Letters become items. `redrive collect` makes letters of them again."""

    def __init__(self, queues: Queues, queue: str, dlq: DeadLetters) -> None:
        self._queues = queues
        self._queue = queue
        self._dlq = dlq

    async def keep(self, letters: Sequence[Letter]) -> list[Held]:
        """One that is kept twice is there once."""
        try:
            queue = await self._queues.info(self._queue)
            items = [_item(letter, await self._dlq.body(letter), len(queue.partitions)) for letter in letters]
            for start in range(0, len(items), MOST_ITEMS):
                await self._queues.produce(self._queue, items[start : start + MOST_ITEMS], timeout=_PATIENCE)
        except RedriveError as error:
            raise NotHeld(f"not held: {error}; do not acknowledge the source") from error
        return [Held.NEW] * len(letters)

    async def close(self) -> None:
        """The queues are the store's."""


def _item(letter: Letter, body: bytes, partitions: int) -> Fresh:
    message = replace(outgoing(letter, body), headers=letter.headers, id=letter.source_id)
    story = Story(
        headers=letter.headers,
        failure=letter.failure,
        source=letter.source,
        attempts=len(letter.history),
        created_us=micros(letter.first_received_at),
        died_us=micros(letter.dead_lettered_at),
        why=Why.TOLD,
        origin=letter.origin,
    )
    source_id = f"{letter.id}.{letter.generation}.{letter.history[-1].occurrence}"
    return replace(fresh_of(message), story=told(story), source_id=source_id, partition=partition_of(source_id, partitions))
