"""One table: what an error's code means to a shell and to HTTP."""

from __future__ import annotations

from redrive.model.errors import RedriveError

USAGE = 2
FAILED = 1

_STATUS: dict[str, tuple[int, int]] = {
    "not_held": (FAILED, 503),
    "body_too_large": (FAILED, 413),
    "store_error": (FAILED, 500),
    "store_unavailable": (FAILED, 503),
    "answer_lost": (FAILED, 503),
    "store_full": (FAILED, 507),
    "store_corrupt": (FAILED, 500),
    "store_not_writable": (FAILED, 500),
    "schema_too_new": (FAILED, 500),
    "lease_lost": (FAILED, 409),
    "letter_leased": (FAILED, 409),
    "already_begun": (FAILED, 409),
    "outcome_unknown": (FAILED, 409),
    "illegal_transition": (FAILED, 409),
    "unknown_letter": (FAILED, 404),
    "unknown_operation": (FAILED, 404),
    "circular_dependency": (USAGE, 400),
    "queue_refused": (USAGE, 400),
    "no_such_queue": (USAGE, 400),
    "queue_gone": (FAILED, 400),
    "no_such_item": (FAILED, 400),
    "not_leased": (FAILED, 400),
    "queue_busy": (FAILED, 454),
    "queue_empty": (FAILED, 454),
    "queue_closing": (FAILED, 453),
    "queue_full": (FAILED, 507),
    "not_notified": (FAILED, 502),
    "notifier_unavailable": (FAILED, 502),
    "bad_settings": (USAGE, 400),
    "unknown_scheme": (USAGE, 400),
    "bad_query": (USAGE, 400),
    "bad_cursor": (USAGE, 400),
    "missing_extra": (FAILED, 501),
    "unsupported": (FAILED, 501),
}


def exit_status(error: RedriveError | type[RedriveError]) -> int:
    """0 done, 1 failed, 2 usage."""
    return _STATUS.get(error.code, (FAILED, 500))[0]


def http_status(error: RedriveError | type[RedriveError]) -> int:
    return _STATUS.get(error.code, (FAILED, 500))[1]
