"""OpenSearch's errors in redrive's words: the foreign exceptions and answers end here."""

from __future__ import annotations

import os
import socket
import ssl
from typing import Any

from redrive.model.errors import (
    StoreError,
    StoreFull,
    StoreNotWritable,
    StoreUnavailable,
)

CONFLICT = 409
MISSING = 404

_BY_TYPE: dict[str, tuple[type[StoreError], str]] = {
    "circuit_breaking_exception": (StoreUnavailable, "{name} has no memory for this now ({reason}); try again with less"),
    "es_rejected_execution_exception": (StoreUnavailable, "{name} has too much to do; try again"),
    "opensearch_rejected_execution_exception": (StoreUnavailable, "{name} has too much to do; try again"),
    "rejected_execution_exception": (StoreUnavailable, "{name} has too much to do; try again"),
    "unavailable_shards_exception": (StoreUnavailable, "{name} has no primary shard right now; try again when it is back"),
    "no_shard_available_action_exception": (StoreUnavailable, "{name} has no shard that answers; try again when it is back"),
    # It was there: either it has been removed, or the cluster is starting and does not know its indexes yet.
    "index_not_found_exception": (StoreUnavailable, "the {name} is not there now; try again, or restore it from a snapshot"),
    "index_closed_exception": (StoreNotWritable, "the {name} is closed; open it there"),
}
_BY_STATUS: dict[int, tuple[type[StoreError], str]] = {
    401: (StoreNotWritable, "{name} does not know this user and password; mend the URL"),
    403: (StoreNotWritable, "this user may not do that on {name} ({reason}); grant the right"),
    408: (StoreUnavailable, "{name} took too long; try again"),
    413: (StoreNotWritable, "a letter is larger than {name} takes in one request; raise its http.max_content_length"),
    429: (StoreUnavailable, "{name} has too much to do; try again"),
    502: (StoreUnavailable, "nobody answers for {name}; try again"),
    503: (StoreUnavailable, "{name} cannot serve now ({reason}); try again"),
    504: (StoreUnavailable, "{name} did not answer its gateway in time; try again"),
}


def refused(status: int, error: Any, name: str) -> StoreError:
    """What it means that the server answered with this error: it has done nothing."""
    kind, reason = _told(error)
    if kind == "cluster_block_exception":
        return _blocked(reason, name)
    known = _BY_TYPE.get(kind) or _BY_STATUS.get(status)
    if known is None:
        return StoreError(f"{name} could not do it: {reason or kind or status}")
    meaning, sentence = known
    return meaning(sentence.format(name=name, reason=reason or kind or status))


def error_in(answer: Any) -> Any:
    """What an answer says went wrong."""
    return answer.get("error") if isinstance(answer, dict) else answer


def kind_of(error: Any) -> str:
    """OpenSearch's own name for an error."""
    return _told(error)[0]


def _blocked(reason: str, name: str) -> StoreError:
    if "read-only-allow-delete" in reason or "flood" in reason:
        return StoreFull(f"the disk under {name} is nearly full, so it takes no more letters; free some space there")
    if "SERVICE_UNAVAILABLE" in reason:
        return StoreUnavailable(f"the cluster of {name} is not ready ({reason}); try again")
    return StoreNotWritable(f"{name} is set to be read only ({reason}); lift that block there")


def _told(error: Any) -> tuple[str, str]:
    """The type and the reason that stand in an answer; the root cause where the outermost error says nothing."""
    if not isinstance(error, dict):
        return "", _line(error) if isinstance(error, str) else ""
    kind, reason = str(error.get("type") or ""), str(error.get("reason") or "")
    causes = error.get("root_cause")
    if kind in ("search_phase_execution_exception", "exception") and isinstance(causes, list) and causes:
        kind, reason = str(causes[0].get("type") or kind), str(causes[0].get("reason") or reason)
    return kind, _line(reason)


def unreachable(error: BaseException, name: str) -> StoreError:
    """Nothing was sent."""
    if isinstance(_root(error), ssl.SSLCertVerificationError):
        return StoreNotWritable(f"{name} shows a certificate that is not trusted ({reason_of(error)}); name its issuer with ?ca=")
    return StoreUnavailable(f"cannot reach {name} ({reason_of(error)}); does it run, and are its host and port right?")


def reason_of(error: BaseException) -> str:
    """What the system said, without what the driver adds to it."""
    match _root(error):
        case ssl.SSLError() | socket.gaierror() as cause:
            return _line(cause.strerror or str(cause))
        case TimeoutError():
            return "no answer in time"
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number).lower()
        case root:
            return _line(str(root)) or "it does not answer"


def _root(error: BaseException) -> BaseException:
    """The system's own error inside of the driver's."""
    for name in ("certificate_error", "os_error"):
        inner = getattr(error, name, None)
        if isinstance(inner, BaseException):
            return inner
    return error


def _line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0][:300].rstrip(".")
