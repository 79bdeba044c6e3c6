"""The course of a message that fails: tried again as the policy says, then given up on, or left to its source."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import UTC, datetime, timedelta
from inspect import isawaitable, unwrap
from time import perf_counter
from typing import Any, TypeVar, assert_never

from msgspec import Struct
from msgspec.structs import replace

from redrive.engine.capture import Labels, Try, aware, captured, is_own, source_id
from redrive.engine.describe import describe, in_short
from redrive.engine.extract import Extractor, arguments
from redrive.engine.redact import Redactor
from redrive.model.letter import Letter
from redrive.model.message import Message
from redrive.model.policy import Bury, Discard, Policy, Retry, Verdict
from redrive.ports.inline import is_inline, outside

log = logging.getLogger("redrive.guard")

T = TypeVar("T")
R = TypeVar("R")

_LONGEST_WAIT = timedelta(days=365)


class Call(Struct, frozen=True, kw_only=True):
    """What failed: a handler and what it was called with; without a handler, it cannot be tried again from here."""

    handler: Callable[..., Any] | None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}

    @property
    def is_method(self) -> bool:
        code = getattr(unwrap(self.handler) if callable(self.handler) else None, "__code__", None)
        return code is not None and code.co_varnames[:1] == ("self",)


class Handled(Struct, frozen=True):
    """The handler worked; this is what it returned."""

    result: Any


class Ended(Struct, frozen=True, kw_only=True):
    """It did not work: the verdict, the last error, and the letter to hold, if there is one."""

    verdict: Verdict
    error: Exception
    letter: Letter | None = None
    is_counted: bool
    """The source counts deliveries, so it decides when there is a next one."""

    @property
    def to(self) -> str | None:
        """Where the letter is to be held; None: in the guard's own store."""
        return self.verdict.to if isinstance(self.verdict, Bury) else None


class Course:
    """What one guard does with a failing message, from the first failure to the end. Holds nothing: its caller does."""

    def __init__(
        self, labels: Labels, *, policy: Policy, extract: Extractor, traceback_limit: int, redactor: Redactor | None = None
    ) -> None:
        self._labels = labels
        self._policy = policy
        self._extract = extract
        self._traceback_limit = traceback_limit
        self._redactor = redactor

    async def run(self, call: Call, error: Exception, started: float) -> Handled | Ended:
        """Retry as the policy says; without a handler, or when the source counts deliveries, there is only one try."""
        message = self._message(call)
        is_counted = message.delivery_count is not None
        tries = [self._tried(error, started)]
        received = message.received_at or tries[0].at - (tries[0].took or timedelta())
        while True:
            attempts = (message.delivery_count or 1) if is_counted else len(tries)
            verdict = self._judged(error, attempts, tries[-1].at - aware(received), message)
            match verdict:
                case Retry(after=delay) if call.handler is not None and not is_counted:
                    await _sleep(delay)
                    started = perf_counter()
                    outcome = await attempted(call)
                    if isinstance(outcome, Handled):
                        return outcome
                    error = outcome
                    tries.append(self._tried(error, started))
                case Retry() if is_counted:
                    return Ended(verdict=verdict, error=error, is_counted=is_counted)
                case Retry() | Bury():
                    # Only the last failure is told in full; of those before it, the letter keeps what and when.
                    failure = describe(error, traceback_limit=self._traceback_limit, rules=self._policy.rules)
                    tries[-1] = replace(tries[-1], failure=failure)
                    letter = captured(message, tries, self._labels, now=datetime.now(UTC))
                    if self._redactor is not None:
                        (letter,) = self._redactor.letters([letter])
                    buried = verdict if isinstance(verdict, Bury) else Bury()
                    return Ended(verdict=buried, error=error, letter=letter, is_counted=is_counted)
                case Discard(reason=reason):
                    told = reason if self._redactor is None else self._redactor.text(reason)
                    log.warning("message discarded", extra={"source": self._labels.source, "reason": told})
                    return Ended(verdict=verdict, error=error, is_counted=is_counted)
                case _:
                    assert_never(verdict)

    def is_own(self, message: Message) -> bool:
        """Was this message a letter of this guard's source before redrive sent it?"""
        return is_own(message, self._labels)

    def identity(self, call: Call) -> str | None:
        """What all deliveries of the same message have in common: its source, and its id there; None: it has no id."""
        message = next((one for one in (*call.args, *call.kwargs.values()) if isinstance(one, Message)), None)
        if message is None and self._extract is not arguments:
            message = self._extract(*(call.args[1:] if call.is_method else call.args), **call.kwargs)
        own = source_id(message, self._labels) if message is not None else None
        return f"{self._labels.source}/{own}" if own else None

    def _judged(self, error: Exception, attempts: int, age: timedelta, message: Message) -> Verdict:
        roll = random.random()  # noqa: S311 - jitter needs no secrecy
        try:
            return self._policy.judge(error, attempts, roll=roll, age=age, message=message)
        except Exception as broken:
            # A broken policy must not cost the message: give up on it, which keeps it.
            self._log("policy failed", broken)
            return Bury()

    def _message(self, call: Call) -> Message:
        args = call.args[1:] if call.is_method else call.args
        try:
            return self._extract(*args, **call.kwargs)
        except Exception as broken:
            # A broken extractor must not cost the message: keep the arguments as they came.
            self._log("extractor failed", broken)
            return arguments(*args, **call.kwargs)

    def _log(self, event: str, broken: Exception) -> None:
        """Tell of somebody's broken code; where messages are redacted, so is what its error quotes of them."""
        if self._redactor is None:
            log.error(event, exc_info=broken, extra={"source": self._labels.source})
        else:
            failure = self._redactor.failure(describe(broken))
            log.error("%s\n%s", event, failure.traceback, extra={"source": self._labels.source})

    def _tried(self, error: Exception, started: float) -> Try:
        took = timedelta(seconds=perf_counter() - started)
        return Try(at=datetime.now(UTC), failure=in_short(error), took=took)


async def in_turns(work: Callable[[T], Coroutine[Any, Any, R]], items: Iterable[T], concurrency: int) -> list[R]:
    """Work on all items, so many at a time. When it is cancelled, none of them is still being worked on."""
    turns = asyncio.Semaphore(concurrency)

    async def take_turn(item: T) -> R:
        async with turns:
            return await work(item)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(take_turn(item)) for item in items]
    return [task.result() for task in tasks]


async def attempted(call: Call) -> Handled | Exception:
    """One try. An error comes back as a value.

    Raised through a coroutine, a `StopIteration` would be taken for its end; and an error that is raised while another
    one is being handled would seem to come from it.
    """
    assert call.handler is not None
    try:
        with outside():
            result = call.handler(*call.args, **call.kwargs)
        if isawaitable(result):
            result = asyncio.run(_awaited(result)) if is_inline() else await result
    except Exception as error:
        return error
    return Handled(result)


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


async def _sleep(delay: timedelta) -> None:
    delay = min(delay, _LONGEST_WAIT)
    if is_inline():
        time.sleep(delay.total_seconds())  # noqa: ASYNC251 - driven from blocking code: there is no loop to wait on
    else:
        await asyncio.sleep(delay.total_seconds())
