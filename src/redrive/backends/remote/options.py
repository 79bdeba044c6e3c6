"""What the URLs of stores across a network have in common."""

from __future__ import annotations

from datetime import timedelta

from redrive.model.errors import BadSettings

_DAY_SECONDS = 86_400


def named(host: str, port: int) -> str:
    """A host and port for people."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def timeout(text: str, *, usual: timedelta) -> timedelta:
    """The option `timeout`, in seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _DAY_SECONDS:
        raise BadSettings(f"timeout={text} must be a number of seconds above 0, e.g. timeout={usual.total_seconds():g}")
    return timedelta(seconds=seconds)


def number(name: str, text: str, *, least: int, most: int) -> int:
    """An option that is a whole number."""
    if not text.isdecimal() or not least <= int(text) <= most:
        raise BadSettings(f"{name}={text} must be a number from {least} to {most}")
    return int(text)
