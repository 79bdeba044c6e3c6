"""How tests use a Redis: open the store that a URL names, do something with it, and close it again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from redrive.backends.redis import RedisLetters, opened
from redrive.backends.redis.address import parsed
from redrive.model.arrival import Held
from redrive.model.errors import RedriveError
from redrive.model.finding import Finding
from redrive.testing import letter

T = TypeVar("T")
Use = Callable[[RedisLetters], Coroutine[Any, Any, T]]


def location(url: str, **options: object) -> str:
    """What follows the scheme, with these options."""
    return url.removeprefix("redis:") + "?" + "&".join(f"{name}={value}" for name, value in options.items())


def used(where: str, use: Use[T]) -> T:
    """What becomes of a store that is opened, used and closed."""

    async def scene() -> T:
        letters = RedisLetters(parsed(where, is_tls=False))
        try:
            return await use(letters)
        finally:
            await letters.close()

    return asyncio.run(scene())


def refusal(where: str, use: Use[object] = lambda letters: letters.check()) -> RedriveError:
    """What the store raises."""
    with pytest.raises(RedriveError) as caught:
        used(where, use)
    return caught.value


async def held(letters: RedisLetters, *names: str) -> list[Held]:
    return await letters.put([letter(name) for name in names])


async def examined(where: str) -> list[Finding]:
    """What the doctor finds."""
    store = opened(where)
    try:
        return await store.examine()
    finally:
        await store.letters.close()
