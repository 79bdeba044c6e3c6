"""`DeadLetterQueue`: failed tasks as the workflow DLQ has them, on any store of letters."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from msgspec import Struct

from redrive.engine.dead_letters import DeadLetters
from redrive.engine.depend import ensure_no_circle
from redrive.engine.describe import clean
from redrive.engine.hook import HookFunction
from redrive.engine.processor import RetryProcessor
from redrive.engine.retry import Retried
from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.backoff import named
from redrive.model.breaker import DENIED
from redrive.model.category import DefaultRetry
from redrive.model.errors import BadSettings, IllegalTransition, LetterLeased, StoreError, UnknownLetter
from redrive.model.letter import Letter, letter_id
from redrive.model.operation import Delivered, Refused
from redrive.model.pace import Pace
from redrive.model.query import And, Field, Is, Order
from redrive.model.settlement import Settled
from redrive.model.status import Act, Status
from redrive.ports.notifier import Notifier
from redrive.workflows.callback import CallbackTransport, RetryCallback, retried_here
from redrive.workflows.capacity import Capacity
from redrive.workflows.figures import Figures
from redrive.workflows.names import STATUSES, DeadLetterStatus, ErrorCategory, RetryPolicy, chosen, priority_of
from redrive.workflows.observed import Observability, Observer
from redrive.workflows.opening import opened
from redrive.workflows.task import FailedTask, Failing, in_words, letter_of, task_of
from redrive.workflows.view import ACTIVE, among, summed

log = logging.getLogger("redrive.workflows")

SOURCE = "workflows"
NO_CALLBACK = "No retry callback configured. Use start_retry_processor() first."
_BATCH = 500
_ENTERED = (Held.NEW, Held.REOPENED, Held.JOURNALED)
"""Ways to be held in which a task comes into the queue; otherwise it was there."""


class Defaults(Struct, frozen=True, kw_only=True):
    """How tasks are retried when nobody says otherwise, and how many at a time."""

    retry_policy: str = RetryPolicy.EXPONENTIAL
    max_retries: int = 3
    concurrency: int = 10

    def of(self, category: ErrorCategory) -> DefaultRetry:
        """How a failure of this kind is retried: as its category says, but as often as was said here, if it was."""
        own = category.default_retry
        is_told = self.max_retries != Defaults().max_retries
        return DefaultRetry(own.policy, self.max_retries) if is_told and own.max_retries else own


class DeadLetterQueue:
    """Keeps tasks that failed, retries them as their policies say, and lets people look at them, retry and archive them."""

    def __init__(
        self,
        max_size: int = 10_000,
        opensearch_client: Any = None,
        observability_manager: Observability | None = None,
        *,
        store: str | DeadLetters | None = None,
        source: str = SOURCE,
        defaults: Defaults = Defaults(),
        alerts: Sequence[Notifier | HookFunction] = (),
        fail_on_opensearch_unavailable: bool = False,
        is_for_display: bool = False,
    ) -> None:
        """Where tasks are kept: in OpenSearch by way of the client, or in the `store`; without either, where the settings say.

        `max_size` bounds what is in the queue: pending, retrying and exhausted. Completed and archived tasks are the record.
        `alerts` are told of tasks that are exhausted: functions that take an `Alert`, or notifiers. `is_for_display`: tasks are
        given out as people may see them, by today's redaction.
        """
        if max_size < 0:
            raise BadSettings(f"max_size must be at least 0, got {max_size}")
        self.max_size = max_size
        self.source = source
        self.defaults = defaults
        self._is_for_display = is_for_display
        self._is_ours = not isinstance(store, DeadLetters)
        self.letters = opened(store, opensearch_client, alerts=alerts, is_refusing=fail_on_opensearch_unavailable)
        """The letters of this queue, for everything that this room has no word for."""
        self._capacity = Capacity(max_size, self._size)
        self._figures = Figures(self.letters.desk, f"workflows/{self.letters.namespace}/{source}/")
        self._observer = Observer(observability_manager)
        self._linking = asyncio.Lock()
        """Two tasks that wait for each other must not both be looked at before either is kept."""
        self._target: CallbackTransport | None = None
        self._processor: RetryProcessor | None = None
        self._interval_seconds: float | None = None

    async def enqueue(
        self,
        task_id: str,
        task: dict[str, Any],
        repos: Sequence[str] | None,
        error: str | BaseException,
        retry_policy: RetryPolicy | str | None = None,
        max_retries: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        error_category: ErrorCategory | str | None = None,
        *,
        priority: int | str | None = None,
        depends_on: Sequence[str] = (),
    ) -> FailedTask:
        """Keep a task that failed. The same id again is the same task: what it failed with is added to its story.

        Raises `QueueFull`, which is a ValueError, when there is no room: then the failure is still the caller's.
        """
        policy = str(retry_policy if retry_policy is not None else self.defaults.retry_policy)
        named(policy)
        failing = Failing(
            task_id=task_id,
            task=task,
            repos=repos or (),
            error=error,
            policy=policy,
            max_retries=self.defaults.max_retries if max_retries is None else max_retries,
            category=None if error_category is None else chosen(ErrorCategory, error_category, "error category"),
            metadata=metadata or {},
            priority=priority_of(priority, metadata or {}),
            depends_on=depends_on,
        )
        letter = letter_of(failing, namespace=self.letters.namespace, source=self.source)
        if retried_here() == letter.source_id and (known := await self.get_task(task_id)) is not None:
            # It is being retried right now: that retry's own failure is about to be written down.
            return known
        if not letter.depends_on:
            return await self._kept(letter)
        async with self._linking:
            try:
                await ensure_no_circle(self.letters.letters, [letter])
            except StoreError as down:
                # A failure must be kept; should it wait for itself, it says what it waits for.
                log.warning("nobody can say what task %s waits for: %s", letter.source_id, down.code)
            return await self._kept(letter)

    async def _kept(self, letter: Letter) -> FailedTask:
        has_place = await self._has_place(letter)
        held: Held | None = None
        try:
            (held,) = await self.letters.hold([letter])
        finally:
            if has_place:
                self._capacity.settle(is_kept=None if held is None else held in _ENTERED)
        if held in _ENTERED:
            await self._figures.add(enqueued_total=1, exhausted=int(letter.status is Status.EXHAUSTED))
            self._observer.tell("dlq.enqueued", task_id=letter.source_id, category=letter.failure.category.value, held=held.value)
        if held not in (Held.NEW, Held.JOURNALED):
            # It is held, so that nobody need hear of a store that cannot be asked any more.
            with contextlib.suppress(StoreError):
                return await self.get_task(letter.source_id) or task_of(letter, letter.body)
        return task_of(letter, letter.body)

    async def _has_place(self, letter: Letter) -> bool:
        """Was a place reserved? A task that is in the queue already needs none; `QueueFull` when there is none for another."""
        try:
            if await self._capacity.reserve():
                return True
            if not await self._is_in_queue(letter):
                raise self._capacity.full()
        except StoreError as error:
            # Nobody knows how many there are, but a failure must be kept: the journal takes it, or the caller is told.
            log.warning("nobody can say how full the queue is: %s", error.code)
        return False

    async def list_tasks(
        self,
        status: DeadLetterStatus | str | None = None,
        limit: int = 100,
        error_category: ErrorCategory | str | None = None,
    ) -> list[FailedTask]:
        """Tasks, the newest first: those in the queue, or those with this status."""
        statuses = ACTIVE if status is None else (chosen(DeadLetterStatus, status, "status"),)
        query = among(self.source, statuses)
        if error_category is not None:
            query = And((query, Is(Field.CATEGORY, chosen(ErrorCategory, error_category, "error category").value)))
        found: list[FailedTask] = []
        if limit > 0:
            async for letter in self.letters.find(query, order=Order.NEWEST, page=min(limit, _BATCH)):
                found.append(await self._seen(letter))
                if len(found) == limit:
                    break
        return found

    async def get_task(self, task_id: str) -> FailedTask | None:
        """One task, in the queue or in the record; None: there is none, or it was cleared away."""
        letter = await self._letter(task_id)
        return None if letter is None or letter.status is Status.DISCARDED else await self._seen(letter)

    async def retry_task(self, task_id: str, callback: RetryCallback | None = None) -> dict[str, Any]:
        """Retry one task now, whatever its time, by this callback or by the one that the processor was started with."""
        target = self._target if callback is None else CallbackTransport(callback)
        if target is None:
            return _not_retried(task_id, NO_CALLBACK)
        try:
            retried = await self.letters.retry(self._id(task_id), target)
        except UnknownLetter:
            return _not_retried(task_id, f"Task {task_id} not found in dead letter queue")
        except LetterLeased:
            return _not_retried(task_id, f"Task {task_id} is being retried right now")
        except IllegalTransition as error:
            return _not_retried(task_id, await self._obstacle(task_id, error))
        if retried.delivery is not None:
            await self._figures.add(manually_retried=1)
        await self._counted([retried])
        match retried.delivery:
            case Delivered(result=result):
                return {"success": True, "task_id": task_id, "result": result, "message": "Task successfully retried"}
            case Refused(failure=failure):
                return _not_retried(task_id, in_words(failure.type, failure.message))
            case _:
                return _not_retried(task_id, DENIED)

    async def archive_task(self, task_id: str) -> bool:
        """Put a task away: out of the queue, kept in the record. False when it is not in the queue, or being retried right now."""
        if not _is_active(await self._letter(task_id)):
            return False
        (answer,) = await self.letters.letters.amend([Amendment(id=self._id(task_id), act=Act.ARCHIVE)])
        if answer is Amended.LEASED:
            log.warning("Task %s is being retried right now and was not archived", task_id)
        if answer is not Amended.DONE:
            return False
        await self._figures.add(archived=1)
        self._observer.tell("dlq.archived", task_id=task_id)
        return True

    async def clear_all(self) -> int:
        """Take every task out of the queue that is not being retried right now; answer how many.

        They are discarded, not removed: `redrive restore` brings them back until they are purged.
        """
        cleared = 0
        free = self.letters.within(among(self.source, (DeadLetterStatus.PENDING, DeadLetterStatus.EXHAUSTED)))
        after: str | None = None
        while True:
            # Page by page: a store whose search lags behind its writes would show the first one again.
            page = await self.letters.letters.find(free, limit=_BATCH, after=after)
            changes = [Amendment(id=letter.id, act=Act.DISCARD, reason="cleared") for letter in page.letters]
            cleared += Counter(await self.letters.letters.amend(changes))[Amended.DONE]
            if (after := page.next) is None:
                return cleared

    async def get_statistics(self) -> dict[str, Any]:
        """How full the queue is, what is in it, and what has happened since it was made."""
        active = self.letters.within(among(self.source, ACTIVE))
        store = self.letters.letters
        statuses = summed(await store.tally(Field.STATUS, active))
        size = sum(statuses.values())
        return {
            "queue_size": size,
            "max_size": self.max_size,
            "utilization_percent": round(100 * size / self.max_size, 2) if self.max_size else 100.0,
            "status_breakdown": statuses,
            "error_categories": {category.value: 0 for category in ErrorCategory} | await store.tally(Field.CATEGORY, active),
            "retry_policies": {policy.value: 0 for policy in RetryPolicy} | await store.tally(Field.POLICY, active),
            "lifetime_stats": await self._figures.read(),
            "is_processor_running": self.is_processor_running,
            "retry_interval_seconds": self._interval_seconds if self.is_processor_running else None,
        }

    async def health(self) -> dict[str, Any]:
        """Is the store there, and do tasks wait for it in the local journal?"""
        try:
            await self.letters.letters.check()
            why = None
        except StoreError as error:
            why = str(error)
        waiting = self.letters.journaled
        return {"status": "degraded" if why or waiting else "healthy", "store_error": why, "journaled_tasks": waiting}

    async def start_retry_processor(self, callback: RetryCallback, check_interval_seconds: float = 60) -> None:
        """Retry tasks as they come due, each by `callback(task, repos)`. Starting it twice is fine."""
        if self.is_processor_running:
            log.warning("The retry processor is running already")
            return
        target = CallbackTransport(callback)
        pace = Pace(
            interval=timedelta(seconds=check_interval_seconds),
            concurrency=self.defaults.concurrency,
            lease=self.letters.limits.lease,
        )
        self._processor = self.letters.processor({self.source: target}, pace=pace, listener=self._counted)
        self._target, self._interval_seconds = target, check_interval_seconds
        await self._processor.start()

    async def stop_retry_processor(self) -> None:
        """Stop retrying. What is being retried may finish within a few seconds; all else is given back."""
        if self._processor is not None:
            await self._processor.stop()
            self._processor = None

    @property
    def is_processor_running(self) -> bool:
        return self._processor is not None and self._processor.is_running

    async def close(self) -> None:
        """Stop retrying, and let go of the store if this queue opened it."""
        await self.stop_retry_processor()
        await self._figures.add()
        if self._is_ours:
            await self.letters.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def _counted(self, retried: Sequence[Retried]) -> None:
        """Keep the figures of retries that were settled; of those that came too late, whoever took them over tells."""
        settled = [one for one in retried if one.answer is Settled.DONE]
        worked = [one for one in settled if one.has_worked]
        failed = [one for one in settled if one.has_failed]
        exhausted = [one for one in failed if one.is_exhausted]
        await self._figures.add(retry_success=len(worked), retry_failed=len(failed), exhausted=len(exhausted))
        for one in (*worked, *failed):
            self._observer.tell("dlq.retried", task_id=one.letter.source_id, success=one.has_worked)
        for one in exhausted:
            self._observer.tell("dlq.exhausted", task_id=one.letter.source_id, category=one.letter.failure.category.value)

    async def _size(self) -> int:
        return await self.letters.count(among(self.source, ACTIVE))

    async def _is_in_queue(self, letter: Letter) -> bool:
        return _is_active(await self._letter(letter.source_id))

    async def _obstacle(self, task_id: str, error: IllegalTransition) -> str:
        """Why a task cannot be retried: it waits for others, or it is not in the queue any more."""
        is_in_queue = _is_active(await self._letter(task_id))
        return str(error) if is_in_queue else f"Task {task_id} not found in dead letter queue"

    def _id(self, task_id: str) -> UUID:
        return letter_id(self.letters.namespace, self.source, clean(task_id))

    async def _letter(self, task_id: str) -> Letter | None:
        (letter,) = await self.letters.letters.get([self._id(task_id)])
        return letter

    async def _seen(self, letter: Letter) -> FailedTask:
        seen = self.letters.shown(letter) if self._is_for_display else letter
        return task_of(seen, await self.letters.body(seen))


def _not_retried(task_id: str, error: str) -> dict[str, Any]:
    return {"success": False, "task_id": task_id, "error": error, "message": "Task retry failed"}


def _is_active(letter: Letter | None) -> bool:
    return letter is not None and STATUSES[letter.status] in ACTIVE
