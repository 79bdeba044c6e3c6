"""What makes two failures the same failure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

VERSION = 1

_VARYING = re.compile(
    r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|\d[\d.,:TZ+-]*|'[^']*'|\"[^\"]*\"|(?<!\w)/[^\s'\"]+",
    re.IGNORECASE,
)
_READ = 1024


def normalised(message: str) -> str:
    """The message without what varies from one occurrence to the next: numbers, ids, quotes, paths, addresses."""
    return _VARYING.sub("*", message[:_READ])


def fingerprint(error_type: str, message: str, frames: Sequence[str]) -> str:
    """A digest of the error's type and the application's frames; without frames, of its normalised message."""
    digest = hashlib.blake2b(digest_size=8)
    digest.update(error_type.encode("utf-8", "surrogatepass"))
    for part in frames or (normalised(message),):
        digest.update(b"\0")
        digest.update(part.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
