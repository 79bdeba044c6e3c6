"""The way of a letter in one object: guard, capture, hold, redrive, retain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Protocol, Self
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from redrive.engine.address import Resolve, To
from redrive.engine.alert import Alarm
from redrive.engine.bridge import Bridge
from redrive.engine.bulk import Bulk
from redrive.engine.by_hand import ByHand, leased
from redrive.engine.call import FunctionTransport, refusal
from redrive.engine.capture import Labels, Try, captured
from redrive.engine.confirm import confirmed
from redrive.engine.course import Course
from redrive.engine.describe import TRACEBACK_LIMIT, describe
from redrive.engine.errands import Errands
from redrive.engine.extract import Extractor, arguments
from redrive.engine.guard import After, Guard, redelivering
from redrive.engine.hold import Holder, JournalLike
from redrive.engine.operate import Report
from redrive.engine.operations import Operations
from redrive.engine.owner import owner_name
from redrive.engine.processor import Listener, RetryProcessor
from redrive.engine.redact import Redactor
from redrive.engine.repair import Repair
from redrive.engine.retry import Breakers, Retried
from redrive.engine.send import Sender
from redrive.engine.settle import settle
from redrive.engine.telemetry import SILENT, Telemetry
from redrive.engine.triage import Triages
from redrive.engine.working import Working
from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.backoff import named
from redrive.model.errors import BadSettings, IllegalTransition, LeaseLost, UnknownLetter
from redrive.model.lane import Lane
from redrive.model.lease import Claimed
from redrive.model.letter import Failure, Letter, RetryPlan
from redrive.model.letter import headers as as_headers
from redrive.model.message import Message
from redrive.model.pace import Pace
from redrive.model.policy import Policy
from redrive.model.query import Field, Is, Query
from redrive.model.redaction import Redaction
from redrive.model.replay import ReplayRule
from redrive.model.retention import RetentionRule
from redrive.model.settlement import Outcome, Settled, Settlement
from redrive.model.status import Status, ensure_legal
from redrive.model.target import own
from redrive.model.tempo import Tempo
from redrive.ports.bodies import Bodies
from redrive.ports.desk import Desk
from redrive.ports.inline import is_inline
from redrive.ports.letters import LetterStore
from redrive.ports.queues import QueueStore
from redrive.ports.transport import Transport

_AT_ONCE = (Held.NEW, Held.REOPENED, Held.JOURNALED)
"""Ways to be held in which a letter is as it came."""


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds that keep letters at a size people can handle."""

    body: int = 1_048_576
    traceback: int = TRACEBACK_LIMIT
    lease: timedelta = timedelta(seconds=60)


class Captured(Struct, frozen=True, kw_only=True):
    """A letter that was held, and how."""

    letter: Letter
    held: Held


class Sink(Protocol):
    """Where a policy's route leads that is no store of letters: a queue, say."""

    async def keep(self, letters: Sequence[Letter]) -> list[Held]:
        """Keep letters as durably as their source may be settled for; `NotHeld` when that is impossible."""
        ...

    async def close(self) -> None: ...


class DeadLetters(Working):
    """Opened by `redrive.open(url)`. `letters` and `desk` are the ports themselves; the verbs here join them up."""

    def __init__(
        self,
        letters: LetterStore,
        desk: Desk,
        *,
        namespace: str = "default",
        bodies: Bodies | None = None,
        journal: JournalLike | None = None,
        limits: Limits | None = None,
        telemetry: Telemetry = SILENT,
        redaction: Redaction | None = None,
        retention: Sequence[RetentionRule] = (),
        replay: Sequence[ReplayRule] = (),
        alarm: Alarm | None = None,
        elsewhere: Callable[[str], DeadLetters | Sink] | None = None,
        targets: Mapping[str, str] | None = None,
        resolve: Resolve | None = None,
        is_loop_bound: bool = False,
        queues: QueueStore | None = None,
    ) -> None:
        """`retention` and `replay` are the rules of whoever keeps this house; `alarm` is told of letters that are exhausted; `elsewhere` opens the stores that a policy's routes name; `targets` are where letters of a source go back to, and `resolve`
        makes the transport that a URL names.

        `is_loop_bound`: the store can be used on its caller's event loop alone, so that nothing may be done from another.
        """
        self.letters = letters
        self.desk = desk
        self.queue_store = queues
        """The queues in the same place; None: it keeps none. `redrive.queues` serves them."""
        self.namespace = namespace
        self.limits = limits or Limits()
        self.telemetry = telemetry
        self.bridge = Bridge(inline=letters.capabilities.inline)
        self._errands = Errands()
        self._holder = Holder(
            letters,
            bodies=bodies,
            journal=journal,
            body_limit=self.limits.body,
            telemetry=telemetry,
            start=self._errands.start if is_loop_bound else self.bridge.start,
        )
        self._journal = journal
        self._redaction = redaction
        self._redactor = Redactor(redaction) if redaction else None
        self._sender = Sender(self._holder, self._redactor)
        self.operations = Operations(
            letters,
            desk,
            self._sender,
            within=self.within,
            lease=self.limits.lease,
            telemetry=telemetry,
            resolve=resolve or _unresolved,
            homes=targets or {},
            namespace=namespace,
        )
        self.triage = Triages(desk, namespace)
        self.repairs = Repair(
            letters,
            desk,
            amend=self._amended,
            body_of=self.body,
            within=self.within,
            check=self._allowed,
            ensure_target=self.operations.ensure_target,
        )
        self._bulk = Bulk(letters, desk, self._holder.drop_bodies)
        self._rules = tuple(retention)
        self._replay = tuple(replay)
        self.breakers = Breakers()
        """One a source, for automatic and manual retries alike."""
        self._alarm = alarm
        self._elsewhere = elsewhere
        self._others: dict[str, DeadLetters | Sink] = {}

    def guard(
        self,
        *,
        source: str,
        policy: Policy = Policy(),
        extract: Extractor = arguments,
        after: After | None = None,
        retry: RetryPlan = RetryPlan(),
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> Guard:
        """Guard a consumer: `@dlq.guard(source="orders")`. See `redrive.engine.guard` for what its caller sees."""
        labels = self._labels(source, retry, tags, metadata)
        for route in policy.routes:
            self._other(route.to)
        limit = self.limits.traceback
        course = Course(labels, policy=policy, extract=extract, traceback_limit=limit, redactor=self._redactor)
        return Guard(course, self._keep, after=after, confirm=self.confirm)

    async def capture(
        self,
        message: Any,
        error: BaseException | Failure,
        *,
        source: str,
        id: str | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        retry: RetryPlan = RetryPlan(),
    ) -> Captured:
        """Hold one message by hand, with the error it failed on. `message` may be a `Message` or any plain value."""
        one = arguments(message)
        if id is not None:
            one = replace(one, id=id)
        if headers:
            one = replace(one, headers=one.headers + as_headers(headers))
        failure = error if isinstance(error, Failure) else describe(error, traceback_limit=self.limits.traceback)
        now = datetime.now(UTC)
        labels = self._labels(source, retry, tags, metadata)
        (letter,) = self._redacted([captured(one, [Try(at=now, failure=failure)], labels, now=now)])
        (held,) = await self._keep([letter])
        return Captured(letter=letter, held=held)

    async def confirm(self, messages: Sequence[Message]) -> int:
        """Note that messages have worked that redrive sent back, so that their letters are done; answers how many are.

        A guard does it by itself for handlers that are given a `Message`, and for those of a batch; whoever takes messages
        in another form calls it by hand. It never raises: the work is done, whatever a store says.
        """
        if redelivering.get():
            # redrive itself called the handler, and settles the letter.
            return 0
        if is_inline() and not self.letters.capabilities.inline:
            return self.bridge.run_on_loop(confirmed(self.letters, messages))
        return await confirmed(self.letters, messages)

    def _labels(self, source: str, retry: RetryPlan, tags: Sequence[str], metadata: Mapping[str, Any] | None) -> Labels:
        # A misspelt policy is told of now, not when a message has failed.
        named(retry.policy)
        return Labels(namespace=self.namespace, source=source, retry=retry, tags=tuple(tags), metadata=dict(metadata or {}))

    async def hold(self, letters: Sequence[Letter]) -> list[Held]:
        """Hold letters that were made elsewhere; `NotHeld` when that is impossible."""
        return await self._keep(self._redacted(letters))

    def _redacted(self, letters: Sequence[Letter]) -> Sequence[Letter]:
        return letters if self._redactor is None else self._redactor.letters(letters)

    async def _keep(self, letters: Sequence[Letter], to: str | None = None) -> list[Held]:
        if to is not None:
            other = self._other(to)
            if isinstance(other, DeadLetters):
                return await other._keep(letters)  # noqa: SLF001 - another of the same kind
            return await self._sunk(other, letters)
        if is_inline() and not self.letters.capabilities.inline:
            answers = self.bridge.run_on_loop(self._holder.hold(letters))
        else:
            answers = await self._holder.hold(letters)
        if self._alarm is not None:
            held = zip(letters, answers, strict=True)
            self._alarm.exhausted([one for one, how in held if one.status is Status.EXHAUSTED and how in _AT_ONCE])
        return answers

    async def _sunk(self, sink: Sink, letters: Sequence[Letter]) -> list[Held]:
        if is_inline() and not (self.queue_store and self.queue_store.capabilities.inline):
            return self.bridge.run_on_loop(sink.keep(letters))
        return await sink.keep(letters)

    def _other(self, url: str) -> DeadLetters | Sink:
        """What a route leads to, opened once; `BadSettings` when there can be none."""
        if url not in self._others:
            if self._elsewhere is None:
                raise BadSettings(f"a route leads to {url}, but only redrive.open can open another store")
            self._others[url] = self._elsewhere(url)
        return self._others[url]

    async def body(self, letter: Letter) -> bytes:
        """The letter's body, also when it lies in a file of its own."""
        return await self._holder.body_of(letter)

    async def redrive(
        self,
        to: To | Mapping[str, To],
        *,
        ids: Sequence[UUID] | None = None,
        query: Query | None = None,
        source: str | None = None,
        tempo: Tempo | None = None,
        by: str | None = None,
    ) -> Report:
        """Send letters to a target and settle each by what became of it. The selection is frozen when this begins.

        Say which: `ids`, those of a `source`, or those that match a `query` (`EVERYTHING` means just that). `operations` has
        the same in steps: to look first, to pause, to go on.
        """
        if (ids is not None) + (query is not None) + (source is not None) != 1:
            raise BadSettings("say which letters to redrive with one of ids, source or query")
        chosen = Is(Field.SOURCE, source) if source is not None else query
        plan = await self.operations.plan(to, ids=ids, query=chosen, tempo=tempo, by=by)
        return await self.operations.run(plan.operation.id, to=to, by=by)

    def processor(
        self,
        handlers: Mapping[str, Transport | Callable[..., Any]],
        *,
        pace: Pace | None = None,
        listener: Listener | None = None,
        by: str | None = None,
    ) -> RetryProcessor:
        """What retries letters as they come due, each by the handler of its source: `async with dlq.processor({"orders": handle}):`.

        A handler that raises, or returns `{"status": "failed"}` or `{"success": False}`, has failed.
        """
        return RetryProcessor(
            self.letters,
            self._sender,
            {Lane(self.namespace, source): _target(handler) for source, handler in handlers.items()},
            owner=by or owner_name(),
            pace=pace or Pace(lease=self.limits.lease),
            breakers=self.breakers,
            listener=self._listening(listener),
            telemetry=self.telemetry,
        )

    def _listening(self, listener: Listener | None) -> Listener:
        """Whoever listens to a processor, and the alarm."""

        async def heard(retried: Sequence[Retried]) -> None:
            self._announce(retried)
            if listener is not None:
                await listener(retried)

        return heard

    def _announce(self, retried: Sequence[Retried]) -> None:
        if self._alarm is not None:
            self._alarm.exhausted([one.letter_after for one in retried if one.is_exhausted and one.answer is Settled.DONE])

    async def retry(self, id: UUID | str, to: Transport | Callable[..., Any], *, by: str | None = None) -> Retried:
        """Try one letter now, whatever its time, and settle it; raises what is in the way, and then no attempt was spent."""
        by_hand = ByHand(self.letters, self._sender, self.breakers, lease=self.limits.lease)
        retried = await by_hand.retried(await self.get(id), _target(to), by or owner_name())
        self._announce([retried])
        return retried

    async def amend(self, amendment: Amendment, *, as_given: bool = False) -> Letter:
        """Change one letter that nobody holds, and give it back as it is then; raises what is in the way.

        Content that the rules would redact is refused; with `as_given` it is written as it is, for it must be sent so.
        """
        (answer,) = await self._amended([amendment], as_given=as_given)
        letter = await self.get(amendment.id)
        match answer:
            case Amended.DONE:
                return letter
            case Amended.LEASED:
                raise leased(letter)
            case Amended.ILLEGAL if amendment.act is not None:
                ensure_legal(amendment.act, letter.status)
                raise IllegalTransition(f"cannot {amendment.act} a letter by an amendment")
            case Amended.STALE:
                raise IllegalTransition(f"letter {letter.id} was reopened meanwhile: it is at generation {letter.generation} now")
            case _:
                raise UnknownLetter(f"there is no letter {amendment.id}")

    def _allowed(self, amendment: Amendment, *, as_given: bool = False) -> Amendment:
        """The amendment, unless its target leads nowhere, or the rules would redact what it gives."""
        if amendment.instead is not None:
            raise BadSettings("a whole letter comes by a copy or an import; say what of the letter is to change")
        if isinstance(amendment.target, str):
            amendment = replace(amendment, target=own(amendment.target))
            if amendment.target and not as_given:
                self.operations.ensure_target(amendment.target)
        return amendment if self._redactor is None else self._redactor.amendment(amendment, as_given=as_given)

    async def _amended(self, amendments: Sequence[Amendment], *, as_given: bool = False) -> list[Amended]:
        allowed = [self._allowed(one, as_given=as_given) for one in amendments]
        return await self.letters.amend([await self._holder.slim(one) for one in allowed])

    async def settle(self, claimed: Claimed, outcome: Outcome) -> None:
        """End one claim; `LeaseLost` when it was not ours any more, and then nothing was changed."""
        outcome = outcome if self._redactor is None else self._redactor.outcome(outcome)
        (answer,) = await settle(self.letters, [Settlement.ending(claimed, outcome)])
        if answer is not Settled.DONE:
            raise LeaseLost(f"the lease on letter {claimed.lease.id} is over; another worker may have it, so drop it")

    @property
    def journaled(self) -> int:
        """How many letters wait in this process's journal, because the store is down or was a moment ago."""
        return self._journal.waiting if self._journal is not None else 0

    async def drain(self) -> int:
        """Move what waits in the journal to the store, when it is back; answer how many letters went."""
        return await self._holder.drain()

    async def close(self) -> None:
        """Let go of the store. What was confirmed stays."""
        for other in self._others.values():
            await other.close()
        if self._alarm is not None:
            await self._alarm.close()
        self.bridge.stop_background()
        await self._errands.stop()
        if self.queue_store is not None:
            await self.queue_store.close()
        await self.letters.close()
        if self._journal is not None:
            self._journal.close()
        # Last: what is driven from blocking code runs on this very loop, and the store has connections there.
        self.bridge.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


def _unresolved(url: str) -> Transport:
    raise BadSettings(f"{url} is a target by its name, which only redrive.open can find")


def _target(to: Transport | Callable[..., Any]) -> Transport:
    return FunctionTransport(to, refusal=refusal) if callable(to) else to
