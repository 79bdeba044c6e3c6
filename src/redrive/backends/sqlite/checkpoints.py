"""Checkpoints: the log's pages are copied into the file by a thread of their own, so that whoever commits does not wait for it.

Left to itself, SQLite has the writer whose commit fills the log copy all of it. Among a million letters the pages lie all over the
file, and that took as long as everything else together. Here a writer only sees that the log has grown long. What is still
missing when a copy ends was written meanwhile, and is little: that rest is copied while nobody writes, so that the log begins anew.
"""

from __future__ import annotations

import sqlite3
import threading

from redrive.backends.sqlite.connections import LOG_BYTES, Connections
from redrive.backends.sqlite.log import Log
from redrive.model.errors import StoreError

_LITTLE_PAGES = 64
"""So few are copied while writers wait."""
_MUCH = 3
_PATIENCE_SECONDS = 0.05
"""How long new readers wait for those who are reading; nobody who writes waits for either."""


class Checkpoints:
    """Of one file, in this process. Other processes have theirs; SQLite lets one of them work at a time."""

    def __init__(self, connections: Connections, leading: threading.Lock) -> None:
        self._log = Log(connections.path)
        self._connections = connections
        self._leading = leading
        self._due = LOG_BYTES
        self._known = b""
        """The log that this is about."""
        self._is_anew = False
        """All is copied; the log begins anew with the next commit."""
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def committed(self) -> None:
        """Somebody has committed: begin to copy if the log has grown long. Called by whoever holds the lead."""
        self._is_anew = False
        which, is_long = self._log.look(self._due)
        if which != self._known:
            self._known, self._due = which, LOG_BYTES
        elif is_long:
            # Should somebody read for long, the log cannot begin anew; it is not copied again for every commit then.
            self._due += LOG_BYTES
            self._start()

    def catch_up(self) -> bool:
        """Copy if there is much more in the log than should be, because somebody has read for long; is it being copied?"""
        if not self._is_anew and self._log.look(_MUCH * LOG_BYTES)[1]:
            self._start()
        return self._thread is not None and self._thread.is_alive()

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
            with self._connections.reading() as connection:
                _come_near(connection)
            # The log begins anew only when nobody reads it. Who writes has gone on while we waited for those who read.
            with self._connections.reading_alone(_PATIENCE_SECONDS) as connection:
                if connection is not None and _come_near(connection):
                    self._begin_anew()
        except (sqlite3.Error, StoreError):
            # The log is whole, and is copied when it has grown further; beyond a length of its own the writer does it.
            return

    def _begin_anew(self) -> None:
        """Copy the very last of it while nobody writes."""
        with self._leading:
            is_busy, _, _ = self._connections.writer().execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
            self._is_anew = not is_busy


def _come_near(connection: sqlite3.Connection) -> bool:
    """Copy what is there until little comes meanwhile; does it? Not if more comes than can be copied in that time."""
    before, last = 0, None
    while True:
        _, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if copied < pages:
            # Somebody reads as it was before: not now.
            return False
        come = copied - before
        if come <= _LITTLE_PAGES:
            return True
        if last is not None and 2 * come > last:
            return False
        before, last = copied, come
