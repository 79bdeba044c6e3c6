"""What a person may have meant who wrote something that there is not."""

from __future__ import annotations

from collections.abc import Iterable


def hint(word: str, known: Iterable[str]) -> str:
    """`did you mean status?`, or what there is when nothing is near."""
    from difflib import get_close_matches  # only mistakes need it

    known = [str(one) for one in known]
    near = get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
