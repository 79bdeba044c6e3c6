"""Which options of a driver hold a secret, told by their names."""

from __future__ import annotations

import re

_SECRET = re.compile(r"password|secret|token|\.pem\Z|oauthbearer\.config", re.IGNORECASE)


def is_secret(option: str) -> bool:
    """Must its value be told nowhere?"""
    return _SECRET.search(option) is not None
