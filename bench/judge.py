"""One failure judged: described with category, traceback and fingerprint, and a verdict given. Twenty frames deep."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from time import thread_time_ns
from typing import Any

from bench.harness import Effort, Goal, Row, alone, compared, folder
from redrive.engine.describe import describe
from redrive.model.policy import Policy

FRAMES = 20
_STEPS = "".join(
    f"def step_{number}(order):\n    total = order + {number}\n    return step_{number + 1}(total)\n\n\n"
    for number in range(FRAMES - 2)
)
_SOURCE = f"{_STEPS}def step_{FRAMES - 2}(order):\n    raise TimeoutError(f'no answer for an order of {{order}} bytes')\n"
_POLICY = Policy()

Handler = Callable[[int], None]


def rows(effort: Effort) -> Iterator[Row]:
    warm, new = effort.of(2_000), effort.of(50)
    with folder(effort) as place:
        path = place / "steps.py"
        path.write_text(_SOURCE)
        known = _handler(path)
        yield compared(
            "judge a failure of 20 frames, warm",
            lambda: _microseconds(_judge, [known] * warm),
            lambda: _microseconds(traceback.format_exception, [known] * new),
            effort,
            against="format_exception alone",
            goal=Goal("at most", 10),
            unit="µs",
            figure=alone,
        )
        yield compared(
            "judge a failure of 20 frames, first time",
            lambda: _microseconds(_judge, [_handler(path) for _ in range(new)]),
            lambda: _microseconds(traceback.format_exception, [_handler(path) for _ in range(new)]),
            effort,
            against="format_exception alone",
            goal=Goal("at most", 50),
            unit="µs",
            figure=alone,
        )


def _judge(error: BaseException) -> None:
    describe(error)
    _POLICY.judge(error, 1)


def _handler(path: Path) -> Handler:
    """Code that was never seen: compiled anew, from a file whose lines `linecache` has in memory."""
    space: dict[str, Any] = {"__name__": "shop.steps", "__file__": str(path)}
    exec(compile(_SOURCE, str(path), "exec"), space)
    handler: Handler = space["step_0"]
    return handler


def _microseconds(judge: Callable[[Any], object], handlers: list[Handler]) -> float:
    """Of this thread's time, for each failure just raised; asking for the time is left out."""
    taken = 0
    for handler in handlers:
        try:
            handler(1024)
        except TimeoutError as error:
            asked = thread_time_ns()
            started = thread_time_ns()
            judge(error)
            taken += thread_time_ns() - started - (started - asked)
    return taken / len(handlers) / 1000
