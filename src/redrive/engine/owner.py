"""Who does things here, unless somebody says a name."""

from __future__ import annotations

import asyncio
import os
import socket


def owner_name() -> str:
    """Who holds a lease, for people to read: host, process, and the task within it."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return f"{socket.gethostname()}:{os.getpid()}" + (f":{task.get_name()}" if task else "")
