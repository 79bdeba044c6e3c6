"""The server's clock as seen from here."""

from __future__ import annotations

import time
from datetime import datetime, timedelta


class ServerClock:
    """What time it is at the server, by what it last said and how long ago that was.

    For stamps on letters only. Whether a lease is live is always decided at the server, by the clock it has there.
    """

    def __init__(self) -> None:
        self._heard: datetime | None = None
        self._heard_at = 0.0

    def heard(self, now: datetime) -> None:
        """The server just said that it is `now`."""
        self._heard, self._heard_at = now, time.monotonic()

    def now(self, given: datetime | None = None) -> datetime:
        """The given instant, else the server's. It has been heard by then: opening a connection asks for it."""
        if given is not None:
            return given
        assert self._heard is not None
        return self._heard + timedelta(seconds=time.monotonic() - self._heard_at)
