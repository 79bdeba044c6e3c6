"""Words as PostgreSQL keeps them: a key of an index has no more than some 2,700 bytes, and a word may have ten times as many.

A long word is kept as its length and digest: so it is found as any other is, and takes no more room than that.
"""

from __future__ import annotations

import re
from hashlib import blake2b

_LONG = re.compile(" ([^ ]{65,})")
"""Of four bytes a character, a shorter one has 256."""
_SIGN = "#"
"""No part of any word."""
_DIGEST_BYTES = 16


def terms(told: str) -> str:
    """What is kept of words that have a space before, between and behind them; and so what to look for there."""
    return _LONG.sub(lambda found: f" {term(found[1])}", told)


def term(word: str) -> str:
    """What is kept of a word."""
    if len(word) <= 64:
        return word
    return f"{len(word)}{_SIGN}{blake2b(word.encode(), digest_size=_DIGEST_BYTES).hexdigest()}"


def length(column: str) -> str:
    """How many characters words in a column had, as SQL."""
    lost = f"sum(split_part(w, '{_SIGN}', 1)::bigint - char_length(w))"
    long = f"FROM unnest(string_to_array({column}, ' ')) AS w WHERE strpos(w, '{_SIGN}') > 0"
    return f"char_length({column}) + CASE WHEN strpos({column}, '{_SIGN}') > 0 THEN (SELECT {lost}::bigint {long}) ELSE 0 END"
