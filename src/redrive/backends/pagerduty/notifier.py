"""`PagerDutyNotifier`: each alert triggers, or adds to, the incident of its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import DecodeError, json, to_builtins

from redrive.backends.posting import Endpoint, post_each
from redrive.model.alert import Alert

_SUMMARY_LIMIT = 1024
_TEXT_LIMIT = 255


class PagerDutyNotifier:
    """A `Notifier` for the Events API v2. The incident's `dedup_key` is the alert's key: one group of letters is one incident."""

    def __init__(self, endpoint: Endpoint, *, routing_key: str) -> None:
        self.name = endpoint.name
        self._endpoint = endpoint.hiding(routing_key)
        self._routing_key = routing_key

    def __repr__(self) -> str:
        return f"<PagerDutyNotifier {self.name}>"

    async def notify(self, alerts: Sequence[Alert]) -> None:
        await post_each(self._endpoint, alerts, self._request, told)

    async def close(self) -> None:
        """Nothing is kept open."""

    def _request(self, alert: Alert) -> tuple[bytes, Mapping[str, str]]:
        return json.encode({"routing_key": self._routing_key, **event(alert)}), {}


def event(alert: Alert) -> dict[str, Any]:
    """The event that tells of an alert, without its routing key."""
    details = to_builtins(alert)
    return {
        "event_action": "trigger",
        "dedup_key": alert.key,
        "client": "redrive",
        "payload": {
            "summary": alert.summary[:_SUMMARY_LIMIT],
            "source": alert.source[:_TEXT_LIMIT] or "redrive",
            "severity": alert.severity.value,
            "timestamp": details["at"],
            "component": "redrive",
            "group": alert.namespace[:_TEXT_LIMIT],
            "class": alert.failure.type[:_TEXT_LIMIT],
            "custom_details": {name: details[name] for name in ("id", "kind", "count", "since", "letters", "failure")},
        },
    }


def told(answer: bytes) -> str:
    """Why an event was refused, in PagerDuty's words: `{"message": "…", "errors": ["…"]}`."""
    try:
        said = json.decode(answer)
    except (DecodeError, UnicodeDecodeError):
        return answer.decode("utf-8", "replace")
    if not isinstance(said, dict):
        return str(said)
    errors = said.get("errors")
    parts = [said.get("message") or said.get("status"), *(errors if isinstance(errors, list) else [errors])]
    return "; ".join(str(part) for part in parts if part)
