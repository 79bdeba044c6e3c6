"""The workflow DLQ's settings, by the names its guide has: from a file, from the environment, or as given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self, get_type_hints

import msgspec
from msgspec import Meta, Struct

from redrive.model.errors import BadSettings
from redrive.model.hint import hint
from redrive.settings import document, masked
from redrive.workflows.names import DLQIntegrationStrategy, RetryPolicy

PREFIX = "REDRIVE_"
_POLICIES = [policy.value for policy in RetryPolicy]
_STRATEGIES = [strategy.value for strategy in DLQIntegrationStrategy]


class BadWorkflowSettings(BadSettings, ValueError):
    """A setting of the workflow DLQ is wrong: mend the one that is named. A ValueError, as its guide's validators raise."""


class WorkflowSettings(Struct, frozen=True, kw_only=True):
    """What the queue can be told."""

    dlq_enabled: Annotated[bool, Meta(description="Keep workflows that failed, to retry them.")] = True
    dlq_max_size: Annotated[int, Meta(ge=100, le=100_000, description="Tasks in the queue at most (100-100000).")] = 10_000
    dlq_default_retry_policy: Annotated[
        str, Meta(description="How tasks are retried unless told otherwise: never, linear, exponential or immediate.")
    ] = "exponential"
    dlq_default_max_retries: Annotated[int, Meta(ge=0, le=10, description="How often, unless told otherwise (0-10).")] = 3
    dlq_retry_processor_enabled: Annotated[bool, Meta(description="Retry tasks when they come due.")] = True
    dlq_retry_interval_seconds: Annotated[
        int, Meta(ge=10, le=3600, description="Seconds between two looks for due tasks (10-3600).")
    ] = 60
    dlq_strategy: Annotated[str, Meta(description="Which failures are enqueued: automatic, selective, manual or disabled.")] = (
        "automatic"
    )
    dlq_store: Annotated[str, Meta(description="A store's URL; empty: where redrive's own settings say.")] = ""
    dlq_concurrency: Annotated[int, Meta(ge=1, le=1000, description="Tasks that are retried at a time (1-1000).")] = 10
    dlq_fail_on_opensearch_unavailable: Annotated[
        bool, Meta(description="Refuse tasks while the store is down, instead of keeping them in the local journal.")
    ] = False

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            _converted(name, getattr(self, name), name, is_text=False)
        _ensure_one_of("dlq_default_retry_policy", self.dlq_default_retry_policy, _POLICIES)
        _ensure_one_of("dlq_strategy", self.dlq_strategy, _STRATEGIES)
        for name, meta in _metas().items():
            _ensure_within(name, getattr(self, name), meta)

    @classmethod
    def load(
        cls,
        file: str | os.PathLike[str] | None = None,
        *,
        prefix: str = PREFIX,
        environ: Mapping[str, str] = os.environ,
        **given: Any,
    ) -> Self:
        """As given, else from the environment, else from a YAML or TOML file, which may hold an application's other settings too.

        In the environment a setting is the prefix and its name: with the prefix `MAHAVISHNU_` it is `MAHAVISHNU_DLQ_ENABLED`.
        """
        values = {
            **_from_file(file),
            **_from_environment(environ, prefix),
            **{name: (value, name) for name, value in given.items()},
        }
        _ensure_known("setting", values, list(cls.__struct_fields__))
        return cls(
            **{name: _converted(name, value, origin, is_text=isinstance(value, str)) for name, (value, origin) in values.items()}
        )


def _from_file(file: str | os.PathLike[str] | None) -> dict[str, tuple[object, str]]:
    if file is None:
        return {}
    path = Path(file)
    if not path.is_file():
        raise BadWorkflowSettings(f"there is no settings file {file}")
    found = document(path, str(file))
    if found is None or not isinstance(found, dict):
        raise BadWorkflowSettings(f"{file} must hold settings by name, such as dlq_enabled: true")
    return {str(name): (value, f"{name} ({file})") for name, value in found.items() if _is_meant(str(name))}


def _is_meant(name: str) -> bool:
    """Is a name in a file, which an application's other settings may share, one of ours, or meant to be?"""
    from difflib import get_close_matches  # few read files

    return name.lower().startswith("dlq") or bool(get_close_matches(name, WorkflowSettings.__struct_fields__, n=1, cutoff=0.85))


def _from_environment(environ: Mapping[str, str], prefix: str) -> dict[str, tuple[object, str]]:
    names = {f"{prefix}{name}".upper(): name for name in WorkflowSettings.__struct_fields__}
    ours = {name: value for name, value in environ.items() if name.upper().startswith(f"{prefix}DLQ_".upper())}
    _ensure_known("environment variable", [name.upper() for name in ours], list(names))
    return {names[name.upper()]: (value, f"environment {name}") for name, value in ours.items()}


def _ensure_known(what: str, names: Any, known: list[str]) -> None:
    for name in names:
        if name not in known:
            raise BadWorkflowSettings(f"unknown {what} {name}; {hint(name, known)}")


def _converted(name: str, value: object, origin: str, *, is_text: bool) -> Any:
    """The value as the setting's type; numbers may be read from what came as text."""
    kind = get_type_hints(WorkflowSettings)[name]
    try:
        return msgspec.convert(str(value) if isinstance(value, str) else value, kind, strict=not is_text)
    except msgspec.ValidationError as error:
        wanted = {bool: "true or false", int: "a whole number", str: "a text"}[kind]
        raise BadWorkflowSettings(f"{origin} must be {wanted}, got {masked(str(value))!r}") from error


def _ensure_one_of(name: str, value: str, known: list[str]) -> None:
    if value not in known:
        raise BadWorkflowSettings(f"{name} must be one of {known}, got '{value}'")


def _ensure_within(name: str, value: object, meta: Meta) -> None:
    if isinstance(value, int) and meta.ge is not None and meta.le is not None and not meta.ge <= value <= meta.le:
        raise BadWorkflowSettings(f"{name} must be from {meta.ge} to {meta.le}, got {value}")


def _metas() -> dict[str, Meta]:
    hints = get_type_hints(WorkflowSettings, include_extras=True)
    return {name: kind.__metadata__[0] for name, kind in hints.items()}
