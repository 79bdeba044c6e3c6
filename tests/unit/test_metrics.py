"""What is measured, and that Prometheus and OpenTelemetry are told the same."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind as OtelSpanKind
from opentelemetry.trace import StatusCode
from prometheus_client.parser import text_string_to_metric_families

from redrive.engine.metrics import (
    JOURNAL_LETTERS,
    LETTERS_HELD,
    METRICS,
    STORE_CALL_SECONDS,
    STORE_CALLS,
    Kind,
    Meter,
    NullMeter,
    set_backlog,
    set_letters,
)
from redrive.engine.otel import OtelMeter, OtelTracer
from redrive.engine.prometheus import PrometheusMeter
from redrive.engine.telemetry import SILENT, SpanKind, Telemetry
from redrive.model.census import Backlog
from redrive.model.errors import MissingExtra, StoreFull
from redrive.model.status import Status


def test_names_follow_the_conventions_of_prometheus() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"redrive_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
        assert metric.name.endswith("_seconds") == (metric.unit == "s")
        assert metric.help.endswith(".")


def test_no_label_is_an_id_or_a_fingerprint() -> None:
    labels = {label for metric in METRICS for label in metric.labels}
    assert labels == {"verb", "outcome", "source", "held", "category", "status", "rule", "act", "what", "queue", "place"}


def _measure(meter: Meter) -> None:
    meter.add(STORE_CALLS, 2, verb="put", outcome="ok")
    meter.add(STORE_CALLS, 1, verb="put", outcome="ok")
    meter.observe(STORE_CALL_SECONDS, 0.003, verb="put")
    meter.set(JOURNAL_LETTERS, 7)
    meter.set(JOURNAL_LETTERS, 4)
    set_letters(meter, {"pending": 5})
    set_backlog(meter, Backlog(texts=12, space=4096))


def _samples(meter: PrometheusMeter) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text, _ = meter.render()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_prometheus_reads_what_was_measured() -> None:
    meter = PrometheusMeter()
    _measure(meter)
    samples = _samples(meter)
    assert samples["redrive_store_calls_total", frozenset({("verb", "put"), ("outcome", "ok")})] == 3
    assert samples["redrive_store_call_seconds_count", frozenset({("verb", "put")})] == 1
    assert samples["redrive_store_call_seconds_bucket", frozenset({("verb", "put"), ("le", "0.0025")})] == 0
    assert samples["redrive_store_call_seconds_bucket", frozenset({("verb", "put"), ("le", "0.005")})] == 1
    assert samples["redrive_journal_letters", frozenset()] == 4
    put_off = {what: samples["redrive_backlog", frozenset({("what", what)})] for what in ("texts", "counts", "space")}
    assert put_off == {"texts": 12, "counts": 0, "space": 4096}


def test_a_status_without_letters_is_shown_as_none_and_not_as_it_was() -> None:
    meter = PrometheusMeter()
    set_letters(meter, {"exhausted": 3})
    set_letters(meter, {"pending": 5})
    samples = _samples(meter)
    shown = {status: samples["redrive_letters", frozenset({("status", status.value)})] for status in Status}
    assert shown == {status: 5 if status is Status.PENDING else 0 for status in Status}


def test_prometheus_is_answered_in_the_format_it_asks_for() -> None:
    meter = PrometheusMeter()
    assert meter.render()[1].startswith("text/plain")
    text, content_type = meter.render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")


def test_two_meters_in_one_process_do_not_disturb_each_other() -> None:
    one, other = PrometheusMeter(), PrometheusMeter()
    one.set(JOURNAL_LETTERS, 3)
    assert _samples(other)["redrive_journal_letters", frozenset()] == 0


@pytest.mark.parametrize("labels", [{}, {"source": "orders"}, {"source": "o", "held": "new", "category": "network", "id": "1"}])
def test_labels_that_are_not_the_metrics_own_are_refused(labels: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"label"):
        PrometheusMeter().add(LETTERS_HELD, 1, **labels)


def test_opentelemetry_reads_the_same_under_the_same_names() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    _measure(OtelMeter(provider))
    data = reader.get_metrics_data()
    assert data is not None
    (scope,) = data.resource_metrics[0].scope_metrics
    assert scope.scope.name == "redrive"
    read = {metric.name: metric for metric in scope.metrics}
    (calls,) = read["redrive_store_calls_total"].data.data_points
    assert isinstance(calls, NumberDataPoint)
    assert (calls.value, dict(calls.attributes or {})) == (3, {"verb": "put", "outcome": "ok"})
    (seconds,) = read["redrive_store_call_seconds"].data.data_points
    assert isinstance(seconds, HistogramDataPoint)
    assert (seconds.count, tuple(seconds.explicit_bounds)) == (1, STORE_CALL_SECONDS.buckets)
    assert read["redrive_store_call_seconds"].unit == "s"
    (waiting,) = read["redrive_journal_letters"].data.data_points
    assert isinstance(waiting, NumberDataPoint)
    assert waiting.value == 4
    assert len(read["redrive_letters"].data.data_points) == len(Status)
    provider.shutdown()


def _tracing() -> tuple[OtelTracer, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return OtelTracer(provider), exporter


def test_a_span_says_what_it_was_told_and_links_to_where_the_message_came_from() -> None:
    tracer, exporter = _tracing()
    telemetry = Telemetry(tracer=tracer)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with telemetry.spans("outer"), telemetry.spans("redrive.send", SpanKind.PRODUCER, [parent, "junk"], **{"a.b": 1}) as span:
        span.set("c", "later")
    inner, outer = exporter.get_finished_spans()
    assert (inner.name, inner.kind, dict(inner.attributes or {})) == (
        "redrive.send",
        OtelSpanKind.PRODUCER,
        {"a.b": 1, "c": "later"},
    )
    assert inner.parent is not None
    assert outer.context is not None
    assert inner.parent.span_id == outer.context.span_id
    (link,) = inner.links
    assert f"{link.context.trace_id:032x}-{link.context.span_id:016x}" == parent[3:52]


@pytest.mark.parametrize(
    ("error", "type"),
    [
        (StoreFull("secret"), "store_full"),
        (ValueError("secret"), "ValueError"),
        (KeyboardInterrupt("secret"), "KeyboardInterrupt"),
    ],
)
def test_an_error_marks_its_span_by_type_and_never_by_its_text(error: BaseException, type: str) -> None:
    tracer, exporter = _tracing()
    with pytest.raises(error.__class__), Telemetry(tracer=tracer).spans("redrive.try"):
        raise error
    (span,) = exporter.get_finished_spans()
    assert dict(span.attributes or {}) == {"error.type": type}
    assert span.status.status_code is StatusCode.ERROR
    assert "secret" not in span.to_json()


def test_opentelemetry_is_spared_the_trouble_until_somebody_sets_it_up() -> None:
    """In a process of its own: what is set up there stays."""
    program = """
import time
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from redrive.engine.metrics import STORE_CALLS
from redrive.engine.otel import OtelMeter, OtelTracer
from redrive.engine.telemetry import Telemetry

def until_heard(part):
    deadline = time.monotonic() + 10
    while not part.is_heard:
        assert time.monotonic() < deadline
        time.sleep(0.01)

telemetry = Telemetry(meters=(OtelMeter(),), tracer=OtelTracer())
assert telemetry.is_silent
with telemetry.spans("redrive.try"):
    assert not trace.get_current_span().get_span_context().is_valid
trace.set_tracer_provider(TracerProvider(shutdown_on_exit=False))
until_heard(telemetry.tracer)
assert not telemetry.is_silent
with telemetry.spans("redrive.try"):
    assert trace.get_current_span().get_span_context().is_valid
meter = telemetry.meters[0]
assert not meter.is_heard
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader], shutdown_on_exit=False))
until_heard(meter)
telemetry.add(STORE_CALLS, 3, verb="put", outcome="ok")
(scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
assert [metric.data.data_points[0].value for metric in scope.metrics] == [3]
print("heard")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("heard\n", "")


def test_silence_takes_everything_and_gives_nothing() -> None:
    _measure(SILENT)
    _measure(NullMeter())
    with SILENT.spans("redrive.try", **{"a.b": 1}) as span:
        span.set("c", 1)
    assert SILENT.is_silent
    assert not Telemetry(meters=(NullMeter(),)).is_silent


def test_every_meter_of_a_telemetry_is_told() -> None:
    one, other = PrometheusMeter(), PrometheusMeter()
    _measure(Telemetry(meters=(one, other)))
    told = _samples(one)
    assert told["redrive_journal_letters", frozenset()] == 4
    assert {key: value for key, value in told.items() if not key[0].endswith("_created")} == {
        key: value for key, value in _samples(other).items() if not key[0].endswith("_created")
    }


@pytest.mark.parametrize(
    ("make", "package", "extra"),
    [
        (PrometheusMeter, "prometheus_client", "http"),
        (OtelMeter, "opentelemetry.metrics", "otel"),
        (OtelTracer, "opentelemetry", "otel"),
    ],
)
def test_a_missing_package_is_told_by_its_extra(
    make: type[PrometheusMeter | OtelMeter | OtelTracer], package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'redrive\[{extra}\]'"):
        make()


def test_importing_the_instruments_loads_no_package_of_theirs() -> None:
    modules = "redrive.engine.observed, redrive.engine.prometheus, redrive.engine.otel"
    seen = f"import sys, {modules}; print(sorted({{'asyncio', 'prometheus_client', 'opentelemetry'}} & sys.modules.keys()))"
    answer = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
