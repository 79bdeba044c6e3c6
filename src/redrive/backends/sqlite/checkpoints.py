"""Checkpoints: the log's pages are copied into the file by a thread of their own, so that whoever commits does not wait for it.

Left to itself, SQLite has the writer whose commit fills the log copy all of it. Among a million letters the pages lie all over the
file, and that took as long as everything else together. Here a writer only sees that the log has grown long. What is still
missing when a copy ends was written meanwhile, and is little: that rest is copied while nobody writes, so that the log begins anew.
"""

from __future__ import annotations

import os
import sqlite3
import threading

from redrive.backends.sqlite.connections import LOG_BYTES, PAGE_BYTES, Connections
from redrive.model.errors import StoreError

_LITTLE = 1024 * 1024
"""Bytes that are copied while writers wait."""
_MUCH = 3
_PATIENCE_SECONDS = 0.05
"""How long new readers wait for those who are reading; nobody who writes waits for either."""
_TIMES = 4
"""How often it is tried to come so near to them."""


class Checkpoints:
    """Of one file, in this process. Other processes have theirs; SQLite lets one of them work at a time."""

    def __init__(self, connections: Connections, leading: threading.Lock) -> None:
        self._log = f"{connections.path}-wal"
        self._connections = connections
        self._leading = leading
        self._due = LOG_BYTES
        self._is_anew = False
        """All is copied; the log begins anew, and is cut, with the next commit."""
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def committed(self) -> None:
        """Somebody has committed: begin to copy if the log has grown long. Called by whoever holds the lead."""
        self._is_anew = False
        size = self._size()
        if size <= LOG_BYTES:
            # The log has begun anew: SQLite cuts it to this length then.
            self._due = LOG_BYTES
        elif size > self._due:
            # Should somebody read for long, the log cannot begin anew; it is not copied again for every commit then.
            self._due = size + LOG_BYTES
            self._start()

    def catch_up(self) -> bool:
        """Copy if there is much more in the log than should be, because somebody has read for long; is there?"""
        if self._is_anew or self._size() <= _MUCH * LOG_BYTES:
            return False
        self._start()
        return True

    def _start(self) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._copy, name="redrive-checkpoint", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Wait for what is under way."""
        if self._thread is not None:
            self._thread.join()

    def _copy(self) -> None:
        try:
            for _ in range(_TIMES):
                before = self._size()
                left = self._copied()
                if left + self._size() - before <= _LITTLE:
                    self._begin_anew()
                    break
        except (sqlite3.Error, StoreError):
            # The log is whole, and is copied when it has grown further; beyond a length of its own the writer does it.
            return

    def _begin_anew(self) -> None:
        """Copy the rest while nobody writes or reads here, for only then does the log begin anew."""
        with self._connections.readers_held_off(_PATIENCE_SECONDS) as is_quiet:
            if not is_quiet or self._connections.was_taken_away:
                return
            with self._leading:
                is_busy, _, _ = self._connections.writer().execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
                self._is_anew = not is_busy

    def _copied(self) -> int:
        """Copy what is there, but for what somebody still reads as it was before; how many bytes that is."""
        with self._connections.reading() as connection:
            _, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return max(0, int(pages) - int(copied)) * PAGE_BYTES

    def _size(self) -> int:
        try:
            return os.stat(self._log).st_size  # noqa: PTH116 - asked after every transaction: a Path would cost more than the answer
        except OSError:
            return 0
