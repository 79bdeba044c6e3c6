"""Redact: what must not be kept is replaced by a mark before anything is written, and before anything is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from redrive.model.amendment import Amendment
from redrive.model.errors import BadSettings, NotHeld
from redrive.model.fingerprint import BY_MESSAGE, Trace, fingerprint, fingerprint_of
from redrive.model.letter import Attempt, Cause, Failure, Headers, Letter, Origin, letter_id
from redrive.model.operation import Delivery, Refused, Unknown
from redrive.model.redaction import SECRET_HEADERS, Redaction, is_marked
from redrive.model.redaction_rules import Rules, rules_of
from redrive.model.settlement import Failed, Outcome, Redriven

T = TypeVar("T")

BODY, KEY, TARGET = "body", "key", "target"
_HEADER = "headers."
_LEFT_OUT = ("kind", "reference")
_ORIGIN = ("node", "reply_to", "request_id")
COMMAND = "redrive-command"
"""The header that holds what `redrive run` ran: it is content, as a body is."""


class Redactor:
    """Rules, applied to everything that is written about a message."""

    def __init__(self, redaction: Redaction) -> None:
        self._rules: Rules = rules_of(redaction)
        self._sees_texts = self._rules.has_texts
        self._sees_bodies = self._rules.has_texts or self._rules.has_places

    def letters(self, letters: Sequence[Letter]) -> list[Letter]:
        """Letters as they may be kept. One that cannot be redacted is not held either: its source keeps the message."""
        try:
            return [self.letter(letter) for letter in letters]
        except Exception as error:
            # Without its cause, whose text may be what must not be seen.
            raise NotHeld(
                f"not held: a letter could not be redacted ({type(error).__name__}); do not acknowledge the source"
            ) from None

    def letter(self, letter: Letter) -> Letter:
        """The letter as it may be kept. Its `redacted` names the parts that were changed; doing it twice changes no more.

        An id that is redacted is another id from then on, and the same one each time: see `Rules.identity`.
        """
        kept = self.shown(letter)
        changed = tuple(dict.fromkeys((*letter.redacted, *_changed_parts(letter, kept))))
        if changed != letter.redacted:
            kept = replace(kept, redacted=changed)
            if unsendable(kept) is not None:
                # Nothing but a person can make it whole, so it waits for one.
                kept = replace(kept, retry=replace(kept.retry, next_retry_at=None))
        if kept.source_id != letter.source_id:
            kept = replace(kept, id=letter_id(kept.namespace, kept.source, kept.source_id))
        return kept

    def shown(self, letter: Letter) -> Letter:
        """The letter as people may see it: under its own id, and with nothing said of what is hidden only here."""
        changes: dict[str, Any] = {"headers": self._headers(letter.headers)}
        if self._sees_bodies:
            changes["body"] = self._rules.body(letter.body, letter.content_type)
            changes["metadata"] = _same(letter.metadata, self._rules.value(letter.metadata))
        if self._sees_texts:
            changes |= self._texts(letter)
        if (original := letter.original) is not None:
            body = self._rules.body(original.body, original.content_type)
            target = self._rules.text(original.target) if self._sees_texts else original.target
            changes["original"] = replace(original, body=body, headers=self._headers(original.headers), target=target)
        return replace(letter, **changes)

    def failure(self, failure: Failure) -> Failure:
        """What went wrong, without what must not be told."""
        if not self._sees_texts:
            return failure
        text, prose = self._rules.text, self._rules.prose
        message = prose(failure.message)
        return replace(
            failure,
            type=text(failure.type),
            message=message,
            traceback=prose(failure.traceback),
            causes=tuple(Cause(type=text(cause.type), message=prose(cause.message)) for cause in failure.causes),
            **self._group(failure, message),
        )

    def _group(self, failure: Failure, message: str) -> dict[str, str]:
        """The group and why it is this one: made anew where that was read off a message which tells less now."""
        if message == failure.message or not failure.fingerprint_reason.startswith(BY_MESSAGE):
            return {"fingerprint_reason": self._rules.text(failure.fingerprint_reason)}
        anew = fingerprint_of(Trace(type=failure.type, message=message))
        is_of_message = failure.fingerprint == fingerprint(failure.type, failure.message)
        digest = anew.digest if is_of_message else failure.fingerprint
        return {"fingerprint": digest, "fingerprint_reason": self._rules.text(anew.reason)}

    def text(self, text: str) -> str:
        """A sentence of ours that may quote a message."""
        return self._rules.prose(text)

    def delivery(self, delivery: Delivery) -> Delivery:
        """The answer of a target, before the ledger and the letter hear of it."""
        match delivery:
            case Refused(failure=failure):
                return replace(delivery, failure=self.failure(failure))
            case Unknown(reason=reason):
                return Unknown(reason=self.text(reason))
            case _:
                return delivery

    def outcome(self, outcome: Outcome) -> Outcome:
        """How a claim ends, before it is written."""
        match outcome:
            case Failed(attempt=attempt, failure=failure):
                return replace(outcome, attempt=self._attempt(attempt), failure=failure and self.failure(failure))
            case Redriven(unknown=Attempt() as attempt):
                return replace(outcome, unknown=self._attempt(attempt))
            case _:
                return outcome

    def amendment(self, amendment: Amendment, *, as_given: bool) -> Amendment:
        """A change that a person makes. Their notes are redacted; content is taken as it is, or refused, but never altered."""
        notes: dict[str, Any] = {
            "reason": _given(amendment.reason, lambda reason: self._rules.text(reason) if reason else reason),
            "tags": _given(amendment.tags, self._tags),
            "metadata": _given(amendment.metadata, lambda metadata: _same(metadata, self._rules.value(metadata))),
        }
        if not as_given:
            content_type = amendment.content_type if isinstance(amendment.content_type, str) else ""
            content = {
                "body": _given(amendment.body, lambda body: self._rules.body(body, content_type)),
                "headers": _given(amendment.headers, self._headers),
                "key": _given(amendment.key, self._key),
                "target": _given(amendment.target, self._rules.text),
            }
            taken = [name for name, value in content.items() if value != getattr(amendment, name)]
            if taken:
                raise BadSettings(
                    f"the new {' and '.join(taken)} of letter {amendment.id} would be redacted, and then could not be sent;"
                    " leave the secret out, or say as_given=True to have it written all the same"
                )
        return replace(amendment, **notes)

    def _texts(self, letter: Letter) -> dict[str, Any]:
        text, identity = self._rules.text, self._rules.identity
        origin = letter.origin
        return {
            "source_id": identity(letter.source_id),
            "key": self._key(letter.key),
            "target": text(letter.target),
            "kind": letter.kind and text(letter.kind),
            "reference": letter.reference and text(letter.reference),
            "origin": origin
            if origin == Origin()
            else replace(
                origin, **{name: value and text(value) for name in _ORIGIN if (value := getattr(origin, name)) is not None}
            ),
            "failure": self.failure(letter.failure),
            "history": tuple(map(self._attempt, letter.history)),
            "depends_on": tuple(map(identity, letter.depends_on)),
            "tags": self._tags(letter.tags),
        }

    def _headers(self, headers: Headers) -> Headers:
        return tuple((name, self._rules.header(name, value)) for name, value in headers)

    def _key(self, key: bytes | None) -> bytes | None:
        return key and self._rules.body(key, "")

    def _tags(self, tags: tuple[str, ...]) -> tuple[str, ...]:
        changed = tuple(map(self._rules.text, tags))
        return tags if changed == tags else tuple(dict.fromkeys(changed))

    def _attempt(self, attempt: Attempt) -> Attempt:
        if not self._sees_texts:
            return attempt
        return replace(attempt, error=self._rules.text(attempt.error), message=self._rules.prose(attempt.message))


def for_display(redaction: Redaction | None) -> Redactor:
    """What hides values from people who look: the rules, if there are any, and headers that are always secret."""
    return Redactor((redaction or Redaction()).with_headers(SECRET_HEADERS))


def unsendable(letter: Letter) -> str | None:
    """Why a letter cannot be sent before it is repaired; None: it can."""
    for part, called in ((BODY, BODY), (KEY, KEY), (f"{_HEADER}{COMMAND}", "command")):
        if part in letter.redacted:
            amend = part.partition(".")[0]
            return f"its {called} was redacted at capture; repair it first: dlq.amend(Amendment(id=…, {amend}=…)) with what is to be sent"
    return None


def without_marks(letter: Letter) -> Letter:
    """The letter without the parts that were redacted: a target gets no header at all rather than one that says nothing."""
    if not letter.redacted:
        return letter
    gone = {part.removeprefix(_HEADER) for part in letter.redacted if part.startswith(_HEADER)}
    return replace(
        letter,
        headers=tuple((name, value) for name, value in letter.headers if name.lower() not in gone or not is_marked(value)),
        origin=replace(letter.origin, **{name: None for name in _ORIGIN if f"origin.{name}" in letter.redacted}),
        **{name: None for name in _LEFT_OUT if name in letter.redacted},
    )


def _changed_parts(before: Letter, after: Letter) -> list[str]:
    """The parts of the content that are other than they were."""
    parts = [name for name in (BODY, KEY, TARGET, *_LEFT_OUT) if getattr(before, name) != getattr(after, name)]
    parts += [
        f"{_HEADER}{name.lower()}"
        for (name, value), (_, changed) in zip(before.headers, after.headers, strict=True)
        if value != changed
    ]
    return parts + [f"origin.{name}" for name in _ORIGIN if getattr(before.origin, name) != getattr(after.origin, name)]


def _same(before: T, after: T) -> T:
    """The value itself where nothing in it was changed: another type may be equal, and is stored in another way."""
    return before if before == after else after


def _given(value: Any, change: Callable[[Any], Any]) -> Any:
    return value if value is UNSET else change(value)
