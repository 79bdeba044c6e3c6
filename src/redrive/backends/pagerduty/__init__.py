"""Alerts as incidents: PagerDuty's Events API v2, and whatever speaks it."""

from __future__ import annotations

from redrive.backends.pagerduty.notifier import PagerDutyNotifier
from redrive.backends.posting import Endpoint, location_of, options, shown
from redrive.model.errors import BadSettings

__all__ = ["PagerDutyNotifier", "opened"]

_HOST = "events.pagerduty.com"
_PATH = "/v2/enqueue"
_EXAMPLE = "pagerduty://ROUTING_KEY@events.pagerduty.com"


def opened(location: str) -> PagerDutyNotifier:
    """`pagerduty://ROUTING_KEY[@host[:port][/path]][?scheme=http&timeout=10&ca=…]`."""
    place = location_of(location, example=_EXAMPLE)
    key, host, port = place.user, place.host, place.port
    if key is None and "." not in host and port is None:
        key, host = host, ""
    if not key or place.password is not None:
        raise BadSettings(f"a PagerDuty URL names the routing key of an integration, and nothing more, before the @: {_EXAMPLE}")
    path, _, given = place.rest.partition("?")
    if "#" in place.rest:
        raise BadSettings(f"a PagerDuty URL takes its options behind a ?, not behind a #: {_EXAMPLE}?timeout=10")
    said = options(given, ("scheme", "timeout", "ca"), what="a PagerDuty URL")
    host = host or _HOST
    endpoint = Endpoint(
        host=host,
        port=port,
        path=path if len(path) > 1 else _PATH,
        is_tls=said.scheme == "https",
        name=f"pagerduty at {shown(host, port)}",
        timeout=said.timeout,
        ca=said.ca,
    )
    return PagerDutyNotifier(endpoint, routing_key=key)
