"""With OpenTelemetry installed, an opened store reports to it; a setting turns that off."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

STORY = """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider([reader]))

import redrive.blocking

with redrive.blocking.open("memory:") as dlq:
    dlq.capture("secret body", ValueError("bad"), source="orders")

print(sorted({span.name for span in spans.get_finished_spans()}))
data = reader.get_metrics_data()
found = [metric.name for one in data.resource_metrics for scope in one.scope_metrics for metric in scope.metrics] if data else []
print("redrive_letters_held_total" in found, "redrive_store_calls_total" in found)
assert "secret body" not in str([span.to_json() for span in spans.get_finished_spans()])
"""


def told(folder: Path, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", STORY],
        cwd=folder,
        env={"PATH": "", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_an_opened_store_gives_its_calls_spans_and_metrics(tmp_path: Path) -> None:
    assert told(tmp_path) == ["['redrive.store.close', 'redrive.store.put']", "True True"]


@pytest.mark.parametrize("word", ["false", "0"])
def test_a_setting_turns_it_off(tmp_path: Path, word: str) -> None:
    assert told(tmp_path, REDRIVE_TELEMETRY=word) == ["[]", "False False"]
