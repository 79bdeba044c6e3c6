"""An HTTP endpoint as a target of letters: `http://127.0.0.1:9000/orders`, `https://…`."""

from __future__ import annotations

from redrive.backends.http.transport import HttpTransport

__all__ = ["HttpTransport", "opened", "opened_plain"]


def opened(location: str) -> HttpTransport:
    """`https://[user:password@]host[:port]/path?query#timeout=30&ca=…`; what is behind # stays here."""
    return HttpTransport(f"https:{location}")


def opened_plain(location: str) -> HttpTransport:
    """`http://…`: the same without encryption, for an endpoint on this host or in a network you trust."""
    return HttpTransport(f"http:{location}")
