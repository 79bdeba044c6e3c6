"""Where a letter stands, and the one table of what may move it from there."""

from __future__ import annotations

from enum import StrEnum

from redrive.model.errors import IllegalTransition


class Status(StrEnum):
    PENDING = "pending"
    """Held; waits for its next retry, or for a person."""
    RETRYING = "retrying"
    """Somebody holds a lease on it right now. Never stored: it is what an open letter is while it is leased."""
    REDRIVEN = "redriven"
    """Sent back; its outcome is still open."""
    EXHAUSTED = "exhausted"
    """Its automatic retries are used up; waits for a person."""
    QUARANTINED = "quarantined"
    """Kept away from automatic retries until a person looks at it."""
    COMPLETED = "completed"
    """Worked in the end."""
    ARCHIVED = "archived"
    """Put away by a person; can be restored."""
    DISCARDED = "discarded"
    """Given up for good by a person, with a reason; the record stays."""


class Act(StrEnum):
    """What can happen to a letter that exists."""

    CLAIM = "claim"
    RELEASE = "release"
    COMPLETE = "complete"
    SEND = "send"
    FAIL = "fail"
    CONFIRM = "confirm"
    REOPEN = "reopen"
    REQUEUE = "requeue"
    QUARANTINE = "quarantine"
    ARCHIVE = "archive"
    RESTORE = "restore"
    DISCARD = "discard"


OPEN = frozenset({Status.PENDING, Status.EXHAUSTED, Status.QUARANTINED})
"""Stored statuses in which the message is ours: it may be claimed, repaired and sent."""

_LEASED = frozenset({Status.RETRYING})
_CLOSED = frozenset({Status.REDRIVEN, Status.COMPLETED, Status.ARCHIVED, Status.DISCARDED})

TRANSITIONS: dict[Act, tuple[frozenset[Status], frozenset[Status]]] = {
    Act.CLAIM: (OPEN, _LEASED),
    Act.RELEASE: (_LEASED, OPEN),
    Act.COMPLETE: (_LEASED, frozenset({Status.COMPLETED})),
    Act.SEND: (_LEASED, frozenset({Status.REDRIVEN})),
    Act.FAIL: (_LEASED, OPEN),
    Act.CONFIRM: (frozenset({Status.REDRIVEN}), frozenset({Status.COMPLETED})),
    Act.REOPEN: (_CLOSED | OPEN | _LEASED, OPEN),
    Act.REQUEUE: (OPEN | {Status.REDRIVEN}, frozenset({Status.PENDING})),
    Act.QUARANTINE: (OPEN | {Status.REDRIVEN}, frozenset({Status.QUARANTINED})),
    Act.ARCHIVE: (OPEN | {Status.REDRIVEN, Status.COMPLETED}, frozenset({Status.ARCHIVED})),
    Act.RESTORE: (frozenset({Status.ARCHIVED, Status.DISCARDED}), frozenset({Status.PENDING})),
    Act.DISCARD: (OPEN | {Status.REDRIVEN, Status.ARCHIVED}, frozenset({Status.DISCARDED})),
}


def ensure_legal(act: Act, status: Status) -> None:
    """Raise `IllegalTransition` unless the act is allowed from this status."""
    allowed, _ = TRANSITIONS[act]
    if status not in allowed:
        from_where = ", ".join(sorted(allowed))
        raise IllegalTransition(f"cannot {act} a letter that is {status}; it must be {from_where}")


def diagram() -> str:
    """The table as a Mermaid state diagram; `open` stands for the three statuses in which the message is ours."""
    inside = "".join(f"        {status}\n" for status in sorted(OPEN))
    lines = [f"stateDiagram-v2\n    state open {{\n{inside}    }}\n    [*] --> pending: hold\n"]
    for act, (sources, targets) in TRANSITIONS.items():
        for source in _together(sources):
            lines += [f"    {source} --> {target}: {act}\n" for target in _together(targets)]
    return "".join(lines)


def _together(statuses: frozenset[Status]) -> list[str]:
    """The names of these statuses, with `open` for the three where all of them are meant."""
    if not statuses >= OPEN:
        return sorted(statuses)
    return ["open", *sorted(statuses - OPEN)]
