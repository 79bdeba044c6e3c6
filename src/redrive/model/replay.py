"""Replay by rule: letters that go back by themselves, again and again. Without a rule, none ever does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from redrive.model.duration import duration, written
from redrive.model.errors import BadSettings
from redrive.model.hint import hint
from redrive.model.language import parse
from redrive.model.query import Query
from redrive.model.rules import ensure_query, tables_of
from redrive.model.tempo import Tempo, rate_of, share_of

ALLOWED = 'rules such as {name = "shipping", query = "source:orders status:exhausted", to = "source", every = "10m"}'
NEVER = "never"
_TO = "source"
_NAME = re.compile(r"[\w.-]{1,60}")
_USUAL = Tempo(stop_on_refail=0.2)


class ReplayRule(Struct, frozen=True, kw_only=True):
    """Which letters go back by themselves, where to, how often it is looked for them, and how fast they go."""

    name: str
    """What operations and logs call it: letters, digits, dots, dashes."""
    query: str
    """In the query language; ages count from when it looks."""
    to: Any = _TO
    """As `redrive replay --to` takes it; in code also a function, a transport, or one for each source."""
    every: timedelta = timedelta(minutes=5)
    """How often it looks for letters; between two of its operations there is at least so long."""
    most: int = 1000
    """So many letters at a time, those that died first; the others have their turn the next time."""
    when_closed: str = ""
    """It looks only while the breaker of this source is closed; empty: it waits for none."""
    tempo: Tempo = _USUAL

    def __str__(self) -> str:
        """As people are told of it: without its target, which may hold a login."""
        return f"{self.name}: {self.query} every {written(self.every)}"

    def asked(self, now: datetime) -> Query:
        """The rule's question, as it is asked now."""
        return parse(self.query, now)

    def table(self) -> dict[str, object]:
        """As it would be written in a file, without what is as usual."""
        tempo = self.tempo
        share = NEVER if tempo.stop_on_refail is None else tempo.stop_on_refail
        ramp = None if tempo.ramp is None else written(tempo.ramp)
        given = {
            "name": self.name,
            "query": self.query,
            "to": self.to,
            "every": written(self.every),
            "most": self.most,
            "when_closed": self.when_closed,
            "rate": tempo.rate,
            "batch": tempo.batch,
            "canary": tempo.canary,
            "ramp": ramp,
            "stop_on_refail": share,
            "window": written(tempo.window),
            "keep_order": tempo.keeps_order,
            "max_rounds": tempo.max_rounds,
        }
        return {name: value for name, value in given.items() if name in ("name", "query") or value != _AS_USUAL[name]}


_AS_USUAL: dict[str, object] = {
    "to": _TO,
    "every": "5m",
    "most": 1000,
    "when_closed": "",
    "rate": None,
    "batch": _USUAL.batch,
    "canary": 0,
    "ramp": None,
    "stop_on_refail": 0.2,
    "window": written(_USUAL.window),
    "keep_order": False,
    "max_rounds": _USUAL.max_rounds,
}


def replay_rules(given: object) -> tuple[ReplayRule, ...]:
    """Rules as files, the environment or code give them: tables, `ReplayRule`s, or one text as JSON.

    `BadSettings` says in one sentence what must be mended; `BadQuery` also points at where in the rule's query.
    """
    if isinstance(given, str):
        given = _from_text(given)
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise BadSettings(f"it must be a list of {ALLOWED}")
    rules = tuple(_rule(number, one) for number, one in enumerate(given, 1))
    names = [rule.name for rule in rules]
    for number, name in enumerate(names, 1):
        if name in names[: number - 1]:
            raise BadSettings(f"rule {number} is named {name}, as another before it is; an operation must say which rule made it")
    return rules


def _from_text(text: str) -> object:
    return tables_of(text, "in one text it must be JSON") if text.strip() else []


def _rule(number: int, given: object) -> ReplayRule:
    match given:
        case ReplayRule():
            rule = given
        case Mapping():
            rule = _from_table(number, given)
        case _:
            raise BadSettings(f"rule {number} must be a table with name and query, not {given!r}")
    if not _NAME.fullmatch(str(rule.name)):
        raise BadSettings(f"rule {number} needs a name of letters, digits, dots and dashes, at most 60, not {rule.name!r}")
    called = f"rule {number} ({rule.name})"
    if not str(rule.query).strip():
        raise BadSettings(f'{called} needs a query, such as query = "source:orders status:exhausted"; write all for every letter')
    if not rule.to:
        raise BadSettings(f"{called} must have a target, such as source or py:shop.orders:handle")
    if rule.every <= timedelta():
        raise BadSettings(f"{called}: every must be longer than nothing")
    if rule.most < 1:
        raise BadSettings(f"{called}: most must be at least 1 letter, got {rule.most!r}")
    ensure_query(rule.query, called)
    return rule


def _text(given: object) -> str | None:
    return given if isinstance(given, str) else None


def _number(given: object) -> int | None:
    return given if isinstance(given, int) and not isinstance(given, bool) else None


def _flag(given: object) -> bool | None:
    return given if isinstance(given, bool) else None


def _length(given: object) -> timedelta | None:
    return duration(given) if isinstance(given, str) else None


def _rate(given: object) -> float | None:
    return rate_of(given) if isinstance(given, str) else _float(given)


def _share(given: object) -> float | None:
    return share_of(given) if isinstance(given, str) else _float(given)


def _float(given: object) -> float | None:
    return float(given) if isinstance(given, int | float) and not isinstance(given, bool) else None


_A_LENGTH = "a duration such as 30s, 10m or 1d"
_A_NUMBER = "a whole number"
_FIELDS: dict[str, tuple[Callable[[object], object], str]] = {
    "name": (_text, "a text"),
    "query": (_text, "a text such as source:orders status:exhausted"),
    "to": (_text, "a target such as source or py:shop.orders:handle"),
    "every": (_length, _A_LENGTH),
    "most": (_number, _A_NUMBER),
    "when_closed": (_text, "the name of a source"),
    "rate": (_rate, "letters by time, such as 50/s"),
    "batch": (_number, _A_NUMBER),
    "canary": (_number, _A_NUMBER),
    "ramp": (_length, _A_LENGTH),
    "stop_on_refail": (_share, "a share such as 20%, or never"),
    "window": (_length, _A_LENGTH),
    "keep_order": (_flag, "true or false"),
    "max_rounds": (_number, _A_NUMBER),
}
"""How each field of a table is read, and what it must be."""
_TEMPO = ("rate", "batch", "canary", "ramp", "stop_on_refail", "window", "keep_order", "max_rounds")


def _from_table(number: int, table: Mapping[Any, Any]) -> ReplayRule:
    named = table.get("name")
    called = f"rule {number} ({named})" if isinstance(named, str) and named else f"rule {number}"
    values: dict[str, Any] = {}
    for name, given in table.items():
        if name not in _FIELDS:
            raise BadSettings(f"{called} has no '{name}'; {hint(str(name), list(_FIELDS))}")
        read, what = _FIELDS[name]
        is_never = name == "stop_on_refail" and given == NEVER
        try:
            values[name] = None if is_never else read(given)
        except BadSettings as error:
            raise BadSettings(f"{called}: {error}") from error
        if values[name] is None and not is_never:
            raise BadSettings(f"{called}: {name} must be {what}" + ("" if name == "to" else f", not {given!r}"))
    tempo = {"stop_on_refail": _USUAL.stop_on_refail} | {name: values.pop(name) for name in _TEMPO if name in values}
    if "keep_order" in tempo:
        tempo["keeps_order"] = tempo.pop("keep_order")
    try:
        return ReplayRule(**{"name": "", "query": ""} | values, tempo=Tempo(**tempo))
    except BadSettings as error:
        raise BadSettings(f"{called}: {error}") from error
