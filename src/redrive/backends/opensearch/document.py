"""A letter as a document: the seed's fields for people, redrive's own under `redrive`, and the letter itself."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msgspec import DecodeError, json

from redrive.backends.opensearch.terms import phrase, term
from redrive.model.changes import Holding, claimable_at
from redrive.model.instant import micros
from redrive.model.letter import Letter
from redrive.model.query import last_name
from redrive.model.stored import stored

SMALL = 64 * 1024
"""A letter of more bytes lies in a field of its own, so that a page of many can be read without it."""
SMALL_LETTER, LARGE_LETTER = "letter", "large_letter"

_MOST_INTEGER = 2**31 - 1
_MOST_LONG = 2**63 - 1
_MOST_DEPTH = 8
_MOST_VALUES = 500
_MOST_TEXT = 1000
_MOST_NAME = 100


def document(letter: Letter, holding: Holding | None, version: int, owner: str | None = None) -> dict[str, Any]:
    """The whole document. `holding`: the last lease on it, which is kept; `version` rises with every change of the letter."""
    own = own_changing(letter, holding, version)  # says what no store can hold, before anything else is made of the letter
    body = _json(letter.body)
    high, low = halves(letter.id)
    return {
        "task_id": letter.source_id,
        "task": _task(body),
        "repos": _repos(body),
        "failed_at": letter.dead_lettered_at,
        "retry_policy": letter.retry.policy,
        "max_retries": _integer(letter.retry.max_retries),
        "metadata": _view(letter.metadata),
        **changing(letter),
        "redrive": {
            "id": str(letter.id),
            "id_high": high,
            "id_low": low,
            "namespace": term(letter.namespace),
            "source": term(letter.source),
            "source_id": term(letter.source_id),
            "key": None if letter.key is None else term(letter.key.hex()),
            "kind": None if letter.kind is None else term(letter.kind),
            "policy": term(letter.retry.policy),
            "tags": [term(tag) for tag in letter.tags],
            "priority": letter.priority,
            "dead_lettered_at": micros(letter.dead_lettered_at),
            "expires_at": None if letter.expires_at is None else micros(letter.expires_at),
            "token": holding.token if holding else 0,
            "owner": owner,
            **own,
        },
    }


def halves(id: UUID) -> tuple[int, int]:
    """An id as two numbers in the same order: to sort by texts takes an index ten times as long."""
    return (id.int >> 64) - 2**63, (id.int & (2**64 - 1)) - 2**63


def changing(letter: Letter) -> dict[str, Any]:
    """The fields for people that the end of a claim may change."""
    failure, retry = letter.failure, letter.retry
    return {
        "error": failure.message,
        "last_error": (letter.history[-1].message if letter.history else "") or failure.message,
        "error_category": failure.category.value,
        "status": letter.status.value,
        "retry_count": _integer(retry.retry_count),
        "next_retry_at": retry.next_retry_at,
        "total_attempts": _integer(letter.attempts),
        "updated_at": letter.updated_at,
    }


def own_changing(letter: Letter, holding: Holding | None, version: int) -> dict[str, Any]:
    """The same of redrive's own."""
    failure, retry_at = letter.failure, letter.retry.next_retry_at
    at = claimable_at(letter, holding)
    data = stored(letter)
    is_small = len(data) <= SMALL
    return {
        "error_type": term(failure.type),
        "error_name": term(last_name(failure.type)),
        "fingerprint": term(failure.fingerprint),
        "words": phrase(f"{failure.type} {failure.message}"),
        "attempts": letter.attempts,
        "generation": letter.generation,
        "updated_at": micros(letter.updated_at),
        "next_retry_at": None if retry_at is None else micros(retry_at),
        "claimable_at": None if at is None else micros(at),
        "until": None if holding is None or holding.until is None else micros(holding.until),
        "version": version,
        "size": len(data),
        SMALL_LETTER: data if is_small else None,
        LARGE_LETTER: None if is_small else data,
    }


def without_views(document: dict[str, Any]) -> dict[str, Any]:
    """The document less what came from users' own objects, should the engine refuse one of them after all."""
    return {name: value for name, value in document.items() if name not in ("task", "repos", "metadata")}


def _json(body: bytes) -> Any:
    try:
        return json.decode(body) if body else None
    except (DecodeError, RecursionError):
        return None


def _task(body: Any) -> dict[str, Any] | None:
    return _view(body["task"] if isinstance(body, dict) and "task" in body else body)


def _repos(body: Any) -> list[str] | None:
    repos = body.get("repos") if isinstance(body, dict) else None
    if isinstance(repos, list) and all(isinstance(repo, str) for repo in repos):
        return [repo[:_MOST_TEXT] for repo in repos[:_MOST_VALUES]]
    return None


def _integer(number: int | None) -> int | None:
    return None if number is None else min(number, _MOST_INTEGER)


def _view(value: Any) -> dict[str, Any] | None:
    """As much of a user's object as can be searched: a copy that no engine refuses. What is no object is `value` of one."""
    if value is None:
        return None
    view = _Copying().copied(value if isinstance(value, dict) else {"value": value}, 0)
    assert isinstance(view, dict)
    return view


class _Copying:
    """Copies an object within bounds: on names, texts, depth, and on how many values there are in all."""

    def __init__(self) -> None:
        self._left = _MOST_VALUES

    def copied(self, value: Any, depth: int) -> Any:
        match value:
            case dict():
                return self._object(value, depth)
            case list() | tuple():
                return self._list(value, depth)
            case bool() | float():
                return value
            case int() if -_MOST_LONG <= value <= _MOST_LONG:
                return value
            case str():
                return value[:_MOST_TEXT]
            case _:
                return str(value)[:_MOST_TEXT]

    def _object(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        copy: dict[str, Any] = {}
        for name, inner in value.items():
            if self._is_wanted(inner, depth):
                copy[str(name)[:_MOST_NAME] or "_"] = self.copied(inner, depth + 1)
        return copy

    def _list(self, value: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        return [self.copied(inner, depth + 1) for inner in value if self._is_wanted(inner, depth)]

    def _is_wanted(self, inner: Any, depth: int) -> bool:
        if inner is None or self._left <= 0 or (depth >= _MOST_DEPTH and isinstance(inner, dict | list | tuple)):
            return False
        self._left -= 1
        return True
