"""Finish: what was begun is brought to its end, whoever is cancelled or fails meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from redrive.ports.inline import is_inline

T = TypeVar("T")
U = TypeVar("U")


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Do it whole: who is cancelled meanwhile hears of it when it is done."""
    if is_inline():
        return await work
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()
        raise


async def both(one: Coroutine[Any, Any, T], other: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """What two give that are done at once; when one fails, the other is brought to its end all the same."""
    first, second = await asyncio.gather(one, other, return_exceptions=True)
    if isinstance(first, BaseException):
        raise first
    if isinstance(second, BaseException):
        raise second
    return first, second
