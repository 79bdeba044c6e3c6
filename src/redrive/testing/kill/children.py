"""Processes of their own that start in milliseconds: forked from a server that has imported everything and opened nothing."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

_PRELOADED = ["redrive.testing", "redrive.testing.kill.law", "redrive.testing.kill.journal"]


def children() -> ForkServerContext | SpawnContext:
    """Where processes and their pipes come from. What a child runs must be something that other processes can import."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context
