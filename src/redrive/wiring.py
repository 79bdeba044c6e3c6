"""From a URL to a working whole: which backend answers to a scheme, loaded when it is used."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from redrive.backends.files.bodies import FileBodies
from redrive.engine.bound_desk import BoundDesk
from redrive.engine.call import FunctionTransport
from redrive.engine.dead_letters import DeadLetters, Limits, Sink
from redrive.engine.hook import HookFunction
from redrive.engine.metrics import Meter
from redrive.engine.observed import ObservedLetters
from redrive.engine.run import CommandTransport
from redrive.engine.telemetry import Telemetry
from redrive.model.errors import BadSettings, UnknownScheme
from redrive.model.redaction import Redaction
from redrive.ports.notifier import Notifier
from redrive.ports.opening import Deskless, Opened
from redrive.ports.queues import QueueStore
from redrive.ports.transport import Transport
from redrive.settings import DESK, Settings, load, masked

if TYPE_CHECKING:
    from redrive.engine.alert import Alarm

_QUEUE, _MAILBOX = "queue:", "mailbox:"
STORE = "store"
"""What the store of the letters is called as a store of queues."""

STORES: dict[str, str] = {
    "memory": "redrive.backends.memory:opened",
    "sqlite": "redrive.backends.sqlite:opened",
    "postgres": "redrive.backends.postgres:opened",
    "postgresql": "redrive.backends.postgres:opened",
    "redis": "redrive.backends.redis:opened",
    "rediss": "redrive.backends.redis:opened_tls",
    "opensearch": "redrive.backends.opensearch:opened",
    "opensearchs": "redrive.backends.opensearch:opened_tls",
}
"""The scheme of a store's URL → what opens it, given the rest of the URL."""


def _made(maker: str, *given: object) -> Transport:
    """What the maker gives that `module:function` names, loaded when it is used."""
    module, _, function = maker.partition(":")
    return cast("Transport", getattr(importlib.import_module(module), function)(*given))


TRANSPORTS: dict[str, Callable[[str, Settings], Transport]] = {
    "py": lambda location, _: FunctionTransport.named(location),
    "command": lambda *_: CommandTransport(),
    "http": lambda location, _: _made("redrive.backends.http:opened_plain", location),
    "https": lambda location, _: _made("redrive.backends.http:opened", location),
    "kafka": lambda location, settings: _made("redrive.backends.kafka:opened", location, settings.kafka),
}
"""The scheme of a target's URL → what makes its transport, given the rest of the URL."""

NOTIFIERS: dict[str, str] = {
    "https": "redrive.backends.webhook:opened",
    "http": "redrive.backends.webhook:opened_plain",
    "pagerduty": "redrive.backends.pagerduty:opened",
}
"""The scheme of an alert target's URL → what makes its notifier, given the rest of the URL."""


def open(url: str | None = None, *, redact: Redaction | None = None) -> DeadLetters:
    """The whole for a store's URL; what the URL does not say comes from settings: environment, file, defaults."""
    return connect(load({"store": url, "redact": redact}).settings)


def connect(
    settings: Settings,
    *meters: Meter,
    letters: Opened | None = None,
    alerts: Sequence[Notifier | HookFunction] = (),
    has_journal: bool = True,
) -> DeadLetters:
    """The whole for these settings, measured by these meters too. Nothing is touched until its first use.

    `letters` is a store over somebody's own client, used on that client's event loop alone; `alerts` are told beside those of the settings. Without a journal, what a
    store cannot hold is the caller's.
    """
    telemetry = _telemetry(settings, meters)
    opened = letters or store(settings.store, desk=settings.desk)
    observed = ObservedLetters(opened.letters, telemetry)
    told = [*notifiers(settings), *alerts]
    journal = None
    if has_journal and not observed.capabilities.embedded:
        from redrive.engine.journal import Journal  # needs file locks that not every system has; an embedded store has no journal

        journal = Journal(settings.journal_folder(), masked(settings.store))

    def resolve(url: str) -> Transport:
        if url.startswith((_QUEUE, _MAILBOX)):
            return cast("Transport", importlib.import_module("redrive.queues.transport").beside(dlq, settings, url))
        return transport(url, settings)

    def elsewhere(url: str) -> DeadLetters | Sink:
        if url.startswith(_QUEUE):
            return cast("Sink", importlib.import_module("redrive.queues.sink").beside(dlq, settings, url))
        if url.startswith(_MAILBOX):
            return cast("Sink", importlib.import_module("redrive.mailboxes.sink").beside(dlq, settings, url))
        return connect(replace(settings, store=url), *meters)

    dlq = DeadLetters(
        observed,
        opened.desk,
        namespace=settings.namespace,
        bodies=FileBodies(opened.bodies_folder) if opened.bodies_folder else None,
        journal=journal,
        limits=Limits(
            body=settings.body_limit, traceback=settings.traceback_limit, lease=timedelta(seconds=settings.lease_seconds)
        ),
        telemetry=telemetry,
        redaction=settings.redact,
        retention=settings.retention,
        replay=settings.replay,
        alarm=_alarm(told, settings, telemetry) if told else None,
        elsewhere=elsewhere,
        targets=settings.targets,
        resolve=resolve,
        is_loop_bound=letters is not None,
        queues=opened.queues,
    )
    return dlq


def _alarm(told: Sequence[Notifier | HookFunction], settings: Settings, telemetry: Telemetry) -> Alarm:
    from redrive.engine.alert import Alarm  # most stores tell nobody

    return Alarm(told, redaction=settings.redact, telemetry=telemetry)


def _telemetry(settings: Settings, meters: tuple[Meter, ...]) -> Telemetry:
    """Where measurements go: to the meters given, and to OpenTelemetry when it is installed and wanted."""
    if not settings.telemetry or importlib.util.find_spec("opentelemetry") is None:
        return Telemetry(meters=meters)
    from redrive.engine.otel import OtelMeter, OtelTracer

    return Telemetry(meters=(*meters, OtelMeter()), tracer=OtelTracer())


def store(url: str, *, desk: str = DESK) -> Opened:
    """The store that a URL names, with its desk: its own, or the one at the second URL when it has none."""
    opened = _opened(url)
    return opened if isinstance(opened, Opened) else with_desk(opened, desk)


def with_desk(opened: Deskless, desk: str) -> Opened:
    """A store that has no desk, with the one at this URL."""
    elsewhere = _opened(desk)
    if isinstance(elsewhere, Deskless):
        raise BadSettings(f"there is no desk at {masked(desk)}; let desk be a store that has one, e.g. {DESK}")
    return Opened(
        letters=opened.letters,
        desk=BoundDesk(elsewhere.desk, opened.bind, masked(desk)),
        examine=opened.examine,
        queues=opened.queues,
    )


def _opened(url: str) -> Opened | Deskless:
    scheme, location = _split(url, STORES, "store")
    module, _, function = STORES[scheme].partition(":")
    opened = cast("Callable[[str], Opened | Deskless]", getattr(importlib.import_module(module), function))
    return opened(location)


def queue_stores(settings: Settings, own: QueueStore | None) -> dict[str, QueueStore]:
    """The stores for queues by name: the store's own first, if it keeps queues, then those of the settings."""
    stores = {} if own is None else {STORE: own}
    for name, url in settings.queues.items():
        if name == STORE:
            raise BadSettings(f"'{STORE}' under [queues] is the store of the letters itself; give {masked(url)} another name")
        found = _opened(url).queues
        if found is None:
            raise BadSettings(f"there are no queues at {masked(url)}: the store '{name}' under [queues] keeps none")
        stores[name] = found
    if not stores:
        raise BadSettings(f"{masked(settings.store)} keeps no queues; name a store for them under [queues] in the settings")
    return stores


def transport(url: str, settings: Settings = Settings()) -> Transport:
    """The target that a URL names."""
    scheme, location = _split(url, TRANSPORTS, "target")
    return TRANSPORTS[scheme](location, settings)


def notifiers(settings: Settings) -> list[Notifier]:
    """Who is told of exhausted letters. Nobody is reached before there is something to tell."""
    return [notifier(url) for url in settings.alerts]


def notifier(url: str) -> Notifier:
    """The alert target that a URL names."""
    if "://" not in url or not url.partition("://")[0].isalnum():
        # It is not repeated: it may be a bare key.
        listed = ", ".join(f"{name}://" for name in NOTIFIERS)
        raise UnknownScheme(f"a target of alerts has no scheme; its URL begins with one of {listed}")
    scheme, location = _split(url, NOTIFIERS, "target of alerts")
    module, _, function = NOTIFIERS[scheme].partition(":")
    opened = cast("Callable[[str], Notifier]", getattr(importlib.import_module(module), function))
    return opened(location)


def _split(url: str, known: dict[str, str] | dict[str, Callable[[str, Settings], Transport]], what: str) -> tuple[str, str]:
    scheme, colon, location = url.partition(":")
    if colon and scheme in known:
        return scheme, location
    from difflib import get_close_matches  # only mistakes need it

    listed = ", ".join([*(f"{name}:" for name in known), *([_QUEUE, _MAILBOX] if what == "target" else [])])
    near = get_close_matches(scheme, known, n=1)
    hint = f"; did you mean {near[0]}:?" if near else ""
    if not colon:
        hint = f"; did you mean sqlite:{url}?" if what == "store" else ""
        raise UnknownScheme(f"'{url}' has no scheme; a {what}'s URL begins with one of {listed}{hint}")
    raise UnknownScheme(f"no {what} answers to '{scheme}:'; known are {listed}{hint}")
