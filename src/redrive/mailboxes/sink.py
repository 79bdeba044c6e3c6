"""A mailbox at the end of a policy's route: a queue, made when the first letter comes."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.engine.dead_letters import DeadLetters
from redrive.mailboxes import checks
from redrive.mailboxes.dead_letter import SCHEME
from redrive.mailboxes.errors import InvalidParameterError
from redrive.mailboxes.making import make
from redrive.model.arrival import Held
from redrive.model.errors import BadSettings, NoSuchQueue, NotHeld, RedriveError
from redrive.model.letter import Letter
from redrive.queues import opening
from redrive.queues.service import Queues
from redrive.queues.sink import QueueSink
from redrive.settings import Settings


def beside(dlq: DeadLetters, settings: Settings, url: str) -> MailboxSink:
    try:
        name = checks.name(url.removeprefix(SCHEME))
    except InvalidParameterError as error:
        raise BadSettings(f"a route leads to '{url}': {error}") from None
    return MailboxSink(opening.beside(dlq, settings), name, dlq)


class MailboxSink:
    """Letters become items of the mailbox's queue, where a receiver of `DeadLetter` finds them, and `redrive collect` too."""

    def __init__(self, queues: Queues, mailbox: str, dlq: DeadLetters) -> None:
        self._queues = queues
        self._mailbox = mailbox
        self._sink = QueueSink(queues, mailbox, dlq)

    async def keep(self, letters: Sequence[Letter]) -> list[Held]:
        """One that is kept twice is there once."""
        try:
            try:
                await self._queues.info(self._mailbox)
            except NoSuchQueue:
                await make(self._queues, self._mailbox)
        except RedriveError as error:
            raise NotHeld(f"not held: {error}; do not acknowledge the source") from error
        return await self._sink.keep(letters)

    async def close(self) -> None:
        """The queues are the store's."""
