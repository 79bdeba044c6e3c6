"""The hook: any function that takes an alert is a notifier."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from redrive.model.alert import Alert
from redrive.model.errors import NotNotified
from redrive.ports.aside import aside

HookFunction = Callable[[Alert], Any]


class Hook:
    """A `Notifier` that calls a function for each alert: a coroutine function on the loop, a plain one in a thread.

    When the function raises, that alert is given up on, and nobody else hears of it; to be called again, it raises
    `NotifierUnavailable`.
    """

    def __init__(self, function: HookFunction, *, name: str | None = None) -> None:
        module = getattr(function, "__module__", None) or type(function).__module__
        self.name = name or f"hook {module}:{getattr(function, '__qualname__', type(function).__qualname__)}"
        self._function = function

    def __repr__(self) -> str:
        return f"<Hook {self.name}>"

    async def notify(self, alerts: Sequence[Alert]) -> None:
        failed: dict[Any, str] = {}
        for number, alert in enumerate(alerts):
            try:
                await self._call(alert)
            except NotNotified as error:
                if error.transient:
                    left = [*failed, *(one.id for one in alerts[number:])]
                    raise type(error)(str(error), alerts=left, after=error.after) from error
                failed[alert.id] = str(error)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                failed[alert.id] = f"{self.name} cancelled itself"
            except (Exception, SystemExit) as error:
                # Its text is the hook's own affair, and may hold what nobody should read in a log.
                failed[alert.id] = f"{self.name} raised {type(error).__name__}"
        if failed:
            raise NotNotified(next(iter(failed.values())), alerts=failed)

    async def close(self) -> None:
        """A function holds nothing of ours."""

    async def _call(self, alert: Alert) -> None:
        if inspect.iscoroutinefunction(self._function):
            await self._function(alert)
            return
        result = await aside(self._function, alert)
        if inspect.isawaitable(result):
            await result
