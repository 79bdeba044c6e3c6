"""`ObservedLetters`: any store, with a metric and a span for every verb and a second try after a passing failure.

One mechanism serves all verbs, so that stores stay dumb. What is measured: each try is counted and timed by itself;
one span covers a call with all its tries.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from redrive.engine.metrics import LETTERS_SETTLED, STORE_CALL_SECONDS, STORE_CALLS, STORE_ITEMS
from redrive.engine.telemetry import SILENT, Attribute, SpanKind, Telemetry
from redrive.model.backoff import exponential
from redrive.model.errors import AnswerLost, RedriveError
from redrive.model.letter import Letter
from redrive.model.policy import Policy, Retry
from redrive.model.query import GroupPage, Page
from redrive.model.settlement import Settled, Settlement
from redrive.ports.capabilities import Capabilities
from redrive.ports.inline import is_inline
from redrive.ports.letters import LetterStore

P = ParamSpec("P")
Answer = TypeVar("Answer")

RETRIES = Policy(
    max_attempts=3, backoff=exponential(timedelta(milliseconds=50), cap=timedelta(seconds=1), factor=4.0, jitter=0.5)
)

_PATIENCE = timedelta(seconds=5)
"""No new try after this long: a store that has itself waited for a lock is not asked to wait again."""


def _observed(
    verb: Callable[Concatenate[LetterStore, P], Coroutine[Any, Any, Answer]],
    *,
    may_repeat_unknown: bool,
    operation: str | None = None,
    describe: Callable[P, dict[str, Attribute]] | None = None,
    note: Callable[Concatenate[Telemetry, Answer, P], None] | None = None,
) -> Callable[Concatenate[ObservedLetters, P], Coroutine[Any, Any, Answer]]:
    """The verb of the port, observed. `operation` is its type by OpenTelemetry's conventions, where it has one.

    `may_repeat_unknown`: may it be done again when nobody knows whether it was? `describe` says what the span should know of the arguments; `note` measures what is special in the answer.
    """
    name = verb.__name__
    told: dict[str, Attribute] = {"messaging.system": "redrive", "messaging.operation.name": name}
    if operation is not None:
        told["messaging.operation.type"] = operation

    @wraps(verb)
    async def observed(self: ObservedLetters, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        call = getattr(self._store, name)
        answer: Answer
        telemetry = self._telemetry
        if telemetry.is_silent:
            answer, _ = await self._persistently(name, lambda: call(*args, **kwargs), may_repeat_unknown=may_repeat_unknown)
            return answer
        about = {**told, **describe(*args, **kwargs)} if describe and telemetry.tracer else told
        with telemetry.spans(f"redrive.store.{name}", SpanKind.CLIENT, **about) as span:
            answer, tries = await self._persistently(name, lambda: call(*args, **kwargs), may_repeat_unknown=may_repeat_unknown)
            if tries > 1:
                span.set("redrive.store.tries", tries)
            if (items := _items(answer)) is not None:
                span.set("messaging.batch.message_count", items)
                telemetry.add(STORE_ITEMS, items, verb=name)
            if note is not None:
                note(telemetry, answer, *args, **kwargs)
            return answer

    return observed


def _describe_put(letters: Sequence[Letter], *, now: datetime | None = None) -> dict[str, Attribute]:
    """Where the messages came from, when that is one place, and which message it is, when it is one."""
    about: dict[str, Attribute] = {}
    if len({letter.source for letter in letters}) == 1:
        about["messaging.destination.name"] = letters[0].source
    if len(letters) == 1:
        about["messaging.message.id"] = letters[0].source_id
        about["redrive.letter.id"] = str(letters[0].id)
    return about


def _note_settled(
    telemetry: Telemetry, answers: list[Settled], settlements: Sequence[Settlement], *, now: datetime | None = None
) -> None:
    outcomes = Counter(
        str(settlement.outcome.__struct_config__.tag) if answer is Settled.DONE else answer.value
        for settlement, answer in zip(settlements, answers, strict=False)
    )
    for outcome, amount in outcomes.items():
        telemetry.add(LETTERS_SETTLED, amount, outcome=outcome)


class ObservedLetters:
    """A `LetterStore` around another one.

    Transient errors are met with a few more tries. After an error that says that nothing was done, any verb is repeated.
    After `AnswerLost` only those are that may be: reading, `check`, `wait`, `put` (a second time it answers duplicate, and
    the letter is held all the same) and `extend`. The second answer of the others would be untrue: `settle` (lease_lost,
    though it was settled; see `redrive.engine.settle`), `amend` (illegal, though it was done), `claim` by ids (nothing,
    though they are ours) and `purge` (which would no longer tell what it removed). Their callers hear of it: unknown.

    While driven inline nothing is repeated: waiting would block the thread, and an inline store waits for its locks itself.
    """

    def __init__(self, store: LetterStore, telemetry: Telemetry = SILENT, *, retries: Policy = RETRIES) -> None:
        self._store = store
        self._telemetry = telemetry
        self._retries = retries

    @property
    def capabilities(self) -> Capabilities:
        return self._store.capabilities

    put = _observed(LetterStore.put, may_repeat_unknown=True, operation="send", describe=_describe_put)
    get = _observed(LetterStore.get, may_repeat_unknown=True)
    find = _observed(LetterStore.find, may_repeat_unknown=True)
    count = _observed(LetterStore.count, may_repeat_unknown=True)
    tally = _observed(LetterStore.tally, may_repeat_unknown=True)
    hourly = _observed(LetterStore.hourly, may_repeat_unknown=True)
    groups = _observed(LetterStore.groups, may_repeat_unknown=True)
    claim = _observed(LetterStore.claim, may_repeat_unknown=False, operation="receive")
    wait = _observed(LetterStore.wait, may_repeat_unknown=True)
    extend = _observed(LetterStore.extend, may_repeat_unknown=True)
    settle = _observed(LetterStore.settle, may_repeat_unknown=False, operation="settle", note=_note_settled)
    amend = _observed(LetterStore.amend, may_repeat_unknown=False)
    purge = _observed(LetterStore.purge, may_repeat_unknown=False)
    tidy = _observed(LetterStore.tidy, may_repeat_unknown=True)
    recount = _observed(LetterStore.recount, may_repeat_unknown=False)
    check = _observed(LetterStore.check, may_repeat_unknown=True)
    close = _observed(LetterStore.close, may_repeat_unknown=False)

    async def _persistently(
        self, verb: str, call: Callable[[], Awaitable[Answer]], *, may_repeat_unknown: bool
    ) -> tuple[Answer, int]:
        """The answer, and how many tries it took."""
        started, tries = time.monotonic(), 0
        is_unknown = False
        while True:
            tries += 1
            try:
                return await (call() if self._telemetry.is_silent else self._measured(verb, call())), tries
            except RedriveError as error:
                is_unknown |= isinstance(error, AnswerLost)
                pause = self._pause(error, tries, time.monotonic() - started)
                if pause is None or (is_unknown and not may_repeat_unknown):
                    if is_unknown and not isinstance(error, AnswerLost):
                        # The last try did nothing, but one before it may have.
                        raise AnswerLost(f"{error}; an earlier try may have been done") from error
                    raise
            import asyncio  # late: those who never wait need not load it

            await asyncio.sleep(pause.total_seconds())

    def _pause(self, error: RedriveError, tries: int, elapsed_seconds: float) -> timedelta | None:
        """How long to wait before the next try; None: there is none."""
        if not error.transient or is_inline():
            return None
        from random import random

        match self._retries.judge(error, tries, roll=random()):  # noqa: S311 - jitter needs no secrecy
            case Retry(after=pause) if elapsed_seconds + pause.total_seconds() <= _PATIENCE.total_seconds():
                return pause
            case _:
                return None

    async def _measured(self, verb: str, call: Awaitable[Answer]) -> Answer:
        telemetry = self._telemetry
        started, outcome = time.perf_counter(), "ok"
        try:
            return await call
        except BaseException as error:
            outcome = _outcome(error)
            raise
        finally:
            telemetry.observe(STORE_CALL_SECONDS, time.perf_counter() - started, verb=verb)
            telemetry.add(STORE_CALLS, 1, verb=verb, outcome=outcome)


def _outcome(error: BaseException) -> str:
    """An error's code; `cancelled` for what ends a coroutine from outside."""
    if isinstance(error, RedriveError):
        return error.code
    return "error" if isinstance(error, Exception) else "cancelled"


def _items(answer: object) -> int | None:
    """For how many items the store answered; None: this verb answers for none."""
    match answer:
        case list():
            return len(answer)
        case Page(letters=letters):
            return len(letters)
        case GroupPage(groups=groups):
            return len(groups)
        case _:
            return None
