"""Measurements and spans for OpenTelemetry. Needs the `otel` extra; where they go is the SDK's affair and `OTEL_*`'s."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from redrive.engine.metrics import METRICS, Kind, Metric
from redrive.engine.telemetry import Attribute, SpanKind
from redrive.model.errors import MissingExtra, RedriveError
from redrive.version import __version__

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram, MeterProvider, _Gauge
    from opentelemetry.trace import Link, Span, TracerProvider

_SCOPE = "redrive"
_MISSING = "OpenTelemetry needs opentelemetry-api; pip install 'redrive[otel]'"


_API = ("opentelemetry.metrics", "opentelemetry.trace")
_LOOK_SECONDS = 0.1


class _Hearing:
    """Does the process have a provider of its own? Those that come with the API drop what they are told, which takes them longer
    than all that there is to be told of. One may be set up at any time."""

    def __init__(self, provider: Callable[[], object]) -> None:
        self._provider = provider
        self._is_heard = False
        self._next_look = 0.0

    @property
    def is_heard(self) -> bool:
        if not self._is_heard and (now := time.monotonic()) >= self._next_look:
            self._next_look = now + _LOOK_SECONDS
            self._is_heard = not type(self._provider()).__module__.startswith(_API)
        return self._is_heard


class OtelMeter(_Hearing):
    """Hands measurements to a meter provider, the process's own unless one is given."""

    def __init__(self, provider: MeterProvider | None = None) -> None:
        try:
            from opentelemetry.metrics import get_meter, get_meter_provider
        except ImportError as error:
            raise MissingExtra(_MISSING) from error
        super().__init__(get_meter_provider if provider is None else lambda: provider)
        meter = get_meter(_SCOPE, __version__, provider)
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        self._gauges: dict[str, _Gauge] = {}
        for metric in METRICS:
            name, unit, help = metric.name, metric.unit, metric.help
            match metric.kind:
                case Kind.COUNTER:
                    self._counters[name] = meter.create_counter(name, unit, help)
                case Kind.HISTOGRAM:
                    self._histograms[name] = meter.create_histogram(
                        name, unit, help, explicit_bucket_boundaries_advisory=metric.buckets
                    )
                case Kind.GAUGE:
                    self._gauges[name] = meter.create_gauge(name, unit, help)

    def add(self, metric: Metric, amount: float, /, **labels: str) -> None:
        self._counters[metric.name].add(amount, labels)

    def observe(self, metric: Metric, value: float, /, **labels: str) -> None:
        self._histograms[metric.name].record(value, labels)

    def set(self, metric: Metric, value: float, /, **labels: str) -> None:
        self._gauges[metric.name].set(value, labels)


class OtelTracer(_Hearing):
    """Starts spans with a tracer provider, the process's own unless one is given."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        try:
            from opentelemetry import trace
        except ImportError as error:
            raise MissingExtra(_MISSING) from error
        super().__init__(trace.get_tracer_provider if provider is None else lambda: provider)
        self._trace = trace
        self._tracer = trace.get_tracer(_SCOPE, __version__, provider)

    @contextmanager
    def span(self, name: str, kind: SpanKind, links: Sequence[str], attributes: Mapping[str, Attribute]) -> Iterator[_OtelSpan]:
        """A span for as long as the context lasts. An error is told by its type alone: its text might quote a body."""
        with self._tracer.start_as_current_span(
            name,
            kind=self._trace.SpanKind[kind.name],
            attributes=attributes,
            links=[link for parent in links if (link := self._link(parent))],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield _OtelSpan(span)
            except BaseException as error:
                span.set_attribute("error.type", _error_type(error))
                span.set_status(self._trace.StatusCode.ERROR)
                raise

    def _link(self, traceparent: str) -> Link | None:
        """A link to the span with this W3C `traceparent`; None when it is not one."""
        from opentelemetry.context import Context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        # From an empty context: what is current here must not stand in for a value that cannot be read.
        context = TraceContextTextMapPropagator().extract({"traceparent": traceparent}, Context())
        linked = self._trace.get_current_span(context).get_span_context()
        return self._trace.Link(linked) if linked.is_valid else None


class _OtelSpan:
    def __init__(self, span: Span) -> None:
        self._span = span

    def set(self, name: str, value: Attribute) -> None:
        self._span.set_attribute(name, value)


def _error_type(error: BaseException) -> str:
    if isinstance(error, RedriveError):
        return error.code
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
