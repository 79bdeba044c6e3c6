"""Who does things here, unless somebody says a name."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket


def owner_name() -> str:
    """Who holds a lease, for people to read: host, process, and the task within it."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return f"{socket.gethostname()}:{os.getpid()}" + (f":{task.get_name()}" if task else "")


def person_name() -> str:
    """Who sits at the terminal, for people to read: `ann@host`."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):
        # A container may run as a user that has no name.
        return owner_name()
