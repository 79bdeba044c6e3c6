"""Policies for common kinds of work, to start from: named, printed by `redrive policy templates`, and yours to change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType

from msgspec import Struct

from redrive.model.backoff import Exponential, Linear
from redrive.model.category import Category
from redrive.model.classify import Rule
from redrive.model.errors import BadSettings
from redrive.model.hint import hint
from redrive.model.policy import Policy

_HOPELESS = ("category:validation", "category:permission", "category:permanent")


class Template(Struct, frozen=True, kw_only=True):
    """A policy, and what it is for."""

    about: str
    policy: Policy


TEMPLATES: Mapping[str, Template] = MappingProxyType(
    {
        "http-api": Template(
            about="Calls to somebody's HTTP API: busy and slow servers are tried again for minutes, refusals are not.",
            policy=Policy(
                max_attempts=6,
                max_age=timedelta(hours=1),
                backoff=Exponential(first=timedelta(seconds=1), cap=timedelta(minutes=2), jitter=0.3),
                include_errors=_HOPELESS,
                rules=(
                    Rule(category=Category.TRANSIENT, http_status=425),
                    Rule(category=Category.TRANSIENT, http_status=409, message="try again"),
                ),
            ),
        ),
        "database": Template(
            about="Writes to a database: deadlocks and lost connections are tried again quickly, what breaks a constraint is not.",
            policy=Policy(
                max_attempts=5,
                backoff=Exponential(first=timedelta(milliseconds=50), cap=timedelta(seconds=5), jitter=0.5),
                include_errors=_HOPELESS,
                rules=(
                    Rule(category=Category.TRANSIENT, message="deadlock"),
                    Rule(category=Category.TRANSIENT, message="could not serialize"),
                    Rule(category=Category.TRANSIENT, message="database is locked"),
                ),
            ),
        ),
        "llm": Template(
            about="Calls to a language model: rate limits and overload are waited out, prompts that are too long are not tried again.",
            policy=Policy(
                max_attempts=8,
                max_age=timedelta(minutes=30),
                backoff=Exponential(first=timedelta(seconds=2), cap=timedelta(minutes=1), jitter=0.5),
                include_errors=_HOPELESS,
                rules=(
                    Rule(category=Category.VALIDATION, message="context length"),
                    Rule(category=Category.VALIDATION, message="maximum context"),
                    Rule(category=Category.PERMISSION, message="insufficient quota"),
                    Rule(category=Category.TRANSIENT, message="overloaded"),
                ),
            ),
        ),
        "file-drop": Template(
            about="Files that others put down: one that is not whole yet or locked is looked at again, one that is malformed is not.",
            policy=Policy(
                max_attempts=10,
                max_age=timedelta(hours=6),
                backoff=Linear(step=timedelta(seconds=30), cap=timedelta(minutes=10)),
                include_errors=("category:validation", "category:permission"),
                rules=(
                    Rule(category=Category.TRANSIENT, error="builtins.FileNotFoundError"),
                    Rule(category=Category.TRANSIENT, error="builtins.EOFError"),
                    Rule(category=Category.TRANSIENT, error="builtins.BlockingIOError"),
                ),
            ),
        ),
    }
)


def template(name: str) -> Template:
    """The template of this name."""
    if name not in TEMPLATES:
        raise BadSettings(f"there is no template '{name}'; {hint(name, TEMPLATES)}")
    return TEMPLATES[name]
