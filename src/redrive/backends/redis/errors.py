"""Redis' errors in redrive's words."""

from __future__ import annotations

import os
import re
import socket
import ssl

from redis import exceptions

from redrive.model.errors import StoreCorrupt, StoreError, StoreFull, StoreNotWritable, StoreUnavailable

_BY_CODE: dict[str, tuple[type[StoreError], str]] = {
    "OOM": (StoreFull, "{name} has no memory left for letters; raise its maxmemory or remove some, then try again"),
    "MISCONF": (StoreNotWritable, "{name} takes no writes because it cannot save to its disk; mend that first"),
    "READONLY": (StoreNotWritable, "{name} is a read-only replica; name its primary in the URL"),
    "NOPERM": (StoreNotWritable, "this user of {name} lacks a right ({error}); grant it with ACL SETUSER"),
    "NOAUTH": (StoreNotWritable, "{name} wants a password; put it into the URL: redis://user:password@host"),
    "WRONGPASS": (StoreNotWritable, "{name} does not know this user and password; mend the URL"),
    "DENIED": (StoreNotWritable, "{name} is in protected mode; give it a password or bind it to where you are"),
    "WRONGTYPE": (StoreCorrupt, "{name} has another program's data under this prefix; choose another one in the URL: ?prefix=…"),
    "INVALID": (
        StoreNotWritable,
        "{name} does not answer as a Redis does; is it another program, or does it want rediss: for TLS?",
    ),
    "BUSY": (StoreUnavailable, "{name} is busy with another script; try again"),
    "LOADING": (StoreUnavailable, "{name} is still loading its data; try again"),
    "MASTERDOWN": (StoreUnavailable, "{name} has lost its primary; try again when it is back"),
    "NOREPLICAS": (StoreUnavailable, "{name} has too few replicas to take writes; try again when they are back"),
    "CLUSTERDOWN": (StoreUnavailable, "the cluster of {name} is down; try again when it is back"),
    "TRYAGAIN": (StoreUnavailable, "{name} is moving letters to another node; try again"),
}
_BY_KIND: tuple[tuple[type[exceptions.RedisError], str], ...] = (
    (exceptions.InvalidResponse, "INVALID"),
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.TryAgainError, "TRYAGAIN"),
)
"""Errors whose code the driver took out of their text."""

_CODE = re.compile(rf"\b({'|'.join(_BY_CODE)})\b")


def refused(error: exceptions.RedisError, name: str) -> StoreError:
    """What it means that the server answered with this error: it has done nothing."""
    text = str(error)
    code = next((code for kind, code in _BY_KIND if isinstance(error, kind)), None)
    if code is None and (found := _CODE.search(text)):
        code = found[1]
    if code is None and "executing the script can't" in text:
        code = "NOPERM"
    if code is None and isinstance(error, exceptions.AuthenticationError):
        code = "NOAUTH" if "required" in text or "already authenticated" in text else "WRONGPASS"
    if code is None and isinstance(error, exceptions.AuthenticationWrongNumberOfArgsError):
        code = "WRONGPASS"
    kind, sentence = _BY_CODE.get(code or "", (StoreError, "{name} could not do it: {error}"))
    return kind(sentence.format(name=name, error=text))


def unreachable(error: BaseException, name: str) -> StoreUnavailable:
    """Nothing was sent."""
    return StoreUnavailable(f"cannot reach {name} ({_reason(error)}); does it run, and are its host and port right?")


def _reason(error: BaseException) -> str:
    """What the system said, without what the driver adds to it."""
    match error.__context__:
        case ssl.SSLError() | socket.gaierror() as cause:
            return cause.strerror or str(cause)
        case OSError(errno=int(number)):
            return os.strerror(number)
    return str(error) or "it does not answer"
