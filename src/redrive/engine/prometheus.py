"""Measurements for Prometheus to fetch. Needs the `http` extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.engine.metrics import METRICS, Kind, Metric
from redrive.model.errors import MissingExtra

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram


class PrometheusMeter:
    """Keeps measurements in a registry of its own, so that several can live in one process."""

    is_heard = True

    def __init__(self) -> None:
        try:
            import prometheus_client
        except ImportError as error:
            raise MissingExtra("metrics for Prometheus need prometheus-client; pip install 'redrive[http]'") from error
        self._registry = registry = prometheus_client.CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        self._gauges: dict[str, Gauge] = {}
        for metric in METRICS:
            name, help, labels = metric.name, metric.help, metric.labels
            match metric.kind:
                case Kind.COUNTER:
                    self._counters[name] = prometheus_client.Counter(name, help, labels, registry=registry)
                case Kind.HISTOGRAM:
                    self._histograms[name] = prometheus_client.Histogram(
                        name, help, labels, registry=registry, buckets=metric.buckets
                    )
                case Kind.GAUGE:
                    self._gauges[name] = prometheus_client.Gauge(name, help, labels, registry=registry)

    def add(self, metric: Metric, amount: float, /, **labels: str) -> None:
        counter = self._counters[metric.name]
        (counter.labels(**labels) if labels else counter).inc(amount)

    def observe(self, metric: Metric, value: float, /, **labels: str) -> None:
        histogram = self._histograms[metric.name]
        (histogram.labels(**labels) if labels else histogram).observe(value)

    def set(self, metric: Metric, value: float, /, **labels: str) -> None:
        gauge = self._gauges[metric.name]
        (gauge.labels(**labels) if labels else gauge).set(value)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """All measurements as text, and its content type; `accept` is the request's header, by which a format is chosen."""
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
