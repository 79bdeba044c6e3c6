"""Retention: rules by which letters are removed or put away when their time has come. Without a rule, none ever is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from redrive.model.errors import BadSettings
from redrive.model.hint import hint
from redrive.model.language import parse
from redrive.model.query import Query
from redrive.model.rules import ensure_query, tables_of

ALLOWED = 'rules such as {query = "status:completed age>30d", act = "purge"}, or lines such as `purge: status:completed age>30d`'
_NAMES = ("query", "act", "name")


class RetentionAct(StrEnum):
    PURGE = "purge"
    ARCHIVE = "archive"


class RetentionRule(Struct, frozen=True, kw_only=True):
    """Which letters have had their time, and what is done with them."""

    query: str
    """In the query language; ages count from when the rule is run."""
    act: RetentionAct
    name: str = ""

    def __str__(self) -> str:
        """As it would be written in the environment, and as metrics and the audit call it when it has no name."""
        return f"{self.act}: {self.query}"

    @property
    def label(self) -> str:
        return self.name or str(self)

    def asked(self, now: datetime) -> Query:
        """The rule's question, as it is asked now."""
        return parse(self.query, now)


def retention_rules(given: object) -> tuple[RetentionRule, ...]:
    """Rules as files, the environment or code give them: tables, texts, or one text with a rule a line, or as JSON.

    `BadSettings` says in one sentence what must be mended; `BadQuery` also points at where in the rule's query.
    """
    if isinstance(given, str):
        given = _from_text(given)
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise BadSettings(f"it must be a list of {ALLOWED}")
    return tuple(_rule(number, one) for number, one in enumerate(given, 1))


def _from_text(text: str) -> object:
    if not text.lstrip().startswith(("[", "{")):
        return [line for line in text.splitlines() if line.strip()]
    return tables_of(text, "it begins as JSON")


def _rule(number: int, given: object) -> RetentionRule:
    match given:
        case RetentionRule():
            rule = given
        case str():
            act, colon, query = given.partition(":")
            if not colon:
                raise BadSettings(f"rule {number} must be such as `purge: status:completed age>30d`, not {given!r}")
            rule = RetentionRule(query=query.strip(), act=_act(number, act.strip()))
        case Mapping():
            rule = _from_table(number, given)
        case _:
            raise BadSettings(f"rule {number} must be a table with query and act, not {given!r}")
    called = f"rule {number} ({rule.name})" if rule.name else f"rule {number}"
    if not rule.query.strip():
        raise BadSettings(f"{called} has an empty query; write all for every letter")
    ensure_query(rule.query, called)
    return rule


def _from_table(number: int, table: Mapping[Any, Any]) -> RetentionRule:
    for name in table:
        if name not in _NAMES:
            raise BadSettings(f"rule {number} has no '{name}'; {hint(str(name), list(_NAMES))}")
    query, act, name = table.get("query"), table.get("act"), table.get("name", "")
    if not isinstance(query, str):
        raise BadSettings(f'rule {number} needs a query, such as query = "status:completed age>30d"')
    if not isinstance(name, str):
        raise BadSettings(f"rule {number} must have a text as its name, not {name!r}")
    return RetentionRule(query=query, act=_act(number, act), name=name)


def _act(number: int, act: object) -> RetentionAct:
    if act not in set(RetentionAct):
        what = f"act cannot be {act!r}" if act is not None else "act is missing"
        raise BadSettings(f"rule {number}: {what}; it is purge or archive")
    return RetentionAct(str(act))
