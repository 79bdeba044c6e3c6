"""Where measurements and spans go: any number of meters and one tracer; by default nowhere, at almost no cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from redrive.engine.metrics import Meter, Metric

Attribute = str | int | float | bool
"""What a span can be told. Never a body."""


class SpanKind(StrEnum):
    INTERNAL = "internal"
    CLIENT = "client"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class Span(Protocol):
    """What is being done right now."""

    def set(self, name: str, value: Attribute) -> None:
        """Say something that was not known at the start."""
        ...


class Tracer(Protocol):
    @property
    def is_heard(self) -> bool:
        """Do spans lead anywhere just now?"""
        ...

    def span(
        self, name: str, kind: SpanKind, links: Sequence[str], attributes: Mapping[str, Attribute]
    ) -> AbstractContextManager[Span]:
        """A span for as long as the context lasts; links are W3C `traceparent` values. An error marks it and goes on."""
        ...


class NullSpan:
    """Remembers nothing."""

    def set(self, name: str, value: Attribute) -> None: ...


_NOTHING: AbstractContextManager[Span] = nullcontext(NullSpan())


class Telemetry(Struct, frozen=True, kw_only=True):
    """Meters and a tracer, used as one; itself a `Meter`."""

    meters: tuple[Meter, ...] = ()
    tracer: Tracer | None = None

    @property
    def is_silent(self) -> bool:
        if self.tracer is not None and self.tracer.is_heard:
            return False
        for meter in self.meters:  # noqa: SIM110 - asked for every letter; a generator takes three times as long
            if meter.is_heard:
                return False
        return True

    def add(self, metric: Metric, amount: float, /, **labels: str) -> None:
        for meter in self.meters:
            meter.add(metric, amount, **labels)

    def observe(self, metric: Metric, value: float, /, **labels: str) -> None:
        for meter in self.meters:
            meter.observe(metric, value, **labels)

    def set(self, metric: Metric, value: float, /, **labels: str) -> None:
        for meter in self.meters:
            meter.set(metric, value, **labels)

    def spans(
        self,
        name: str,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[str] = (),
        /,
        **attributes: Attribute,
    ) -> AbstractContextManager[Span]:
        """A span around what is done in the context. Names with dots go in as `**{"messaging.system": "redrive"}`."""
        if self.tracer is None or not self.tracer.is_heard:
            return _NOTHING
        return self.tracer.span(name, kind, links, attributes)


SILENT = Telemetry()
