"""Waiting for what others do, as long as it takes and no longer."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

PATIENCE_SECONDS = 30.0
_LOOK_SECONDS = 0.002


async def until(look: Callable[[], object | Awaitable[object]], seconds: float = PATIENCE_SECONDS) -> None:
    """Return when what is looked at is so, which must be soon."""
    async with asyncio.timeout(seconds):
        while not (await seen if inspect.isawaitable(seen := look()) else seen):  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(_LOOK_SECONDS)
