"""Position ids: KSUIDs that strictly increase, minted in runs.

A KSUID is 27 characters of base 62: four bytes of seconds and sixteen that nobody can guess. A place in a queue takes a new
random one every second and counts on from it, so ids of one partition increase and those of two never meet. A run shares all
but its last two characters, which come from a table: encoding each by itself would cost more than the rest of a produce.
"""

from __future__ import annotations

import os
from functools import lru_cache

LENGTH = 27
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_EPOCH = 1_400_000_000
_BITS = 128
HIGHEST = "aWgEPTl1tmebfsQzFP4bxwgy80V"
_ENDS = [first + second for first in _DIGITS for second in _DIGITS]
_NUMBER = {end: number for number, end in enumerate(_ENDS)}
_RUN = LENGTH - 2


def positions(last: str, count: int, now_us: int) -> list[str]:
    """The `count` ids that come after `last` (empty: none was given yet), at this instant."""
    second = now_us // 1_000_000
    if last < _floor(second):
        last = _begun(second)
    run, start = last[:_RUN], _NUMBER[last[_RUN:]] + 1
    ids = [run + end for end in _ENDS[start : start + count]]
    while len(ids) < count:
        run = _after(run)
        ids += [run + end for end in _ENDS[: count - len(ids)]]
    return ids


def what_is_wrong(id: str) -> str | None:
    """Why this is no KSUID; None: it is one."""
    if len(id) != LENGTH:
        return f"Valid encoded KSUIDs are {LENGTH} characters"
    if id > HIGHEST or not (id.isascii() and id.isalnum()):
        return f"Valid encoded KSUIDs are bounded by {'0' * LENGTH} and {HIGHEST}"
    return None


@lru_cache(maxsize=4)
def _floor(second: int) -> str:
    """Lower than every id of this second, and higher than every one before."""
    return _encoded(max(second - _EPOCH, 0) << _BITS)


def _begun(second: int) -> str:
    # The highest bit stays free, so that counting on from it never runs into the next second.
    return _encoded(max(second - _EPOCH, 0) << _BITS | int.from_bytes(os.urandom(_BITS // 8), "big") >> 1)


def _encoded(number: int, length: int = LENGTH) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))


def _after(run: str) -> str:
    number = 0
    for digit in run:
        number = number * 62 + _DIGITS.index(digit)
    return _encoded(number + 1, _RUN)
