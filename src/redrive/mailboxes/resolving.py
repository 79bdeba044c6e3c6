"""From a name that a message carries back to a mailbox: by a registry, by a factory, or by the one and then the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from redrive.mailboxes.errors import MailboxResolutionError
from redrive.model.errors import RedriveError

Box = TypeVar("Box")
Box_co = TypeVar("Box_co", covariant=True)


class MailboxResolver(Protocol[Box_co]):
    """Finds the mailbox that a name stands for."""

    def resolve(self, name: str) -> Box_co:
        """The mailbox; `MailboxResolutionError` when nobody knows it."""
        ...


class RegistryResolver(Generic[Box]):
    """Knows the mailboxes it was given, and those that are registered later."""

    def __init__(self, mailboxes: Mapping[str, Box] | None = None) -> None:
        self._mailboxes = dict(mailboxes or {})

    def register(self, name: str, mailbox: Box) -> None:
        self._mailboxes[name] = mailbox

    def resolve(self, name: str) -> Box:
        try:
            return self._mailboxes[name]
        except KeyError:
            raise MailboxResolutionError(name) from None


class FactoryResolver(Generic[Box]):
    """Makes a mailbox for whatever name comes. What the factory cannot make is not known."""

    def __init__(self, make: Callable[[str], Box]) -> None:
        self._make = make

    def resolve(self, name: str) -> Box:
        try:
            return self._make(name)
        except RedriveError:
            raise
        except Exception as error:
            raise MailboxResolutionError(name) from error


class CompositeResolver(Generic[Box]):
    """Asks a registry first, and lets a factory make what is not there."""

    def __init__(self, registry: Mapping[str, Box], factory: Callable[[str], Box] | None = None) -> None:
        self._registry = RegistryResolver(registry)
        self._factory = FactoryResolver(factory) if factory else None

    def resolve(self, name: str) -> Box:
        try:
            return self._registry.resolve(name)
        except MailboxResolutionError:
            if self._factory is None:
                raise
        return self._factory.resolve(name)
