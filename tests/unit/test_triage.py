"""Groups have a life: seen, somebody's, asleep, fixed, and back again."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from redrive import BadSettings, Failure, blocking
from redrive.engine.dead_letters import DeadLetters
from redrive.model.query import Group
from redrive.model.triage import Standing, Triage
from tests.unit.shell import Shell, filled
from tests.unit.targets import Tell, teller

HOUR = timedelta(hours=1)


@pytest.fixture(params=["memory", "sqlite"])
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Tell:
    return teller("memory:" if request.param == "memory" else f"sqlite:{tmp_path}/redrive.db")


async def failed(dlq: DeadLetters, name: str = "down") -> Group:
    failure = Failure(type="x.Y", message=name, fingerprint=f"print of {name}")
    await dlq.capture("x", failure, source="orders")
    return await dlq.group(failure.fingerprint)


async def stands(dlq: DeadLetters, group: Group, now: datetime | None = None) -> tuple[Standing, Triage | None]:
    (found,) = await dlq.triage.of([await dlq.group(group.fingerprint)], now=now)
    return found


def test_a_group_of_which_nobody_has_spoken_is_open(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        assert await stands(dlq, await failed(dlq)) == (Standing.OPEN, None)

    tell(story)


def test_what_is_said_stays_with_who_and_why(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        group, other = await failed(dlq), await failed(dlq, "other")
        await dlq.triage.say(group, Standing.ASSIGNED, assignee="ann", note="knows the gateway", by="bob")
        standing, triage = await stands(dlq, group)
        assert triage is not None
        assert (standing, triage.assignee, triage.by) == (Standing.ASSIGNED, "ann", "bob")
        await dlq.triage.note(group, "ticket 4711", by="ann")
        await dlq.triage.say(group, Standing.ACKNOWLEDGED, by="cy")
        standing, triage = await stands(dlq, group)
        assert triage is not None
        assert (standing, triage.assignee) == (Standing.ACKNOWLEDGED, "ann"), "it is still hers"
        assert [(note.by, note.text) for note in triage.notes] == [("bob", "knows the gateway"), ("ann", "ticket 4711")]
        await dlq.triage.say(group, Standing.OPEN)
        standing, triage = await stands(dlq, group)
        assert triage is not None
        assert (standing, triage.assignee, len(triage.notes)) == (Standing.OPEN, "", 2)
        assert await stands(dlq, other) == (Standing.OPEN, None)
        acts = [(row.act, row.subject) for row in await dlq.desk.audit(limit=4)]
        assert acts == [(f"group {act}", group.fingerprint) for act in ("open", "acknowledged", "note", "assigned")]

    tell(story)


def test_a_snoozed_group_wakes_by_itself(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        group, until = await failed(dlq), datetime.now(UTC) + HOUR
        await dlq.triage.say(group, Standing.SNOOZED, until=until)
        assert (await stands(dlq, group))[0] is Standing.SNOOZED
        assert (await stands(dlq, group, now=until))[0] is Standing.OPEN

    tell(story)


def test_a_resolved_group_that_fails_again_has_regressed(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        group = await failed(dlq)
        triage = await dlq.triage.say(group, Standing.RESOLVED, release="1.2")
        assert triage.release == "1.2"
        assert (await stands(dlq, group))[0] is Standing.RESOLVED
        await failed(dlq)
        assert (await stands(dlq, group))[0] is Standing.REGRESSED
        await dlq.triage.say(await dlq.group(group.fingerprint), Standing.RESOLVED)
        assert (await stands(dlq, group))[0] is Standing.RESOLVED

    tell(story)


def test_what_cannot_be_said_gets_one_clear_sentence() -> None:
    async def story(dlq: DeadLetters) -> None:
        group = await failed(dlq)
        for said, more, sentence in (
            (Standing.REGRESSED, {}, "is seen, and not said"),
            (Standing.ASSIGNED, {}, "say who a group is assigned to"),
            (Standing.SNOOZED, {}, "say until when"),
            (Standing.SNOOZED, {"until": datetime.now(UTC) - HOUR}, "still to come"),
        ):
            with pytest.raises(BadSettings, match=sentence):
                await dlq.triage.say(group, said, **more)  # type: ignore[arg-type]  # one of them is none
        with pytest.raises(BadSettings, match="a note needs words"):
            await dlq.triage.note(group, "  ")
        assert await stands(dlq, group) == (Standing.OPEN, None)

    teller("memory:")(story)


def test_namespaces_are_apart(tmp_path: Path) -> None:
    async def story() -> None:
        from redrive import wiring
        from redrive.settings import Settings

        url = f"sqlite:{tmp_path}/redrive.db"
        async with wiring.connect(Settings(store=url)) as ours, wiring.connect(Settings(store=url, namespace="b")) as theirs:
            one, two = await failed(ours), await failed(theirs)
            await ours.triage.say(one, Standing.ACKNOWLEDGED)
            assert (await stands(theirs, two))[0] is Standing.OPEN

    asyncio.run(story())


def test_the_shell_says_and_shows_it(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    filled(shell)
    first, second, *rest = shell("groups", "--json").json["groups"]
    short = first["fingerprint"][:8]
    assert first["state"] == "open"
    assert shell("groups", "assign", short, "--to", "ann", "--note", "hers").out == f"{short} is assigned to ann.\n"
    assert shell("groups", "snooze", second["fingerprint"], "--for", "3h", "--json").json["group"]["said"] == "snoozed"
    assert shell("groups", "note", short, "ticket 4711").out == f"Noted of {short}.\n"
    listed = {group["fingerprint"]: group["state"] for group in shell("groups", "--json").json["groups"]}
    assert listed == {first["fingerprint"]: "assigned", second["fingerprint"]: "snoozed"} | dict.fromkeys(
        (group["fingerprint"] for group in rest), "open"
    )
    (only,) = shell("groups", "--state", "assigned", "--json").json["groups"]
    assert (only["fingerprint"], only["triage"]["assignee"]) == (first["fingerprint"], "ann")
    assert "assigned" in shell("groups").out
    shown = shell("groups", "show", short).out
    assert "assigned to ann" in shown
    assert "hers" in shown
    assert "ticket 4711" in shown
    assert shell("groups", "resolve", short, "--in", "1.2").out == f"{short} is resolved in 1.2 (ann).\n"
    assert shell("groups", "ack", short).out == f"{short} is acknowledged (ann).\n"
    assert shell("groups", "reopen", short).out == f"{short} is open.\n"
    assert "Missing option '--for'" in shell.refused("groups", "snooze", short)
    assert "there is no group nope" in shell("groups", "ack", "nope", status=1).err


def test_blocking_code_has_it_too(tmp_path: Path) -> None:
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        dlq.capture("x", ValueError("bad"), source="orders")
        (group,) = dlq.groups()
        dlq.triage.say(group, Standing.ACKNOWLEDGED, by="ann")
        dlq.triage.note(group, "seen", by="ann")
        ((standing, triage),) = dlq.triage.of([group])
        assert standing is Standing.ACKNOWLEDGED
        assert triage is not None
        assert [note.text for note in triage.notes] == ["seen"]
