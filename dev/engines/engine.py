"""What the tool knows of an engine: where it comes from, and how it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol, Self


class Running(Protocol):
    """What was started: a server, or several that act as one."""

    @property
    def name(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def pid(self) -> int | None: ...
    @property
    def is_alive(self) -> bool: ...
    @property
    def ready_in(self) -> timedelta: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...
    def stop(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None: ...


class Source(Protocol):
    """Where an engine comes from."""

    @property
    def is_installed(self) -> bool: ...

    @property
    def told(self) -> str:
        """In a few words, for a table."""
        ...

    @property
    def lacks(self) -> tuple[str, ...]:
        """The system's packages that are not there yet."""
        ...

    def install(self) -> None:
        """Have it installed; nothing to do if it is. Raises `EngineMissing` with the one line to run."""
        ...


class EngineMissing(Exception):
    """An engine is not installed and may not be installed now. The message says what to run."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine by its name. `make(**options)` gives a server that was not started yet."""

    name: str
    source: Source
    make: Callable[..., Running]
    shared: Mapping[str, Any] = field(default_factory=dict)
    """The options of the one that all tests share."""
    behind: str | None = None
    """The engine that it stands in front of; `make` gets that one's URL as `target`."""
