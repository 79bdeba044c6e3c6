"""A failed task: this room's view of a letter, and the letter that a task becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import DecodeError, Struct, to_builtins
from msgspec.structs import asdict, replace

from redrive.engine.capture import Labels, Try, captured
from redrive.engine.describe import clean, describe, told
from redrive.engine.extract import decoded, encoded
from redrive.model.errors import BadSettings
from redrive.model.letter import Failure, Letter, RetryPlan
from redrive.model.message import Message
from redrive.model.query import last_name
from redrive.workflows.names import STATUSES, DeadLetterStatus, ErrorCategory

KIND = "workflow"
FAILED = "WorkflowError"
"""The type of a failure of which only words are known."""


class FailedTask(Struct, frozen=True, kw_only=True):
    """A task that failed, as it was when it was looked at."""

    task_id: str
    task: dict[str, Any]
    repos: list[str]
    error: str
    """What it failed with first, since it was enqueued."""
    failed_at: datetime
    retry_count: int = 0
    max_retries: int = 3
    retry_policy: str = "exponential"
    next_retry_at: datetime | None = None
    status: DeadLetterStatus = DeadLetterStatus.PENDING
    metadata: dict[str, Any] = {}
    error_category: str | None = None
    last_error: str | None = None
    total_attempts: int = 1
    updated_at: datetime | None = None
    priority: int = 0
    depends_on: list[str] = []
    waits_for: str = ""
    """What stood in the way of its last retry: a task it depends on, a circuit breaker."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values that JSON takes; bytes in them become base64."""
        values = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in asdict(self).items()}
        plain: dict[str, Any] = to_builtins(values, str_keys=True)
        return plain


class Failing(Struct, frozen=True, kw_only=True):
    """What is enqueued."""

    task_id: str
    task: dict[str, Any]
    repos: Sequence[str]
    error: str | BaseException
    policy: str
    max_retries: int
    category: ErrorCategory | None = None
    metadata: Mapping[str, Any] = {}
    priority: int = 0
    depends_on: Sequence[str] = ()


def letter_of(failing: Failing, *, namespace: str, source: str) -> Letter:
    """The letter that a failed task becomes: task and repositories are what its callback is called with."""
    _ensure_names(failing)
    now = datetime.now(UTC)
    body, content_type = encoded({"task": dict(failing.task), "repos": list(failing.repos)})
    message = Message(body=body, content_type=content_type, id=failing.task_id, kind=KIND)
    plan = RetryPlan(policy=failing.policy, max_retries=failing.max_retries)
    labels = Labels(namespace=namespace, source=source, retry=plan, metadata=_plain(failing.metadata))
    letter = captured(message, [Try(at=now, failure=_failure(failing))], labels, now=now)
    return replace(letter, priority=failing.priority, depends_on=tuple(dict.fromkeys(map(clean, failing.depends_on))))


def task_of(letter: Letter, body: bytes) -> FailedTask:
    """The letter in this room's words."""
    task, repos = _called_with(body, letter.content_type)
    last = in_words(letter.failure.type, letter.failure.message)
    return FailedTask(
        task_id=letter.source_id,
        task=task,
        repos=repos,
        error=next((in_words(one.error, one.message) for one in letter.history if one.generation == letter.generation), last),
        failed_at=letter.dead_lettered_at,
        retry_count=letter.retry.retry_count,
        max_retries=letter.retry.max_retries or 0,
        retry_policy=letter.retry.policy,
        next_retry_at=letter.retry.next_retry_at,
        status=STATUSES[letter.status],
        metadata=letter.metadata,
        error_category=letter.failure.category.value,
        last_error=last,
        total_attempts=letter.attempts,
        updated_at=letter.updated_at,
        priority=letter.priority,
        depends_on=list(letter.depends_on),
        waits_for=letter.retry.waits_for,
    )


def _ensure_names(failing: Failing) -> None:
    task_id: object = failing.task_id
    if not isinstance(task_id, str) or not task_id:
        raise BadSettings(f"a task needs an id of its own that is a text, got {task_id!r}")
    task: object = failing.task
    if not isinstance(task, Mapping):
        raise BadSettings(f"task '{task_id}' must be a dict, got {type(task).__name__}")
    if isinstance(failing.repos, str):
        raise BadSettings(f"the repos of task '{task_id}' must be a list of texts, got the text {failing.repos!r}")
    if isinstance(failing.depends_on, str):
        raise BadSettings(f"depends_on of task '{task_id}' must be a list of task ids, got the text {failing.depends_on!r}")
    max_retries: object = failing.max_retries
    if not isinstance(max_retries, int) or max_retries < 0:
        raise BadSettings(f"max_retries of task '{task_id}' must be a whole number from 0, got {max_retries!r}")


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as every store gives them back; what is no plain value is told by its repr."""
    try:
        plain: dict[str, Any] = _writable(to_builtins(dict(metadata), str_keys=True, enc_hook=repr))
    except Exception:
        # A repr that raises, or a circle: the task must be kept all the same.
        return {clean(str(name)): clean(repr(type(value))) for name, value in metadata.items()}
    return plain


def _writable(value: Any) -> Any:
    """A plain value without lone surrogates and without numbers that no store can write."""
    match value:
        case str():
            return clean(value)
        case dict():
            return {clean(str(name)): _writable(one) for name, one in value.items()}
        case list():
            return [_writable(one) for one in value]
        case int() if abs(value) >= 2**63:
            return str(value)
        case _:
            return value


def _failure(failing: Failing) -> Failure:
    error = failing.error
    failure = describe(error) if isinstance(error, BaseException) else told(FAILED, clean(str(error)))
    return failure if failing.category is None else replace(failure, category=failing.category)


def in_words(type: str, message: str) -> str:
    """What an error says; of one that says nothing, what it is."""
    return message if message or type == FAILED else last_name(type)


def _called_with(body: bytes, content_type: str) -> tuple[dict[str, Any], list[str]]:
    """Task and repositories; of a body that cannot be read as such, its text as the task."""
    try:
        args, _ = decoded(Message(body=body, content_type=content_type))
    except (DecodeError, ValueError, KeyError, TypeError):
        args = ()
    match args:
        case ({"task": dict() as task, "repos": list() as repos},):
            return task, repos
        case (dict() as task,):
            return task, []
        case _:
            return {"body": body.decode("utf-8", "backslashreplace")}, []
