"""Policies as documents: what TOML and YAML hold, read with care and written back without loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from msgspec import json, to_builtins

from redrive.model.backoff import Backoff, Custom, Exponential, Immediate, Linear, Never
from redrive.model.classify import rules_from
from redrive.model.duration import duration, written
from redrive.model.errors import BadSettings
from redrive.model.hint import hint
from redrive.model.policy import Policy, Route

_BACKOFFS: dict[str, type[Backoff]] = {"never": Never, "immediate": Immediate, "linear": Linear, "exponential": Exponential}
_KEYS = ("max_attempts", "max_age", "include_errors", "exclude_errors", "backoff", "rules", "routes")
_DURATIONS = frozenset({"step", "first", "cap"})


def policy_of(document: Mapping[str, Any]) -> Policy:
    """The policy that a document describes; `BadSettings` names what is wrong in it, and the nearest that would be right."""
    _ensure_known(document, _KEYS, "a policy")
    given: dict[str, Any] = {}
    if "max_attempts" in document:
        given["max_attempts"] = _whole(document["max_attempts"], "max_attempts")
    if "max_age" in document:
        given["max_age"] = _duration(document["max_age"], "max_age")
    for name in ("include_errors", "exclude_errors"):
        if name in document:
            given[name] = _list(document[name], name)
    if "backoff" in document:
        given["backoff"] = _backoff(document["backoff"])
    if "rules" in document:
        given["rules"] = rules_from(_list(document["rules"], "rules"))
    if "routes" in document:
        given["routes"] = tuple(map(_route, _list(document["routes"], "routes")))
    return Policy(**given)


def document_of(policy: Policy) -> dict[str, Any]:
    """The document that describes a policy: only what differs from the default. One with code in it has none."""
    if policy.custom is not None or isinstance(policy.backoff, Custom) or type(policy) is not Policy:
        raise BadSettings("a policy with a function of yours cannot be written to a file; keep it in code")
    document: dict[str, Any] = {}
    if policy.max_attempts != Policy().max_attempts:
        document["max_attempts"] = policy.max_attempts
    if policy.max_age is not None:
        document["max_age"] = written(policy.max_age)
    for name in ("include_errors", "exclude_errors"):
        if errors := getattr(policy, name):
            document[name] = list(errors)
    if policy.backoff != Policy().backoff:
        document["backoff"] = _backoff_document(policy.backoff)
    if policy.rules:
        document["rules"] = [to_builtins(rule) for rule in policy.rules]
    if policy.routes:
        document["routes"] = [{"errors": list(route.errors), "to": route.to} for route in policy.routes]
    return document


def toml_of(policy: Policy) -> str:
    """The policy as TOML."""
    document = document_of(policy)
    lines = [f"{name} = {_toml(value)}" for name, value in document.items() if name not in ("backoff", "rules", "routes")]
    if "backoff" in document:
        lines += ["", "[backoff]", *_lines(document["backoff"])]
    for name in ("rules", "routes"):
        for part in document.get(name, ()):
            lines += ["", f"[[{name}]]", *_lines(part)]
    return "\n".join(lines).strip() + "\n"


def _lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {_toml(value)}" for name, value in table.items()]


def _toml(value: Any) -> str:
    # Texts, numbers, true and false, and lists of them are written alike in JSON and TOML; but TOML wants DEL escaped.
    return json.encode(value).decode().replace("\x7f", "\\u007f")


def _backoff(given: Any) -> Backoff:
    table = {"kind": given} if isinstance(given, str) else given
    if not isinstance(table, Mapping):
        raise BadSettings(f"backoff must be a name or a table with a kind, got {given!r}")
    kind = table.get("kind", "")
    if kind not in _BACKOFFS:
        raise BadSettings(f"there is no backoff '{kind}'; {hint(str(kind), _BACKOFFS)}")
    struct = _BACKOFFS[kind]
    _ensure_known(table, ("kind", *struct.__struct_fields__), f"the backoff '{kind}'")
    values: dict[str, Any] = {
        name: _duration(value, f"backoff.{name}") if name in _DURATIONS else _number(value, f"backoff.{name}")
        for name, value in table.items()
        if name != "kind"
    }
    return struct(**values)


def _backoff_document(backoff: Backoff) -> dict[str, Any]:
    kind = next(name for name, struct in _BACKOFFS.items() if type(backoff) is struct)
    plain: Callable[[Any], Any] = lambda value: written(value) if isinstance(value, timedelta) else value  # noqa: E731
    default = _BACKOFFS[kind]()
    changed = {
        name: getattr(backoff, name) for name in backoff.__struct_fields__ if getattr(backoff, name) != getattr(default, name)
    }
    return {"kind": kind, **{name: plain(value) for name, value in changed.items()}}


def _route(given: Any) -> Route:
    if not isinstance(given, Mapping):
        raise BadSettings(f"a route must be a table with errors and to, got {given!r}")
    _ensure_known(given, ("errors", "to"), "a route")
    for name in ("errors", "to"):
        if not given.get(name):
            raise BadSettings(f"a route needs '{name}'; it has {', '.join(given) or 'nothing'}")
    if not isinstance(given["to"], str):
        raise BadSettings(f"a route's to must be the URL of a store, got {given['to']!r}")
    return Route(errors=tuple(_list(given["errors"], "a route's errors")), to=given["to"])


def _ensure_known(document: Mapping[str, Any], known: Any, what: str) -> None:
    for name in document:
        if name not in known:
            raise BadSettings(f"{what} has no '{name}'; {hint(str(name), known)}")


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise BadSettings(f"{name} must be a list, got {value!r}")
    return list(value)


def _whole(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadSettings(f"{name} must be a whole number, got {value!r}")
    return value


def _number(value: Any, name: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise BadSettings(f"{name} must be a number, got {value!r}")
    return float(value)


def _duration(value: Any, name: str) -> timedelta:
    found = duration(value) if isinstance(value, str) else None
    if found is None:
        raise BadSettings(f"{name} must be a duration such as 30s, 15m, 1h30m or 7d, got {value!r}")
    return found
