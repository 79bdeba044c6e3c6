"""The index: its settings, its fields, and the template that makes it again as it was."""

from __future__ import annotations

from typing import Any

from redrive.backends.opensearch.address import Address

SCHEMA = 1
"""Of the index. A higher one in an index means that a newer redrive wrote it."""

_DATE = {"type": "date", "ignore_malformed": True}
_WORD = {"type": "keyword", "ignore_above": 8191}
_CHOICE = {"type": "keyword", "fields": {"keyword": {"type": "keyword"}}}
_TERM = {"type": "keyword", "doc_values": False}
_GROUPED = {"type": "keyword"}
_NUMBER = {"type": "long", "doc_values": False}
_SORTED = {"type": "long"}
_SORTED_ONLY = {"type": "long", "index": False}

_VIEW: dict[str, Any] = {
    "task_id": _WORD,
    "task": {"type": "flat_object"},
    "repos": _WORD,
    "error": {"type": "text"},
    "failed_at": _DATE,
    "retry_count": {"type": "integer"},
    "max_retries": {"type": "integer"},
    "retry_policy": _WORD,
    "next_retry_at": _DATE,
    "status": _CHOICE,
    "metadata": {"type": "flat_object"},
    "error_category": _CHOICE,
    "last_error": {"type": "text"},
    "total_attempts": {"type": "integer"},
    "updated_at": _DATE,
}
"""For people and their own queries."""

_OWN: dict[str, Any] = {
    "id": _TERM,
    "id_high": _SORTED_ONLY,
    "id_low": _SORTED_ONLY,
    "namespace": _GROUPED,
    "source": _GROUPED,
    "source_id": _TERM,
    "key": _TERM,
    "kind": _TERM,
    "policy": _GROUPED,
    "tags": _TERM,
    "error_type": _GROUPED,
    "error_name": _TERM,
    "fingerprint": _GROUPED,
    "words": {"type": "text", "analyzer": "redrive_words", "norms": False},
    "priority": _SORTED,
    "attempts": _NUMBER,
    "generation": _NUMBER,
    "dead_lettered_at": _SORTED,
    "updated_at": _SORTED,
    "next_retry_at": _NUMBER,
    "expires_at": _NUMBER,
    "claimable_at": _SORTED,
    "until": _SORTED,
    "size": _NUMBER,
    "letter": {"type": "binary"},
    "large_letter": {"type": "binary"},
}
"""What redrive itself asks for. Instants are microseconds since 1970. `token`, `owner` and `version` are only kept."""


def meta() -> dict[str, Any]:
    """Tells that an index is ours, and which schema it has."""
    return {"redrive": {"schema": SCHEMA}}


def mappings() -> dict[str, Any]:
    own = {"type": "object", "dynamic": False, "properties": _OWN}
    return {"dynamic": False, "_meta": meta(), "properties": {**_VIEW, "redrive": own}}


def settings(address: Address) -> dict[str, Any]:
    replicas: dict[str, Any] = (
        {"auto_expand_replicas": "0-1"} if address.replicas is None else {"number_of_replicas": address.replicas}
    )
    return {
        "index": {
            "number_of_shards": address.shards,
            "translog.durability": "request",
            # Lies as listings show it, the newest first: a page is then read off the top.
            "sort.field": ["redrive.dead_lettered_at", "redrive.id_high", "redrive.id_low"],
            "sort.order": ["desc", "desc", "desc"],
            **replicas,
        },
        "analysis": {
            "analyzer": {"redrive_words": {"type": "custom", "tokenizer": "redrive_words"}},
            "tokenizer": {"redrive_words": {"type": "whitespace", "max_token_length": 32_000}},
        },
    }


def template(address: Address) -> dict[str, Any]:
    """So that an index of this name is right even when something else brings it into being."""
    return {
        "index_patterns": [address.index],
        "priority": 1_000_000,
        "version": SCHEMA,
        "_meta": meta(),
        "template": {"settings": settings(address), "mappings": mappings()},
    }
