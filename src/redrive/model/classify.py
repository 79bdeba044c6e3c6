"""What kind of failure it was, and why that is thought: decided on what was read off an error, never on the error itself.

The order: your rules; the type; HTTP and gRPC status, a library's code, the system's error number; what the error came
from, asked the same way; what a wrapper's type suggests; the words of the message; else permanent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from errno import errorcode
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from redrive.model.category import Category
from redrive.model.errors import BadSettings
from redrive.model.hint import hint
from redrive.model.known_codes import ERRNO, GRPC, by_code, by_http
from redrive.model.known_errors import Firmness, known
from redrive.model.telling_words import by_words, words_of, words_of_rule

CAUSES_READ = 10
"""Errors of a chain that are asked, the first included."""


class Evidence(Struct, frozen=True, kw_only=True):
    """What was read off an error."""

    names: tuple[str, ...] = ()
    """Qualified names of its type and bases, nearest first: `httpx.ConnectTimeout` … `builtins.Exception`."""
    message: str = ""
    http_status: int | None = None
    grpc_status: str | None = None
    """`UNAVAILABLE` …"""
    errno: int | None = None
    """Of an `OSError`."""
    code: str | None = None
    """A library's own: `ThrottlingException`, a SQLSTATE …"""
    cause: Evidence | None = None
    """What it came from."""


class Rule(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Your own word on what an error is. All that is given must hold."""

    category: Category
    error: str | None = None
    """A type by the name it is imported by, or its last name alone; its subclasses match too."""
    message: str | None = None
    """Whole words in this order, in any case; others may stand between them."""
    http_status: int | None = None
    code: str | None = None
    """A library's code, or a gRPC status."""

    def __post_init__(self) -> None:
        try:
            msgspec.structs.force_setattr(self, "category", Category(self.category))
        except ValueError:
            raise BadSettings(f"'{self.category}' is no category; there are {', '.join(Category)}") from None
        conditions = {"error": self.error, "message": self.message, "http_status": self.http_status, "code": self.code}
        given = {name: value for name, value in conditions.items() if value is not None}
        if not given:
            raise BadSettings(f"a rule for '{self.category}' has no condition; give it one of {', '.join(conditions)}")
        for name, value in given.items():
            if isinstance(value, str) and not words_of(value):
                raise BadSettings(f"a rule's {name} is {value!r}, which holds no word; give it one, or leave {name} out")

    def matches(self, evidence: Evidence) -> bool:
        """Does all that this rule asks for hold? Only the error itself is looked at, not what it came from."""
        return (
            (self.http_status is None or self.http_status == evidence.http_status)
            and (self.code is None or self.code in (evidence.code, evidence.grpc_status))
            and (self.error is None or any(_is_named(name, self.error) for name in evidence.names))
            and (self.message is None or _says(evidence.message, self.message))
        )


class Classified(Struct, frozen=True):
    """The category, and the reason in words for people."""

    category: Category
    why: str


def classify(evidence: Evidence, rules: Sequence[Rule] = ()) -> Classified:
    """The category of an error, and why. Never raises; its cost is bounded, however long messages and chains are."""
    link: Evidence | None = evidence
    depth = 0
    while link is not None and depth < CAUSES_READ:
        if rules and (ruled := _by_rules(link, rules)) is not None:
            return _from_cause(ruled, depth)
        typed = _by_type(link.names)
        if typed is not None and typed[0] == "firm":
            return _from_cause(typed[1], depth)
        if (numbered := _by_number(link)) is not None:
            return _from_cause(numbered, depth)
        if typed is not None and typed[0] == "plain":
            if depth == 0:
                return typed[1]
            break
        link = link.cause
        depth += 1
    return _by_hints(evidence, depth + 1)


def rules_from(tables: Iterable[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Rules as a settings file has them, one table each; raises `BadSettings` with one sentence on what to mend."""
    return tuple(_rule(number, table) for number, table in enumerate(tables, 1))


def _rule(number: int, table: Mapping[str, Any]) -> Rule:
    known_keys = Rule.__struct_fields__
    for key in table:
        if key not in known_keys:
            raise BadSettings(f"rule {number} has an unknown key '{key}'; {hint(str(key), known_keys)}")
    if "category" not in table:
        raise BadSettings(f"rule {number} has no category; give it one of {', '.join(Category)}")
    try:
        return msgspec.convert(dict(table), Rule)
    except msgspec.ValidationError as error:
        allowed = f"; there are {', '.join(Category)}" if "category" in str(error) else ""
        raise BadSettings(f"rule {number} cannot be read: {error}{allowed}") from None
    except BadSettings as error:
        raise BadSettings(f"rule {number}: {error}") from None


def _by_rules(evidence: Evidence, rules: Sequence[Rule]) -> Classified | None:
    for number, rule in enumerate(rules, 1):
        if rule.matches(evidence):
            given = (
                f"{name} {value!r}"
                for name in ("error", "message", "http_status", "code")
                if (value := getattr(rule, name)) is not None
            )
            return Classified(rule.category, f"rule {number}: {', '.join(given)}")
    return None


@lru_cache(maxsize=1024)
def _by_type(names: tuple[str, ...]) -> tuple[Firmness, Classified] | None:
    found = known(names)
    if found is None:
        return None
    name, told = found
    own = names[0]
    return told.firmness, Classified(told.category, f"type {own}" if name == own else f"type {own} is a {name}")


def _by_number(evidence: Evidence) -> Classified | None:
    """A code tells more than a status: AWS has 400 for throttling, too."""
    if (code := evidence.code) is not None:
        told = by_code(code, evidence.names[0] if evidence.names else "")
        if told is not None:
            return Classified(told, f"code {code}")
    if evidence.http_status is not None and (told := by_http(evidence.http_status)) is not None:
        return Classified(told, f"HTTP status {evidence.http_status}")
    if evidence.grpc_status is not None and (told := GRPC.get(evidence.grpc_status)) is not None:
        return Classified(told, f"gRPC status {evidence.grpc_status}")
    if evidence.errno is not None and (told := ERRNO.get(evidence.errno)) is not None:
        return Classified(told, f"system error {errorcode[evidence.errno]}")
    return None


def _by_hints(evidence: Evidence, length: int) -> Classified:
    """What is left when nothing in the chain was firm."""
    for depth, link in enumerate(_chain(evidence, length)):
        typed = _by_type(link.names)
        if typed is not None:
            return _from_cause(typed[1], depth)
        worded = by_words(link.message) if link.message else None
        if worded is not None:
            category, words = worded
            kind = "words" if " " in words else "word"
            return _from_cause(Classified(category, f"the {kind} '{words}' in the message"), depth)
    return _NOTHING


_NOTHING = Classified(Category.PERMANENT, "nothing says otherwise")


def _chain(evidence: Evidence, length: int) -> Iterator[Evidence]:
    link: Evidence | None = evidence
    for _ in range(min(length, CAUSES_READ)):
        if link is None:
            return
        yield link
        link = link.cause


def _from_cause(found: Classified, depth: int) -> Classified:
    return Classified(found.category, f"its cause: {found.why}") if depth else found


def _is_named(name: str, wanted: str) -> bool:
    """Is this the type's name? `requests.ConnectionError` is how `requests.exceptions.ConnectionError` is imported."""
    if name == wanted:
        return True
    package, _, last = wanted.rpartition(".")
    return name.endswith(f".{last}") and (not package or name.startswith(f"{package}.") or name.endswith(f".{wanted}"))


def _says(message: str, wanted: str) -> bool:
    said = iter(words_of(message))
    return all(word in said for word in words_of_rule(wanted))
