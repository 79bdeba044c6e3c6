"""What a backend says it can do. A claimed capability is tested by the kit; an unclaimed one raises `Unsupported`."""

from __future__ import annotations

from msgspec import Struct


class Capabilities(Struct, frozen=True, kw_only=True):
    durable: bool = False
    """What was confirmed survives kill -9 and a power cut."""
    embedded: bool = False
    """Lives in this process or machine: when it cannot hold a letter the caller is told, there is no journal."""
    inline: bool = False
    """Its verbs finish without suspending when driven from blocking code (see `redrive.ports.inline`)."""
    shared: bool = False
    """Several processes may use it at once."""
    atomic: bool = False
    """A batch is written whole or not at all, and never seen in part."""
    groups: bool = False
    """It answers `groups`."""
    documents: bool = False
    """It compares values inside bodies and metadata."""
    counters: bool = False
    """It keeps counts that answer `count`, `tally`, `hourly` and `groups`, and can `recount` them."""
    nearest: bool = False
    """It lists by nearness to the question's words (`Order.NEAREST`)."""
