"""Triage: groups are acknowledged, assigned, snoozed and resolved, with notes; and it is seen when one comes back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from redrive.engine.owner import owner_name
from redrive.model.errors import BadSettings
from redrive.model.operation import AuditRow
from redrive.model.query import Group
from redrive.model.triage import SAID, Note, Standing, Triage, standing
from redrive.ports.desk import Desk


class Triages:
    """Of the groups of one namespace. Made by `redrive.open(url)`: `dlq.triage`."""

    def __init__(self, desk: Desk, namespace: str) -> None:
        self._desk = desk
        self._namespace = namespace

    async def say(
        self,
        group: Group,
        said: Standing,
        *,
        assignee: str = "",
        until: datetime | None = None,
        release: str = "",
        note: str = "",
        by: str | None = None,
        now: datetime | None = None,
    ) -> Triage:
        """Say how a group stands from now on, and perhaps why. An assignee stays until another is named or it is open again."""
        said = Standing(said)
        if said not in SAID:
            raise BadSettings("that a group has regressed is seen, and not said")
        if said is Standing.ASSIGNED and not assignee:
            raise BadSettings("say who a group is assigned to")
        now, who = now or datetime.now(UTC), by or owner_name()
        if said is Standing.SNOOZED and (until is None or until <= now):
            raise BadSettings("say until when a group is snoozed: a time that is still to come")
        known = await self._known(group, now, who)
        kept = known.assignee if said is not Standing.OPEN else ""
        after = replace(
            known,
            said=said,
            at=now,
            by=who,
            assignee=assignee or kept,
            until=until if said is Standing.SNOOZED else None,
            release=release if said is Standing.RESOLVED else "",
            notes=(*known.notes, *_noted(note, now, who)),
        )
        await self._write(after, said.value, f"{_detail(after)} {note}".strip())
        return after

    async def note(self, group: Group, text: str, *, by: str | None = None, now: datetime | None = None) -> Triage:
        """Write something about a group, which stands as it did."""
        if not text.strip():
            raise BadSettings("a note needs words")
        now, who = now or datetime.now(UTC), by or owner_name()
        known = await self._known(group, now, who)
        after = replace(known, notes=(*known.notes, *_noted(text, now, who)))
        await self._write(after, "note", text)
        return after

    async def of(self, groups: Sequence[Group], *, now: datetime | None = None) -> list[tuple[Standing, Triage | None]]:
        """How groups stand, and what was said of each."""
        said = await self._desk.said(self._namespace, [group.fingerprint for group in groups])
        moment = now or datetime.now(UTC)
        return [(standing(said.get(group.fingerprint), group, moment), said.get(group.fingerprint)) for group in groups]

    async def _known(self, group: Group, now: datetime, who: str) -> Triage:
        said = await self._desk.said(self._namespace, [group.fingerprint])
        fresh = Triage(namespace=self._namespace, fingerprint=group.fingerprint, at=now, by=who)
        return said.get(group.fingerprint, fresh)

    async def _write(self, triage: Triage, act: str, detail: str) -> None:
        await self._desk.say([triage])
        row = AuditRow(at=datetime.now(UTC), by=triage.by, act=f"group {act}", subject=triage.fingerprint, detail=detail)
        await self._desk.note([row])


def _noted(text: str, now: datetime, who: str) -> tuple[Note, ...]:
    return (Note(at=now, by=who, text=text.strip()),) if text.strip() else ()


def _detail(triage: Triage) -> str:
    match triage.said:
        case Standing.ASSIGNED:
            return f"to {triage.assignee}"
        case Standing.SNOOZED:
            return f"until {triage.until:%Y-%m-%d %H:%M} UTC"
        case Standing.RESOLVED if triage.release:
            return f"in {triage.release}"
        case _:
            return ""
