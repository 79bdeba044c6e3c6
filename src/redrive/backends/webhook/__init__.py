"""Alerts to a webhook of yours, in the form of https://www.standardwebhooks.com."""

from __future__ import annotations

from urllib.parse import quote

from redrive.backends.posting import Endpoint, location_of, options, shown
from redrive.backends.webhook.notifier import WebhookNotifier
from redrive.model.errors import BadSettings

__all__ = ["WebhookNotifier", "opened", "opened_plain"]

_EXAMPLE = "https://ops.example.com/hooks/redrive#secret=…"


def opened(location: str) -> WebhookNotifier:
    """`https://[user:password@]host[:port]/path?query#secret=…&timeout=10&ca=…`; what is behind # stays here."""
    return _notifier(location, is_tls=True)


def opened_plain(location: str) -> WebhookNotifier:
    """`http://…`: the same without encryption, for a receiver on this host or in a network you trust."""
    return _notifier(location, is_tls=False)


def _notifier(location: str, *, is_tls: bool) -> WebhookNotifier:
    place = location_of(location, example=_EXAMPLE)
    host, port, password = place.host, place.port, place.password
    if not host:
        raise BadSettings(f"a webhook's URL names a host: {_EXAMPLE}")
    path, _, given = place.rest.partition("#")
    said = options(given, ("secret", "timeout", "ca"), what="a webhook's URL")
    path = path if path.startswith("/") else f"/{path}"
    own = path.partition("?")[0]
    endpoint = Endpoint(
        host=host,
        port=port,
        # What is escaped stays so; what is not ASCII becomes so.
        path=quote(path, safe="%/?:@!$&'()*+,;=~-._[]|^`{}\\\"<>"),
        is_tls=is_tls,
        # Many a webhook's path is its key.
        name=f"{'https' if is_tls else 'http'}://{shown(host, port)}" + ("/…" if path != "/" else ""),
        user=place.user,
        password=password,
        timeout=said.timeout,
        ca=said.ca,
        secrets=tuple(part for part in (password, own if len(own) > 1 else None, path.partition("?")[2]) if part),
    )
    return WebhookNotifier(endpoint, secret=said.secret)
