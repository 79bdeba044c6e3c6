"""Resolvers: a registry, a factory, or the one and then the other."""

from __future__ import annotations

import pytest

from redrive.mailboxes import CompositeResolver, FactoryResolver, MailboxConnectionError, MailboxResolutionError, RegistryResolver
from redrive.mailboxes.testing import CollectingMailbox, NullMailbox

UNKNOWN = r"^Cannot resolve mailbox identifier: nobody$"


def test_a_registry_knows_what_was_registered() -> None:
    answers = NullMailbox[str, None]("answers")
    resolver = RegistryResolver({"answers": answers})
    assert resolver.resolve("answers") is answers
    with pytest.raises(MailboxResolutionError, match=UNKNOWN) as refused:
        resolver.resolve("nobody")
    assert refused.value.name == "nobody"
    resolver.register("nobody", answers)
    assert resolver.resolve("nobody") is answers


def test_a_factory_makes_a_mailbox_for_each_name() -> None:
    assert FactoryResolver(CollectingMailbox[str, None]).resolve("answers").name == "answers"


def test_what_a_factory_cannot_make_is_not_known() -> None:
    def make(name: str) -> NullMailbox[str, None]:
        raise KeyError(name)

    with pytest.raises(MailboxResolutionError, match=UNKNOWN):
        FactoryResolver(make).resolve("nobody")


def test_what_a_factory_cannot_reach_is_said_as_it_is() -> None:
    def make(name: str) -> NullMailbox[str, None]:
        raise MailboxConnectionError("the line is dead")

    with pytest.raises(MailboxConnectionError, match="the line is dead"):
        FactoryResolver(make).resolve("answers")


def test_a_registry_is_asked_before_a_factory() -> None:
    answers = NullMailbox[str, None]("answers")
    both = CompositeResolver({"known": answers}, NullMailbox)
    assert both.resolve("known") is answers
    assert both.resolve("made").name == "made"
    with pytest.raises(MailboxResolutionError, match=UNKNOWN):
        CompositeResolver({"known": answers}).resolve("nobody")
