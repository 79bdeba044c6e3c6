"""Reads what the shim told, and says which confirmations came before their fsync."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_FRAME_HEADER = 24
"""SQLite writes the header of a WAL frame by itself; bytes 4 to 8 are not zero in the last frame of a transaction."""


class File:
    """A file that redrive must have on the disk before it confirms."""

    def __init__(self) -> None:
        self.is_named = False
        """Was the folder synced since the file came?"""
        self.writes = 0
        self.on_disk = 0
        """How many of the writes a sync covers that ended."""
        self.confirmed = 0
        """How many there were at the last confirmation."""
        self.ends: dict[str, int] = {}
        """The number of the write that ended the transaction of each token; at first, of the write it was in."""
        self.open_tokens: list[str] = []
        self.is_ending = False
        self.length = 0
        """Up to where it was written since it last began anew."""

    def wrote(self, is_wal: bool, offset: int, length: int, head: str, tokens: list[str]) -> None:
        self.writes += 1
        self.length = length if offset == 0 else max(self.length, offset + length)
        new = [token for token in tokens if token not in self.ends]
        self.open_tokens += new
        self.ends |= dict.fromkeys(new, self.writes)
        if is_wal and length == _FRAME_HEADER:
            self.is_ending = int(head[8:16], 16) != 0
        elif not is_wal or self.is_ending:
            # What belongs to this transaction is complete with this write.
            self.ends |= dict.fromkeys(self.open_tokens, self.writes)
            self.open_tokens.clear()
            self.is_ending = False


class Log:
    """What happened, and what is wrong with it."""

    def __init__(self, path: Path) -> None:
        self.seen: Counter[str] = Counter()
        """How often each verb was confirmed, by file and verb: `wal put`."""
        self.complaints: list[str] = []
        self._paths: dict[str, str] = {}
        self._files: dict[str, File] = {}
        self._syncing: dict[str, list[int]] = {}
        for line in path.read_text().splitlines():
            event, descriptor, *rest = line.split(" ")
            self.seen[event] += 1
            self.complaints += self._follow(event, descriptor, rest)

    def file(self, kind: str) -> File | None:
        """The newest file of a kind: `wal` or `journal`."""
        return next((file for path, file in reversed(self._files.items()) if path.endswith((f"-{kind}", f".{kind}"))), None)

    def _follow(self, event: str, descriptor: str, rest: list[str]) -> Iterator[str]:
        if event == "O":
            path = self._paths[descriptor] = " ".join(rest)
            if path.endswith(("-wal", ".journal")):
                self._files.setdefault(path, File())
            return
        if event == "M":
            yield from self._confirmed(*rest[:3], tokens=rest[3:])
            return
        path = self._paths[descriptor]
        file = self._files.get(path)
        match event:
            case "C":
                del self._paths[descriptor]
            case "W" if file is not None:
                file.wrote(path.endswith("-wal"), int(rest[0]), int(rest[1]), rest[2], rest[3:])
            case "T" if file is not None and path.endswith("-wal"):
                # Behind a log that has begun anew, what is left of the former one is cut off: nobody waits for that.
                if int(rest[0]) < file.length:
                    yield "the wal was cut off before its end"
            case "T" if file is not None:
                file.writes += 1
            case "B":
                self._syncing.setdefault(descriptor, []).append(file.writes if file else 0)
            case "E":
                # Whoever copies the log syncs it too, through a descriptor of its own. When several overlap on one, each is taken to
                # cover no more than the first of them.
                covered = self._syncing[descriptor].pop(0)
                if rest[0] == "0":
                    self._synced(path, covered)
            case _:
                pass

    def _synced(self, path: str, covered: int) -> None:
        if (file := self._files.get(path)) is not None:
            file.on_disk = max(file.on_disk, covered)
        for other, inside in self._files.items():
            if str(Path(other).parent) == path:
                inside.is_named = True

    def _confirmed(self, kind: str, verb: str, company: str, *, tokens: list[str]) -> Iterator[str]:
        self.seen[f"{kind} {verb}"] += 1
        file = self.file(kind)
        if file is None:
            yield f"{verb} was confirmed, and there is no {kind}"
            return
        if not file.is_named:
            yield f"{verb} was confirmed before the folder of its {kind} was synced"
        for token in tokens:
            if token not in file.ends:
                yield f"{verb} of {token} was confirmed, and it was never written to the {kind}"
            elif token in file.open_tokens:
                yield f"{verb} of {token} was confirmed before its transaction ended"
            elif file.ends[token] > file.on_disk:
                yield f"{verb} of {token} was confirmed before the {kind} was synced"
        if company == "alone":
            if file.writes == file.confirmed:
                yield f"{verb} was confirmed, and nothing was written to the {kind}"
            if file.writes > file.on_disk:
                yield f"{verb} was confirmed before the {kind} was synced"
        file.confirmed = file.writes
