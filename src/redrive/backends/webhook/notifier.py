"""`WebhookNotifier`: one request an alert, signed."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from msgspec import json, to_builtins

from redrive.backends.posting import Endpoint, post_each
from redrive.model.alert import Alert
from redrive.model.errors import BadSettings

SCHEMA = 1
"""Raised when a field changes its meaning or goes; new fields may appear without."""

_PREFIX = "whsec_"


class WebhookNotifier:
    """A `Notifier` that posts each alert as JSON; with a secret, signed so that the receiver knows who sent it, and when."""

    def __init__(
        self, endpoint: Endpoint, *, secret: str | None = None, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.name = endpoint.name
        self._endpoint = endpoint.hiding(secret) if secret else endpoint
        self._key = _key(secret) if secret else None
        self._clock = clock

    def __repr__(self) -> str:
        return f"<WebhookNotifier {self.name}>"

    async def notify(self, alerts: Sequence[Alert]) -> None:
        await post_each(self._endpoint, alerts, self._request)

    async def close(self) -> None:
        """Nothing is kept open."""

    def _request(self, alert: Alert) -> tuple[bytes, Mapping[str, str]]:
        body = json.encode({"schema": SCHEMA, **to_builtins(alert)})
        id, timestamp = str(alert.id), str(int(self._clock().timestamp()))
        headers = {"webhook-id": id, "webhook-timestamp": timestamp}
        if self._key is not None:
            headers["webhook-signature"] = signature(self._key, id, timestamp, body)
        return body, headers


def signature(key: bytes, id: str, timestamp: str, body: bytes) -> str:
    """HMAC-SHA256 over `id.timestamp.body`, as Standard Webhooks writes it: `v1,` and base64."""
    signed = b".".join((id.encode(), timestamp.encode(), body))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def _key(secret: str) -> bytes:
    """The bytes to sign with: base64 behind `whsec_`, else the text as it is."""
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise BadSettings("a webhook's secret that begins with whsec_ goes on in base64; this one does not") from None
