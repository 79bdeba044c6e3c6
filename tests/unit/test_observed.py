"""A store that is observed answers like the store itself, and tells what it does."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from prometheus_client.parser import text_string_to_metric_families

from redrive.backends.memory.letters import MemoryLetters
from redrive.engine.observed import ObservedLetters
from redrive.engine.otel import OtelTracer
from redrive.engine.prometheus import PrometheusMeter
from redrive.engine.telemetry import Telemetry
from redrive.model.amendment import Amended, Amendment
from redrive.model.arrival import Held
from redrive.model.backoff import immediate, linear
from redrive.model.census import Miscount
from redrive.model.errors import AnswerLost, StoreFull, StoreUnavailable
from redrive.model.lease import Claim
from redrive.model.letter import Attempt, Failure, Letter, letter_id
from redrive.model.policy import Policy
from redrive.model.query import EVERYTHING, Field
from redrive.model.settlement import Completed, Failed, Released, Settled, Settlement
from redrive.model.status import Act
from redrive.ports.inline import drive
from redrive.ports.letters import LetterStore

T = TypeVar("T")

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
THRICE = Policy(max_attempts=3, backoff=immediate())
BODY = b"the body that nobody may see"


def letter(number: int = 1, source: str = "orders") -> Letter:
    source_id = f"m{number}"
    return Letter(
        id=letter_id("default", source, source_id),
        source=source,
        source_id=source_id,
        body=BODY,
        headers=(("secret", BODY),),
        failure=Failure(type="builtins.ValueError", message="it broke", fingerprint="f1"),
        first_received_at=NOW,
        dead_lettered_at=NOW,
        updated_at=NOW,
        history=(Attempt(at=NOW, occurrence=UUID(int=number)),),
    )


class Counted(MemoryLetters):
    """As if it kept counts, and they were right."""

    async def recount(self, *, repair: bool = False) -> list[Miscount]:
        return []


class Faltering(Counted):
    """Fails its next calls with the given errors: before it has done anything, or after, when its answer is lost."""

    def __init__(self, *errors: BaseException, after: bool = False) -> None:
        super().__init__()
        self.errors = list(errors)
        self.calls = 0
        self._is_after = after

    def __getattribute__(self, name: str) -> Any:
        verb = super().__getattribute__(name)
        return partial(self._falter, verb) if name in VERBS else verb

    async def _falter(self, verb: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.errors and not self._is_after:
            raise self.errors.pop(0)
        answer = await verb(*args, **kwargs)
        if self.errors:
            raise self.errors.pop(0)
        return answer


VERBS = frozenset(name for name, value in vars(LetterStore).items() if inspect.iscoroutinefunction(value))

CLAIM = Claim(owner="me", lease=timedelta(minutes=1), what=EVERYTHING)


CALLS: dict[str, Callable[[LetterStore], Coroutine[Any, Any, Any]]] = {
    "put": lambda store: store.put([letter(1), letter(2)], now=NOW),
    "get": lambda store: store.get([letter(1).id, UUID(int=0)], now=NOW),
    "find": lambda store: store.find(limit=1, now=NOW),
    "count": lambda store: store.count(now=NOW),
    "tally": lambda store: store.tally(Field.STATUS, now=NOW),
    "groups": lambda store: store.groups(EVERYTHING, now=NOW),
    "claim": lambda store: store.claim(CLAIM, now=NOW),
    "wait": lambda store: store.wait([], timedelta()),
    "extend": lambda store: store.extend((), timedelta(minutes=1), now=NOW),
    "settle": lambda store: store.settle([], now=NOW),
    "amend": lambda store: store.amend([Amendment(id=UUID(int=0))], now=NOW),
    "purge": lambda store: store.purge(EVERYTHING, now=NOW),
    "hourly": lambda store: store.hourly(NOW, NOW, now=NOW),
    "tidy": lambda store: store.tidy(),
    "recount": lambda store: store.recount(),
    "check": lambda store: store.check(),
    "close": lambda store: store.close(),
}
REPEATED = {"put", "get", "find", "count", "tally", "hourly", "groups", "wait", "extend", "tidy", "check"}


class Watch:
    """Everything that is told of a store."""

    def __init__(self) -> None:
        self.meter = PrometheusMeter()
        self.spans = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.telemetry = Telemetry(meters=(self.meter,), tracer=OtelTracer(provider))

    @property
    def text(self) -> str:
        return self.meter.render()[0].decode()

    def read(self, name: str, **labels: str) -> float:
        for family in text_string_to_metric_families(self.text):
            for sample in family.samples:
                if (sample.name, sample.labels) == (name, labels):
                    return sample.value
        return 0.0

    @property
    def span(self) -> ReadableSpan:
        return self.spans.get_finished_spans()[-1]


def run(verb: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(verb)


def test_every_verb_of_the_port_is_tried_here() -> None:
    assert set(CALLS) == VERBS


@pytest.mark.parametrize("verb", CALLS)
@pytest.mark.parametrize("is_watched", [True, False])
def test_it_answers_like_the_store_itself(verb: str, is_watched: bool) -> None:
    plain, inner = Counted(), Counted()
    for store in (plain, inner):
        run(store.put([letter(1), letter(2), letter(3)], now=NOW))
    observed = ObservedLetters(inner, Watch().telemetry) if is_watched else ObservedLetters(inner)
    assert run(CALLS[verb](observed)) == run(CALLS[verb](plain))
    assert observed.capabilities == plain.capabilities


@pytest.mark.parametrize("verb", CALLS)
def test_its_verbs_have_the_signatures_and_words_of_the_port(verb: str) -> None:
    ours, ports = getattr(ObservedLetters, verb), getattr(LetterStore, verb)
    assert inspect.signature(ours) == inspect.signature(ports)
    assert ours.__doc__ == ports.__doc__
    assert inspect.iscoroutinefunction(ours)


@pytest.mark.parametrize("verb", CALLS)
def test_every_verb_is_counted_timed_and_traced(verb: str) -> None:
    watch = Watch()
    run(CALLS[verb](ObservedLetters(Counted(), watch.telemetry)))
    assert watch.read("redrive_store_calls_total", verb=verb, outcome="ok") == 1
    assert watch.read("redrive_store_call_seconds_count", verb=verb) == 1
    attributes = dict(watch.span.attributes or {})
    assert (watch.span.name, watch.span.kind) == (f"redrive.store.{verb}", SpanKind.CLIENT)
    assert attributes["messaging.system"] == "redrive"
    assert attributes["messaging.operation.name"] == verb
    types = {"put": "send", "claim": "receive", "settle": "settle"}
    assert attributes.get("messaging.operation.type") == types.get(verb)


@pytest.mark.parametrize(
    ("verb", "items"),
    [("put", 2), ("get", 2), ("find", 1), ("groups", 1), ("claim", 3), ("purge", 3), ("amend", 1), ("count", None)],
)
def test_the_items_that_were_answered_for_are_counted(verb: str, items: int | None) -> None:
    watch, inner = Watch(), Counted()
    run(inner.put([letter(1), letter(2), letter(3)], now=NOW))
    run(CALLS[verb](ObservedLetters(inner, watch.telemetry)))
    assert watch.read("redrive_store_items_total", verb=verb) == (items or 0)
    assert dict(watch.span.attributes or {}).get("messaging.batch.message_count") == items


def test_a_span_names_the_message_when_it_is_one_and_the_source_when_it_is_one() -> None:
    watch = Watch()
    observed = ObservedLetters(Counted(), watch.telemetry)
    run(observed.put(letters=[letter(1)]))
    alone = dict(watch.span.attributes or {})
    assert alone["messaging.destination.name"] == "orders"
    assert alone["messaging.message.id"] == "m1"
    assert alone["redrive.letter.id"] == str(letter(1).id)
    run(observed.put([letter(2), letter(3)]))
    alike = dict(watch.span.attributes or {})
    assert alike["messaging.destination.name"] == "orders"
    assert "messaging.message.id" not in alike
    run(observed.put([letter(4), letter(5, "payments")]))
    assert "messaging.destination.name" not in dict(watch.span.attributes or {})


def test_settlements_are_counted_by_how_they_ended() -> None:
    watch = Watch()
    observed = ObservedLetters(Counted(), watch.telemetry)

    async def story() -> list[Settled]:
        await observed.put([letter(number) for number in range(1, 5)], now=NOW)
        one, two, three, four = [claimed.lease for claimed in await observed.claim(CLAIM, now=NOW)]
        again = Attempt(at=NOW, occurrence=UUID(int=99))
        gone = Settlement(id=UUID(int=0), token=1, generation=1, outcome=Completed())
        return await observed.settle(
            [
                Settlement.of(one, Completed()),
                Settlement.of(two, Completed()),
                Settlement.of(three, Failed(attempt=again)),
                Settlement.of(four, Released()),
                Settlement.of(four, Released()),
                gone,
            ],
            now=NOW,
        )

    assert run(story()) == [*[Settled.DONE] * 4, Settled.LEASE_LOST, Settled.MISSING]
    outcomes = ("completed", "failed", "released", "lease_lost", "missing")
    assert [watch.read("redrive_letters_settled_total", outcome=outcome) for outcome in outcomes] == [2, 1, 1, 1, 1]


@pytest.mark.parametrize("verb", CALLS)
def test_no_span_and_no_metric_holds_a_body(verb: str) -> None:
    watch, inner = Watch(), Counted()
    run(inner.put([letter(1), letter(2)], now=NOW))
    run(CALLS[verb](ObservedLetters(inner, watch.telemetry)))
    assert BODY.decode() not in watch.text
    assert BODY.decode() not in watch.span.to_json()


@pytest.mark.parametrize("verb", sorted(REPEATED))
def test_a_passing_failure_is_met_with_another_try(verb: str) -> None:
    watch, inner = Watch(), Faltering(StoreUnavailable("busy"), StoreUnavailable("busy"))
    answer = run(CALLS[verb](ObservedLetters(inner, watch.telemetry, retries=THRICE)))
    assert answer == run(CALLS[verb](Counted()))
    assert watch.read("redrive_store_calls_total", verb=verb, outcome="store_unavailable") == 2
    assert watch.read("redrive_store_calls_total", verb=verb, outcome="ok") == 1
    (span,) = watch.spans.get_finished_spans()
    assert dict(span.attributes or {})["redrive.store.tries"] == 3
    assert span.status.is_ok or span.status.is_unset


def test_tries_come_to_an_end() -> None:
    watch, inner = Watch(), Faltering(*[StoreUnavailable("busy")] * 5)
    with pytest.raises(StoreUnavailable):
        run(ObservedLetters(inner, watch.telemetry, retries=THRICE).count())
    assert inner.calls == 3
    assert dict(watch.span.attributes or {})["error.type"] == "store_unavailable"


@pytest.mark.parametrize("verb", sorted(VERBS - REPEATED))
def test_what_would_answer_untruly_the_second_time_is_not_repeated(verb: str) -> None:
    inner = Faltering(AnswerLost("cut off"))
    with pytest.raises(AnswerLost):
        run(CALLS[verb](ObservedLetters(inner, retries=THRICE)))
    assert inner.calls == 1


@pytest.mark.parametrize("verb", sorted(VERBS - {"close"}))
def test_what_was_surely_not_done_is_tried_again(verb: str) -> None:
    inner = Faltering(StoreUnavailable("busy"))
    assert run(CALLS[verb](ObservedLetters(inner, retries=THRICE))) == run(CALLS[verb](Counted()))
    assert inner.calls == 2


def test_a_put_whose_answer_was_lost_is_held_once() -> None:
    inner = Faltering(AnswerLost("cut off"), after=True)
    observed = ObservedLetters(inner, retries=THRICE)
    assert run(observed.put([letter(1)])) == [Held.DUPLICATE]
    assert run(observed.count()) == 1


@pytest.mark.parametrize("verb", ["put", "extend"])
def test_a_try_that_may_have_been_done_is_not_forgotten_over_later_ones(verb: str) -> None:
    inner = Faltering(AnswerLost("cut off"), StoreUnavailable("down"), StoreUnavailable("down"))
    with pytest.raises(AnswerLost, match="an earlier try may have been done"):
        run(CALLS[verb](ObservedLetters(inner, retries=THRICE)))
    assert inner.calls == 3


def test_an_amendment_whose_answer_was_lost_is_told_as_the_error_it_was() -> None:
    inner = Faltering(after=True)
    observed = ObservedLetters(inner, retries=THRICE)
    archive = [Amendment(id=letter(1).id, act=Act.ARCHIVE)]
    run(observed.put([letter(1)]))
    inner.errors.append(AnswerLost("cut off"))
    with pytest.raises(AnswerLost):
        run(observed.amend(archive))
    assert run(observed.amend(archive)) == [Amended.ILLEGAL]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(StoreFull("no space"), "store_full"), (RuntimeError("a defect"), "error"), (asyncio.CancelledError(), "cancelled")],
)
def test_what_does_not_pass_by_itself_is_raised_at_once(error: BaseException, outcome: str) -> None:
    watch, inner = Watch(), Faltering(error)
    with pytest.raises(type(error)):
        run(ObservedLetters(inner, watch.telemetry, retries=THRICE).put([letter(1)]))
    assert inner.calls == 1
    assert watch.read("redrive_store_calls_total", verb="put", outcome=outcome) == 1


def test_a_caller_is_not_kept_waiting_for_a_try_that_is_far_off() -> None:
    inner = Faltering(StoreUnavailable("busy"))
    with pytest.raises(StoreUnavailable):
        run(ObservedLetters(inner, retries=Policy(max_attempts=3, backoff=linear(timedelta(seconds=10)))).count())
    assert inner.calls == 1


def test_driven_inline_it_never_waits_and_never_repeats() -> None:
    inner = Faltering(StoreUnavailable("busy"))
    observed = ObservedLetters(inner, Watch().telemetry)
    with pytest.raises(StoreUnavailable):
        drive(observed.put([letter(1)]))
    assert inner.calls == 1
    assert drive(observed.put([letter(1)])) == [Held.NEW]
