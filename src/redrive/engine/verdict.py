"""Verdict: what a repair makes of one letter. Pure: the letter and its body are at hand, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from hashlib import sha256
from typing import Any

from msgspec import UNSET, Struct

from redrive.engine.alter import Mending
from redrive.model.amendment import Amendment
from redrive.model.errors import BadSettings
from redrive.model.letter import Letter, Original, headers
from redrive.model.redaction import MARK, is_marked
from redrive.model.status import OPEN, Status
from redrive.model.target import own

REPAIR = "redrive.repair"
"""The name in a letter's metadata of what tells which repair left the content as it is."""

_NO_CONTENT = ("act", "reason", "key", "priority", "tags", "metadata", "next_retry_at", "expires_at")


class Material(Struct, frozen=True, kw_only=True):
    """A letter, and the bodies that lie elsewhere."""

    letter: Letter
    body: bytes = b""
    original: bytes = b""
    """The body as it came, where it is to be put back."""

    @property
    def content(self) -> Original:
        letter = self.letter
        return Original(body=self.body, content_type=letter.content_type, headers=letter.headers, target=letter.target)


class No(Struct, frozen=True):
    """A letter is left as it is, and why."""

    reason: str
    is_fault: bool = True


HELD = No("somebody holds it", is_fault=False)


class Same(Enum):
    """Nothing is to be done to a letter."""

    UNCHANGED = auto()
    ALREADY = auto()
    CHANGED = auto()
    """Somebody else was quicker."""


Verdict = Amendment | No | Same
Check = Callable[[Amendment], object]
"""Raises `BadSettings` for an amendment that the rules would redact."""


def why_not(letter: Letter) -> No | None:
    """Why a letter cannot be repaired at all; None: it can."""
    if letter.status is Status.RETRYING:
        return HELD
    return None if letter.status in OPEN else No(f"it is {letter.status}", is_fault=False)


def decided(mending: Mending, one: Material, *, again: bool, check: Check | None) -> Verdict:
    """How the letter is to be amended; or why it is not."""
    before = one.content
    if mending.mark and not again and one.letter.metadata.get(REPAIR) == _mark(mending, before):
        return Same.ALREADY
    try:
        wanted = _wanted(mending, one)
        if wanted is None or (after := after_of(one, wanted)) == before:
            return Same.UNCHANGED
        _ensure_whole(mending, one.letter, before, after)
        if mending.valid is not None:
            mending.valid(after.body)
        amendment = _amendment(mending, one.letter, wanted, before, after)
        if check is not None and not mending.puts_back:
            check(amendment)
    except BadSettings as error:
        return No(str(error).replace(f" of letter {one.letter.id}", ""))
    return amendment


def after_of(one: Material, amendment: Amendment) -> Original:
    """The content of the letter when it is so amended."""
    now = one.content
    body = amendment.body if isinstance(amendment.body, bytes) else now.body
    return Original(
        body=one.original if amendment.body_ref else body,
        content_type=now.content_type if amendment.content_type is UNSET else amendment.content_type,
        headers=now.headers if amendment.headers is UNSET else amendment.headers,
        target=now.target if amendment.target is UNSET else amendment.target,
    )


def _wanted(mending: Mending, one: Material) -> Amendment | None:
    """What the mending gives, as an amendment of content and nothing else."""
    given = mending.change(one.letter, one.body)
    if given is None or mending.puts_back:
        assert not isinstance(given, bytes)
        return given
    if isinstance(given, bytes):
        return Amendment(id=one.letter.id, body=given)
    for name in _NO_CONTENT:
        if getattr(given, name) not in (None, UNSET):
            raise BadSettings(f"a repair changes body, content type, headers and target, and not the {name.replace('_', ' ')}")
    if given.instead is not None:
        raise BadSettings("a repair changes body, content type, headers and target, and not the whole letter")
    if given.id != one.letter.id or given.body_ref not in (None, UNSET):
        raise BadSettings("a repair of one letter cannot amend another, nor name a file for its body")
    if not isinstance(given.body, bytes) and given.body is not UNSET:
        raise BadSettings(f"the new body must be bytes, and is a {type(given.body).__name__}")
    for called, text in (("content type", given.content_type), ("target", given.target)):
        if not isinstance(text, str) and text is not UNSET:
            raise BadSettings(f"the new {called} must be a text, and is a {type(text).__name__}")
    return Amendment(
        id=given.id,
        body=given.body,
        content_type=given.content_type,
        headers=_headers(given.headers),
        target=UNSET if given.target is UNSET else own(given.target),
    )


def _headers(given: Any) -> Any:
    if given is UNSET:
        return UNSET
    try:
        return headers(given)
    except (TypeError, ValueError) as error:
        raise BadSettings("the new headers must be pairs of name and value") from error


def _amendment(mending: Mending, letter: Letter, wanted: Amendment, before: Original, after: Original) -> Amendment:
    """Only what differs, for this generation of the letter alone."""
    has_body = after.body != before.body
    return Amendment(
        id=letter.id,
        generation=letter.generation,
        body=wanted.body if has_body else UNSET,
        body_ref=wanted.body_ref if has_body else UNSET,
        # With every body, since the rules for redaction read a body by its type.
        content_type=after.content_type if has_body or after.content_type != before.content_type else UNSET,
        headers=after.headers if after.headers != before.headers else UNSET,
        target=after.target if after.target != before.target else UNSET,
        metadata=_metadata(mending, letter, after),
    )


def _metadata(mending: Mending, letter: Letter, after: Original) -> Any:
    if mending.mark:
        return {**letter.metadata, REPAIR: _mark(mending, after)}
    if mending.puts_back and REPAIR in letter.metadata:
        return {name: value for name, value in letter.metadata.items() if name != REPAIR}
    return UNSET


def _mark(mending: Mending, content: Original) -> str:
    """The same for the same content by the same repair: so that none is done twice where it was cut short."""
    digest = sha256(content.content_type.encode("utf-8", "surrogatepass"))
    for part in (
        content.body,
        *(part for name, value in content.headers for part in (name.encode("utf-8", "surrogatepass"), value)),
        *([content.target.encode("utf-8", "surrogatepass")] if content.target else []),
    ):
        digest.update(len(part).to_bytes(8, "big") + part)
    return f"{mending.mark}:{digest.hexdigest()[:16]}"


def _ensure_whole(mending: Mending, letter: Letter, before: Original, after: Original) -> None:
    """Nothing may be made that would be sent with a mark where a value was."""
    marked = {f"headers.{name.lower()}" for name, value in after.headers if is_marked(value)}
    marked |= {"target"} if MARK.search(after.target) else set()
    marked |= {"body"} if after.body != before.body and is_marked(after.body) else set()
    if mending.puts_back and marked - set(letter.redacted):
        parts = " and ".join(sorted(marked - set(letter.redacted)))
        raise BadSettings(f"its {parts} was redacted when it came, and mended since; put back, it would be sent with the marks")
    if not mending.puts_back and "body" in marked & set(letter.redacted):
        raise BadSettings("its new body still has a mark where something was redacted; give the value that is to be sent")
