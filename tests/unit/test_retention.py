"""Retention: rules as people write them, what they do and leave alone, and how it is announced. Without a rule nothing goes."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive import BadQuery, BadSettings, Claim, Status, StoreUnavailable, Unsupported, blocking
from redrive.backends.memory import MemoryDesk, MemoryLetters
from redrive.engine import metrics
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.metrics import Metric, NullMeter
from redrive.engine.telemetry import Telemetry
from redrive.model.retention import RetentionAct, RetentionRule, retention_rules
from redrive.ports import LetterStore
from redrive.settings import load
from redrive.testing import Faulty, Moment, letter, raising
from tests.unit.test_bulk import names, tell

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


class Counted(NullMeter):
    """Remembers what was counted."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, ...], float] = {}

    def add(self, metric: Metric, amount: float, /, **labels: str) -> None:
        if metric is metrics.LETTERS_RETAINED:
            key = labels["rule"], labels["act"]
            self.seen[key] = self.seen.get(key, 0) + amount


def house(store: LetterStore | None = None, *meters: Counted, **more: Any) -> DeadLetters:
    return DeadLetters(store or MemoryLetters(), MemoryDesk(), telemetry=Telemetry(meters=meters), **more)


def rules(*lines: str) -> list[str]:
    return list(lines)


def test_rules_are_tables_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "redrive.toml").write_text(
        '[[retention]]\nquery = "status:completed age>30d"\nact = "purge"\nname = "old successes"\n'
        '[[retention]]\nquery = "expires_at<0s"\nact = "archive"\n'
    )
    loaded = load(environ={}, folder=tmp_path)
    assert loaded.origins["retention"] == "redrive.toml"
    first, second = loaded.settings.retention
    assert (first.query, first.act, first.label) == ("status:completed age>30d", RetentionAct.PURGE, "old successes")
    assert (str(second), second.label) == ("archive: expires_at<0s", "archive: expires_at<0s")
    assert wired(tmp_path) == loaded.settings.retention


def wired(folder: Path) -> tuple[RetentionRule, ...]:
    """The rules that an opened store has."""
    dlq = redrive.wiring.connect(load({"store": "memory:"}, environ={}, folder=folder).settings)
    return dlq.housekeeper()._retention.rules


@pytest.mark.parametrize(
    "text",
    [
        "purge: status:completed age>30d\narchive: expires_at<0s\n",
        '[{"query": "status:completed age>30d", "act": "purge"}, {"query": "expires_at<0s", "act": "archive"}]',
    ],
    ids=["lines", "json"],
)
def test_rules_are_lines_or_json_in_the_environment(text: str, tmp_path: Path) -> None:
    settings = load(environ={"REDRIVE_RETENTION": text}, folder=tmp_path).settings
    assert list(map(str, settings.retention)) == ["purge: status:completed age>30d", "archive: expires_at<0s"]
    (tmp_path / "rules").write_text(text)
    assert load(environ={"REDRIVE_RETENTION_FILE": "rules"}, folder=tmp_path).settings.retention == settings.retention


def test_without_rules_there_are_none(tmp_path: Path) -> None:
    assert load(environ={}, folder=tmp_path).settings.retention == ()
    assert load(environ={"REDRIVE_RETENTION": "  \n"}, folder=tmp_path).settings.retention == ()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            "purge: statsu:completed",
            "rule 1, in its query 'statsu:completed': there is no field 'statsu'; did you mean status? (column 1)",
        ),
        ("purge: status:done", "rule 1, in its query 'status:done': status cannot be 'done'; there are pending,"),
        ("purge: age>30x", "'30x' is no duration; write 30s, 15m, 12h, 7d or 2w (column 5)"),
        ("purge: all\narchive: (age>1d", "rule 2, in its query '(age>1d': this '(' is not closed (column 1)"),
        ("delete: all", "rule 1: act cannot be 'delete'; it is purge or archive"),
        ("all of them", "rule 1 must be such as `purge: status:completed age>30d`, not 'all of them'"),
        ("purge:", "rule 1 has an empty query; write all for every letter"),
        ("[{", "it begins as JSON, but is not: "),
        ('{"query": "all"}', "rule 1: act is missing; it is purge or archive"),
        ('{"act": "purge"}', "rule 1 needs a query, such as query = "),
        ('{"act": "purge", "query": "all", "nmae": "x"}', "rule 1 has no 'nmae'; did you mean name?"),
        ('{"act": "purge", "query": "all", "name": 7}', "rule 1 must have a text as its name, not 7"),
        ('{"act": "purge", "query": "a:b", "name": "ours"}', "rule 1 (ours), in its query 'a:b': "),
        ("[7]", "rule 1 must be a table with query and act, not 7"),
    ],
    ids=str,
)
def test_a_mistake_is_told_when_it_is_read_in_one_sentence(given: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(BadSettings) as raised:
        load(environ={"REDRIVE_RETENTION": given}, folder=tmp_path)
    assert str(raised.value).startswith("retention (environment REDRIVE_RETENTION): ")
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_mistake_in_a_query_is_pointed_at(tmp_path: Path) -> None:
    (tmp_path / "redrive.toml").write_text('[[retention]]\nact = "purge"\nquery = "source:orders status:done"\n')
    with pytest.raises(BadQuery) as raised:
        load(environ={}, folder=tmp_path)
    assert (raised.value.text, raised.value.column, raised.value.width) == ("source:orders status:done", 22, 4)
    assert str(raised.value).count("column") == 1


def test_a_table_that_is_none_of_rules_is_refused(tmp_path: Path) -> None:
    (tmp_path / "redrive.toml").write_text("retention = 30\n")
    with pytest.raises(BadSettings, match=r"retention \(redrive.toml\): it must be a list of rules such as"):
        load(environ={}, folder=tmp_path)


def test_ages_count_from_each_run() -> None:
    async def story() -> None:
        async with house() as dlq:
            await dlq.letters.put([letter("a", at=NOW - 29 * DAY), letter("b", at=NOW - 31 * DAY)])
            (first,) = await dlq.retain(rules("purge: age>30d"), now=NOW)
            assert (first.swept.done, await names(dlq)) == (1, {"a"})
            (second,) = await dlq.retain(rules("purge: age>30d"), now=NOW + 2 * DAY)
            assert (second.swept.done, await names(dlq)) == (1, set())

    tell(story())


def test_nothing_expires_unless_a_rule_says_so() -> None:
    async def story() -> None:
        async with house() as dlq:
            await dlq.letters.put([letter("over", expires_at=NOW - DAY), letter("later", expires_at=NOW + DAY), letter("never")])
            assert await dlq.retain(now=NOW) == []
            assert await dlq.retain([], now=NOW) == []
            await dlq.retain(rules("purge: status:completed"), now=NOW)
            assert await dlq.count() == 3
            (one,) = await dlq.retain(rules("purge: expires_at<0s"), now=NOW)
            assert (one.swept.done, await names(dlq)) == (1, {"later", "never"})

    tell(story())


def test_rules_run_in_their_order_and_archive_puts_away() -> None:
    async def story() -> None:
        async with house(retention=retention_rules("archive: status:exhausted\npurge: status:archived source:mails")) as dlq:
            await dlq.letters.put(
                [letter("1", status=Status.EXHAUSTED), letter("2", source="mails", status=Status.EXHAUSTED), letter("3")]
            )
            assert [one.swept.done for one in await dlq.retain()] == [2, 1]
            found = {one.source_id: one.status async for one in dlq.find()}
            assert found == {"1": Status.ARCHIVED, "3": Status.PENDING}

    tell(story())


def test_every_removal_is_counted_by_rule_logged_and_in_the_audit(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        meter = Counted()
        async with house(None, meter) as dlq:
            await dlq.letters.put([letter(str(number), at=NOW - 2 * DAY) for number in range(70)])
            rule = RetentionRule(query="age>1d", act=RetentionAct.PURGE, name="yesterday")
            await dlq.retain([rule, "archive: all"], now=NOW, by="ann")
            assert meter.seen == {("yesterday", "purge"): 70}
            done, began = await dlq.desk.audit()
            assert (done.by, done.act, done.detail) == ("ann, retention rule yesterday", "purge", "done: 70 removed")
            assert began.detail == "began: 70 matched"

    with caplog.at_level(logging.INFO, "redrive.retention"):
        tell(story())
    assert [record.getMessage() for record in caplog.records] == ["retention rule yesterday: 70 matched, 70 removed"]


def test_letters_that_somebody_holds_are_left_and_not_announced_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with house() as dlq:
            await dlq.letters.put([letter("held")])
            await dlq.letters.claim(Claim(owner="ann", lease=DAY, limit=1, what=dlq.within()))
            await dlq.retain(rules("purge: all"))
            assert (await dlq.count(), await dlq.desk.audit()) == (1, [])

    with caplog.at_level(logging.INFO, "redrive.retention"):
        tell(story())
    assert caplog.records == []


def test_what_was_removed_before_an_outage_is_counted() -> None:
    async def story() -> None:
        meter, faulty = Counted(), Faulty(MemoryLetters())
        async with house(faulty, meter) as dlq:
            await dlq.letters.put([letter(str(number)) for number in range(100)])

            async def pass_by() -> None:
                return None

            faulty.lay("purge", Moment.BEFORE, pass_by)
            faulty.lay("purge", Moment.BEFORE, raising(StoreUnavailable("gone")))
            with pytest.raises(StoreUnavailable):
                await dlq.retain(rules("purge: all"))
            assert sum(meter.seen.values()) == 100 - await dlq.count() > 0

    tell(story())


def test_a_rule_that_the_store_cannot_answer_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        faulty = Faulty(MemoryLetters())
        async with house(faulty) as dlq:
            await dlq.letters.put([letter("1")])
            faulty.lay("find", Moment.BEFORE, raising(Unsupported("no words here")))
            bad, good = await dlq.retain(rules("purge: body.x:1", "purge: all"))
            assert (bad.problem, good.swept.done) == ("no words here", 1)

    tell(story())
    assert "retention rule purge: body.x:1 could not be run: no words here" in caplog.text


def test_a_rule_is_for_its_own_namespace() -> None:
    async def story() -> None:
        async with house() as dlq:
            await dlq.letters.put([letter("ours"), letter("theirs", namespace="theirs")])
            await dlq.retain(rules("purge: all"))
            assert await dlq.letters.count() == 1

    tell(story())


def test_blocking_code_retains_too(tmp_path: Path) -> None:
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        dlq.hold([letter("1"), letter("2", source="mails")])
        (one,) = dlq.retain(rules("purge: source:mails"))
        assert (one.swept.done, dlq.count()) == (1, 1)
