"""From a URL to a working whole: which backend answers to a scheme, loaded when it is used."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from datetime import timedelta
from typing import cast

from msgspec.structs import replace

from redrive.backends.files.bodies import FileBodies
from redrive.engine.bound_desk import BoundDesk
from redrive.engine.call import FunctionTransport
from redrive.engine.dead_letters import DeadLetters, Limits
from redrive.engine.metrics import Meter
from redrive.engine.observed import ObservedLetters
from redrive.engine.run import CommandTransport
from redrive.engine.telemetry import Telemetry
from redrive.model.errors import BadSettings, UnknownScheme
from redrive.model.redaction import Redaction
from redrive.ports.opening import Deskless, Opened
from redrive.ports.transport import Transport
from redrive.settings import DESK, Settings, load, masked

STORES: dict[str, str] = {
    "memory": "redrive.backends.memory:opened",
    "sqlite": "redrive.backends.sqlite:opened",
    "postgres": "redrive.backends.postgres:opened",
    "postgresql": "redrive.backends.postgres:opened",
    "redis": "redrive.backends.redis:opened",
    "rediss": "redrive.backends.redis:opened_tls",
}
"""The scheme of a store's URL → what opens it, given the rest of the URL."""

TRANSPORTS: dict[str, Callable[[str], Transport]] = {
    "py": FunctionTransport.named,
    "command": lambda _: CommandTransport(),
}
"""The scheme of a target's URL → what makes its transport, given the rest of the URL."""


def open(url: str | None = None, *, redact: Redaction | None = None) -> DeadLetters:
    """The whole for a store's URL; what the URL does not say comes from settings: environment, file, defaults."""
    return connect(load({"store": url, "redact": redact}).settings)


def connect(settings: Settings, *meters: Meter) -> DeadLetters:
    """The whole for these settings, measured by these meters too. Nothing is touched until its first use."""
    telemetry = _telemetry(settings, meters)
    opened = store(settings.store, desk=settings.desk)
    letters = ObservedLetters(opened.letters, telemetry)
    journal = None
    if not letters.capabilities.embedded:
        from redrive.engine.journal import Journal  # needs file locks that not every system has; an embedded store has no journal

        journal = Journal(settings.journal_folder(), masked(settings.store))
    return DeadLetters(
        letters,
        opened.desk,
        namespace=settings.namespace,
        bodies=FileBodies(opened.bodies_folder) if opened.bodies_folder else None,
        journal=journal,
        limits=Limits(
            body=settings.body_limit, traceback=settings.traceback_limit, lease=timedelta(seconds=settings.lease_seconds)
        ),
        telemetry=telemetry,
        redaction=settings.redact,
        elsewhere=lambda url: connect(replace(settings, store=url), *meters),
    )


def _telemetry(settings: Settings, meters: tuple[Meter, ...]) -> Telemetry:
    """Where measurements go: to the meters given, and to OpenTelemetry when it is installed and wanted."""
    if not settings.telemetry or importlib.util.find_spec("opentelemetry") is None:
        return Telemetry(meters=meters)
    from redrive.engine.otel import OtelMeter, OtelTracer

    return Telemetry(meters=(*meters, OtelMeter()), tracer=OtelTracer())


def store(url: str, *, desk: str = DESK) -> Opened:
    """The store that a URL names, with its desk: its own, or the one at the second URL when it has none."""
    opened = _opened(url)
    if isinstance(opened, Opened):
        return opened
    elsewhere = _opened(desk)
    if isinstance(elsewhere, Deskless):
        raise BadSettings(f"there is no desk at {masked(desk)}; let desk be a store that has one, e.g. {DESK}")
    return Opened(letters=opened.letters, desk=BoundDesk(elsewhere.desk, opened.bind, masked(desk)), examine=opened.examine)


def _opened(url: str) -> Opened | Deskless:
    scheme, location = _split(url, STORES, "store")
    module, _, function = STORES[scheme].partition(":")
    opened = cast("Callable[[str], Opened | Deskless]", getattr(importlib.import_module(module), function))
    return opened(location)


def transport(url: str) -> Transport:
    """The target that a URL names."""
    scheme, location = _split(url, TRANSPORTS, "target")
    return TRANSPORTS[scheme](location)


def _split(url: str, known: dict[str, str] | dict[str, Callable[[str], Transport]], what: str) -> tuple[str, str]:
    scheme, colon, location = url.partition(":")
    if colon and scheme in known:
        return scheme, location
    from difflib import get_close_matches  # only mistakes need it

    listed = ", ".join(f"{name}:" for name in known)
    near = get_close_matches(scheme, known, n=1)
    hint = f"; did you mean {near[0]}:?" if near else ""
    if not colon:
        hint = f"; did you mean sqlite:{url}?" if what == "store" else ""
        raise UnknownScheme(f"'{url}' has no scheme; a {what}'s URL begins with one of {listed}{hint}")
    raise UnknownScheme(f"no {what} answers to '{scheme}:'; known are {listed}{hint}")
