"""Alerts: what people are told when letters need them, one for each group of like failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from redrive.model.category import Category
from redrive.model.letter import Failure, Letter, Origin, letter_id
from redrive.model.query import last_name

LETTERS_NAMED = 10
"""Letters that an alert names; its `count` is of all."""
MESSAGE_LIMIT = 1000
SUMMARY_LIMIT = 200


class AlertKind(StrEnum):
    EXHAUSTED = "exhausted"
    """Letters whose automatic retries are used up: from now on they wait for a person."""
    TEST = "test"
    """Sent by `redrive alerts test`; nothing is wrong."""


class Severity(StrEnum):
    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class AlertFailure(Struct, frozen=True, kw_only=True):
    """What went wrong, as far as an alert tells."""

    type: str
    """Fully qualified: `builtins.TimeoutError`."""
    message: str
    category: Category
    fingerprint: str
    """The group: `redrive ls --group …` lists its letters."""


class Alert(Struct, frozen=True, kw_only=True):
    """One thing people should know. It holds no body, no header and no message id."""

    id: UUID
    """The same whenever this alert is delivered again."""
    kind: AlertKind
    key: str
    """The same for all alerts of one group in one source: they are one incident."""
    namespace: str
    source: str
    at: datetime
    since: datetime | None
    """When people were last told of this key; None: they were not."""
    severity: Severity
    summary: str
    """One short sentence."""
    failure: AlertFailure
    count: int
    """Letters since people were last told."""
    letters: tuple[UUID, ...]
    """The first of them."""


class Pile(Struct, frozen=True, kw_only=True):
    """Letters of one key, as far as an alert needs them: one to quote, how many, and the ids of the first."""

    letter: Letter
    count: int
    letters: tuple[UUID, ...]

    def joined(self, later: Pile) -> Pile:
        """This pile with those that came later; the latest is quoted."""
        ids = dict.fromkeys((*self.letters, *later.letters))
        return Pile(letter=later.letter, count=self.count + later.count, letters=tuple(ids)[:LETTERS_NAMED])


def key_of(letter: Letter) -> str:
    """What makes two letters one incident: namespace, source and the failure's fingerprint, digested."""
    return letter_id(letter.namespace, letter.source, letter.failure.fingerprint).hex


def piles_of(letters: Iterable[Letter]) -> dict[str, Pile]:
    """Letters by their key. Of each only what an alert can tell is kept, so that none holds a large body in memory."""
    found: dict[str, Pile] = {}
    for letter in letters:
        key = key_of(letter)
        known = found.get(key)
        if known is None:
            found[key] = Pile(letter=_slim(letter), count=1, letters=(letter.id,))
        else:
            ids = known.letters if len(known.letters) >= LETTERS_NAMED else (*known.letters, letter.id)
            found[key] = replace(known, count=known.count + 1, letters=ids)
    return found


def alerts_of(letters: Iterable[Letter], *, at: datetime, since: Mapping[str, datetime] | None = None) -> list[Alert]:
    """The alerts that exhausted letters call for, one a key; `since` says by key when people were last told."""
    return [alert_of(pile, at=at, since=(since or {}).get(key)) for key, pile in piles_of(letters).items()]


def alert_of(
    pile: Pile,
    *,
    at: datetime,
    since: datetime | None = None,
    kind: AlertKind = AlertKind.EXHAUSTED,
    severity: Severity = Severity.ERROR,
) -> Alert:
    """The alert about a pile. The letter that it quotes is taken as it is: redact it before."""
    letter = pile.letter
    failure = AlertFailure(
        type=_writable(letter.failure.type),
        message=_cut(_writable(letter.failure.message), MESSAGE_LIMIT),
        category=letter.failure.category,
        fingerprint=_writable(letter.failure.fingerprint),
    )
    key = key_of(letter)
    return Alert(
        id=letter_id(key, at.isoformat(), " ".join(map(str, (pile.count, *pile.letters)))),
        kind=kind,
        key=key,
        namespace=_writable(letter.namespace),
        source=_writable(letter.source),
        at=at,
        since=since,
        severity=severity,
        summary=_summary(pile, failure, is_more=since is not None),
        failure=failure,
        count=pile.count,
        letters=pile.letters,
    )


def _summary(pile: Pile, failure: AlertFailure, *, is_more: bool) -> str:
    more = "more " if is_more else ""
    letters = "letter" if pile.count == 1 else "letters"
    are = "is" if pile.count == 1 else "are"
    error = last_name(failure.type) + (f": {failure.message}" if failure.message.strip() else "")
    told = f"{pile.count} {more}{letters} of '{pile.letter.source}' {are} exhausted: {error}"
    return _cut(_one_line(_writable(told)), SUMMARY_LIMIT)


def _slim(letter: Letter) -> Letter:
    """The letter without what no alert tells."""
    failure = letter.failure
    told = Failure(
        type=failure.type,
        message=failure.message,
        category=failure.category,
        fingerprint=failure.fingerprint,
        fingerprint_version=failure.fingerprint_version,
        fingerprint_reason=failure.fingerprint_reason,
    )
    return replace(
        letter,
        failure=told,
        body=b"",
        body_ref=None,
        headers=(),
        key=None,
        target="",
        kind=None,
        reference=None,
        origin=Origin(),
        history=(),
        forgotten=b"",
        depends_on=(),
        tags=(),
        metadata={},
        original=None,
    )


def _writable(text: str) -> str:
    """The text with lone surrogates, which JSON cannot carry, escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _one_line(text: str) -> str:
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in " ".join(text.split()))


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
