"""A target of a letter's own: written down and put back as content is, and where the letter goes instead of its source."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import redrive
from redrive import EVERYTHING, Amendment, BadSettings, Message, Pace, Redaction
from redrive.backends.memory import MemoryTransport
from redrive.backends.memory.desk import MemoryDesk
from redrive.engine.address import Addresses, To
from redrive.engine.alter import UNDO, by_function, by_hand
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.foresee import Repaired
from redrive.model.amendment import amended
from redrive.model.arrival import arrive
from redrive.model.difference import difference
from redrive.model.letter import Letter, Original, original_of
from redrive.model.operation import Entry
from redrive.ports import LetterStore
from redrive.ports.transport import Transport
from redrive.testing import START, attempt, letter
from redrive.wiring import transport
from tests.contract.backends import memory_letters, sqlite_letters
from tests.unit.shell import BAD, Shell
from tests.unit.test_processor import Handler, due, seen, tell
from tests.unit.waiting import until

LOGIN = "must hold no login and no key: name it under [targets] in the settings, and give that name"
HOMES = {"orders": "py:json:loads", "mails": "http://bob:hunter2@127.0.0.1:9/mails", "*": "py:json:dumps"}


def target_of(one: Letter, to: To | Mapping[str, To] = "source", homes: Mapping[str, str] = HOMES) -> str:
    """Where it goes, or why it goes nowhere."""
    addresses = Addresses(to, transport, homes)
    found: Transport | None = addresses.of(one)
    return addresses.why_not(one) if found is None else found.name


def test_an_amendment_gives_a_target_and_the_one_before_it_is_remembered() -> None:
    before = letter(target="py:first:one")
    changed, _ = amended(before, Amendment(id=before.id, target="py:second:one"), START)
    again, _ = amended(changed, Amendment(id=before.id, target=""), START)
    assert (changed.target, again.target) == ("py:second:one", "")
    assert changed.original == again.original == original_of(before)
    assert original_of(before).target == "py:first:one"


def test_a_letter_that_is_reopened_keeps_its_target() -> None:
    known = letter(target="py:shop:other", status=redrive.Status.COMPLETED)
    again, _ = arrive(known, letter(history=(attempt("2"),)), START)
    assert (again.generation, again.target) == (2, "py:shop:other")


def test_the_difference_names_the_source_where_there_is_no_target() -> None:
    lines = ["--- target", "+++ target", "@@ -1 +1 @@", "-source", "+py:shop:other"]
    assert difference(Original(), Original(target="py:shop:other")) == lines


def test_a_letter_with_a_target_of_its_own_goes_there_and_the_others_to_their_source() -> None:
    assert target_of(letter()) == "py:json:loads"
    assert target_of(letter(target="py:json:dump")) == "py:json:dump"
    assert target_of(letter(kind="command", target="py:json:dump")) == "py:json:dump"
    assert target_of(letter(target="py:json:dump"), homes={}) == "py:json:dump"


def test_what_is_said_of_an_operation_is_stronger() -> None:
    one = letter(target="py:json:dump")
    assert target_of(one, "py:json:dumps") == "py:json:dumps"
    assert target_of(one, "orders=py:json:dumps") == "py:json:dumps"
    assert target_of(one, {"mails": "py:json:dumps"}) == "no target is given for source 'orders'"


def test_a_target_may_be_that_of_another_source_whose_login_stays_in_the_settings() -> None:
    assert target_of(letter(target="mails")) == "http://***@127.0.0.1:9/mails"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("smtp:x", "no target answers to 'smtp:'; known are py:, command:"),
        ("py:no_such_module:f", "cannot import 'no_such_module'"),
        ("py:json:nothing", "'json' has no 'nothing'"),
        ("mail", "'mail' is no target: give a URL such as py:shop:handle"),
        ("*", "'*' is no target"),
        ("http://bob:hunter2@127.0.0.1/x", LOGIN),
        ("https://key@127.0.0.1/x", LOGIN),
        ("https://127.0.0.1/x?api_key=hunter2", LOGIN),
        ("http://bob:hun/ter2@127.0.0.1/x", "cannot be read"),
        ("http://***@127.0.0.1/x", "login was not kept"),
        ("https://127.0.0.1/[redacted:card]", "it was redacted"),
    ],
)
def test_one_that_leads_nowhere_is_told_of_its_letter_and_no_secret_is_repeated(target: str, why: str) -> None:
    told = target_of(letter(target=target))
    assert told.startswith("its own target leads nowhere: ")
    assert why in told
    assert "hunter2" not in told


def test_a_module_that_ends_its_process_ends_only_its_own_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ends_it_all.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    assert "cannot import 'ends_it_all': SystemExit: 3" in target_of(letter(target="py:ends_it_all:f"))


def test_targets_without_end_are_not_all_kept() -> None:
    made: list[str] = []

    def resolve(url: str) -> Transport:
        made.append(url)
        return MemoryTransport()

    addresses = Addresses("source", resolve, {})
    for number in (0, 0, *range(1, 500), 499, 0):
        assert addresses.of(letter(target=f"memory:{number}")) is not None
    assert len(made) == 501, "each once, and the first again when it was let go"


class Broken(MemoryTransport):
    async def send(self, messages: Sequence[Message]) -> Any:
        raise OSError("the route is gone")


def test_one_that_cannot_be_sent_to_does_not_stop_the_operation(store: LetterStore) -> None:
    good = MemoryTransport()

    async def story() -> None:
        by_name = {"test:broken": Broken("test:broken"), "test:good": good}
        async with DeadLetters(store, MemoryDesk(), resolve=by_name.__getitem__, targets={"orders": "test:good"}) as dlq:
            await store.put([letter("1"), letter("2", target="test:broken"), letter("3", target="nowhere"), letter("4")])
            plan = await dlq.operations.plan("source", query=EVERYTHING)
            assert plan.own_targets == {"test:broken": 1}
            assert plan.targets == {"orders": good.name}
            assert [why.partition(":")[0] for why in plan.refused] == ["its own target leads nowhere"]
            report = await dlq.operations.run(plan.operation.id)
            assert (report.stopped, report.entries, report.skipped) == ("", {Entry.SENT: 2, Entry.FAILED: 1}, 1)
            rows = {row.letter: row.detail async for row in dlq.operations.ledger(plan.operation.id)}
            assert rows[letter("2").id] == "the route is gone"
            assert rows[letter("3").id].startswith("its own target leads nowhere: 'nowhere' is no target")
            assert (await dlq.get(letter("2").id)).attempts == letter("2").attempts, "nobody was asked"
            assert {message.id for message in await good.peek()} == {"1", "4"}

    asyncio.run(story())


@pytest.fixture(params=[memory_letters, sqlite_letters], ids=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LetterStore:
    opened: LetterStore = request.param(tmp_path)
    return opened


def house(store: LetterStore, redaction: Redaction | None = None) -> DeadLetters:
    return DeadLetters(store, MemoryDesk(), redaction=redaction, resolve=transport, targets=HOMES)


async def repaired(dlq: DeadLetters, mending: Any) -> Repaired:
    return await dlq.repairs.carry_out(await dlq.repairs.plan(mending, query=EVERYTHING), by="ann")


def test_a_repair_gives_a_target_and_undo_puts_it_back_with_the_rest(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            before = letter(body=b"old", target="mails")
            await store.put([before])
            assert (await repaired(dlq, by_hand(target="py:json:loads"))).done == 1
            assert (await repaired(dlq, by_hand(target="py:json:loads"))).unchanged == 1
            assert (await repaired(dlq, by_hand(body=b"new", target="source"))).done == 1
            after = await dlq.get(before.id)
            assert (after.target, after.body, after.original) == ("", b"new", original_of(before))
            assert (await repaired(dlq, UNDO)).done == 1
            back = await dlq.get(before.id)
            assert replace(back, original=None, updated_at=before.updated_at) == before
            assert (await repaired(dlq, UNDO)).unchanged == 1
            assert {row.act for row in await dlq.desk.audit()} == {"edit", "undo"}

    asyncio.run(story())


def test_a_function_gives_each_letter_a_target_of_its_own(store: LetterStore) -> None:
    def routed(body: bytes, letter: Letter) -> Amendment:
        targets: Any = {"1": "py:json:loads", "2": "smtp:x", "3": "http://bob:hunter2@host/", "4": 5, "5": "source"}
        return Amendment(id=letter.id, target=targets[letter.source_id])

    async def story() -> None:
        async with house(store) as dlq:
            await store.put([letter(str(number)) for number in range(1, 6)])
            became = await repaired(dlq, by_function(routed))
            assert (became.done, became.unchanged) == (1, 1)
            told = " | ".join(one.reason for one in became.refusals)
            for why in ("no target answers to 'smtp:'", LOGIN, "the new target must be a text, and is a int"):
                assert why in told
            assert "hunter2" not in told
            assert (await dlq.get(letter("1").id)).target == "py:json:loads"
            assert (await repaired(dlq, by_function(routed))).already == 1

    asyncio.run(story())


def test_a_wrong_target_for_all_is_refused_before_any_letter_is_looked_at(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            await store.put([letter()])
            for wrong, why in (("http://bob:hunter2@host/", LOGIN), ("smtp:x", "no target answers to 'smtp:'")):
                for doing in (
                    dlq.repairs.plan(by_hand(target=wrong), query=EVERYTHING),
                    dlq.amend(Amendment(id=letter().id, target=wrong)),
                ):
                    with pytest.raises(BadSettings) as refused:
                        await doing
                    assert why in str(refused.value)
            assert (await dlq.amend(Amendment(id=letter().id, target="mails"))).target == "mails"
            assert (await dlq.amend(Amendment(id=letter().id, target="source"))).target == ""

    asyncio.run(story())


def test_the_rules_for_redaction_have_a_say_in_it(store: LetterStore) -> None:
    url = "http://127.0.0.1/of/bob@example.com"

    async def story() -> None:
        async with house(store, Redaction(presets=("emails",))) as dlq:
            await dlq.hold([letter(target=url)])
            held = await dlq.get(letter().id)
            assert "bob@example.com" not in held.target
            assert held.redacted == ("target",)
            assert "it was redacted" in target_of(held)
            (refusal,) = (await dlq.repairs.plan(by_hand(target=url), query=EVERYTHING)).foreseen.refusals
            assert refusal.reason.startswith("the new target would be redacted")
            assert (await dlq.amend(Amendment(id=held.id, target=""))).redacted == ()
            (refusal,) = (await dlq.repairs.plan(UNDO, query=EVERYTHING)).foreseen.refusals
            assert refusal.reason.startswith("its target was redacted when it came, and mended since")

    asyncio.run(story())


def test_the_processor_leaves_it_to_whoever_sends_it_there(store: LetterStore) -> None:
    async def story() -> None:
        async with house(store) as dlq:
            elsewhere, other = due("A", target="py:json:loads"), due("B")
            await store.put([elsewhere, other])
            handler = Handler()
            async with dlq.processor({"orders": handler.work}, pace=Pace(interval=timedelta(hours=1))):

                async def waits() -> bool:
                    return bool((await seen(dlq, elsewhere)).retry.waits_for and handler.calls)

                await until(waits)
                assert handler.calls == ["B"]
                waited_for = (await seen(dlq, elsewhere)).retry.waits_for
                assert waited_for == "somebody who sends it to py:json:loads, its own target"

    tell(story())


SHOP = """
def _note(name, order):
    with open("seen.txt", "a") as file:
        print(name, order["id"], file=file)
def orders(order):
    _note("orders", order)
def other(order):
    _note("other", order)
"""
TARGETS = '[targets]\norders = "py:shop:orders"\n"spare" = "py:shop:other"\n'


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    one = Shell(tmp_path)
    one.module("shop", SHOP)
    (tmp_path / "redrive.toml").write_text(TARGETS)
    with one.store() as dlq:
        for number in range(4):
            dlq.capture({"id": number}, BAD, source="orders", id=str(number))
    return one


def sent(shell: Shell) -> list[str]:
    return sorted((shell.folder / "seen.txt").read_text().splitlines())


def test_letters_edited_to_another_target_are_delivered_there_and_the_others_to_their_source(shell: Shell) -> None:
    first, second, *_ = [one["id"] for one in shell.letters()]
    out = shell("edit", first, "--target", "py:shop:other").out
    assert out.splitlines()[2:] == [
        f"{first[:8]}  orders / 0",
        "  --- target",
        "  +++ target",
        "  @@ -1 +1 @@",
        "  -source",
        "  +py:shop:other",
        "Changed 1 letter.",
    ]
    shell("edit", second, "--target", "spare")
    assert "goes to         py:shop:other, its own target" in shell("show", first).out
    assert "goes to" not in shell("show", shell.letters()[2]["id"]).out
    assert shell("show", second, "--json").json["letter"]["target"] == "spare"
    plan = shell("replay", "all", "--dry-run").out
    assert "orders        4  py:shop:orders\n2 letters go to py:shop:other, their own target\n" in plan
    assert shell("replay", first).out.splitlines()[2:4] == [
        "orders        1  py:shop:other",
        "1 letter goes to py:shop:other, its own target",
    ]
    assert sent(shell) == ["other 0"]
    assert shell("replay", "all", "--yes").out.endswith("\n3 worked\n")
    assert sent(shell) == ["orders 2", "orders 3", "other 0", "other 1"]


def test_many_get_a_target_and_lose_it_again(shell: Shell) -> None:
    def targets() -> list[str]:
        return [one["target"] for one in shell.letters()]

    assert shell("edit", "source:orders", "--target", "py:shop:other", "--yes").out.endswith("\nChanged 4 letters.\n")
    assert targets() == ["py:shop:other"] * 4
    first, second, third, _ = [one["id"] for one in shell.letters()]
    shell("edit", first, "--target", "")
    shell("edit", second, "--target", "source")
    assert targets() == ["", "", "py:shop:other", "py:shop:other"]
    assert "  -py:shop:other\n  +source\n" in shell("edit", third, "--undo").out
    assert shell("edit", "all", "--undo", "--yes").out.endswith("\nPut back 1 letter.\n")
    assert targets() == [""] * 4
    shell("edit", first, "--target", "py:shop:other")
    shell("replay", first, "--to", "py:shop:orders")
    assert sent(shell) == ["orders 0"]


def test_a_letter_whose_target_is_gone_does_not_keep_the_others(shell: Shell) -> None:
    first, *_ = [one["id"] for one in shell.letters()]
    shell("edit", first, "--target", "py:shop:other")
    shell.module("shop", SHOP.replace("def other", "def another"))
    out = shell("replay", "all", "--yes", status=1).out
    why = "its own target leads nowhere: 'shop' has no 'other'"
    assert f"1 letter will not be sent: {why}\n" in out
    assert out.endswith(f"3 worked\n1 skipped\n  {first[:8]}  {why}\n")
    assert sent(shell) == ["orders 1", "orders 2", "orders 3"]


def test_export_and_import_keep_it(shell: Shell, tmp_path: Path) -> None:
    first, *_ = [one["id"] for one in shell.letters()]
    shell("edit", first, "--target", "spare")
    for form in ([], ["--format", "cloudevents"]):
        lines = shell("export", "all", *form).raw
        store = f"sqlite:{tmp_path}/{len(form)}.db"
        shell("import", "-", "--store", store, stdin=lines)
        known = shell("show", first, "--json", "--store", store).json["letter"]
        assert (known["target"], known["original"]["target"]) == ("spare", "")


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("smtp:x", "no target answers to 'smtp:'; known are py:, command:"),
        ("pyy:shop:orders", "did you mean py:?"),
        ("py:shop:nothing", "'shop' has no 'nothing'"),
        ("stock", "'stock' is no target: give a URL such as py:shop:handle"),
        ("https://bob:hunter2@shop.example.com/", LOGIN),
    ],
)
def test_a_wrong_target_gets_one_sentence(shell: Shell, target: str, sentence: str) -> None:
    refused = shell.refused("edit", "all", "--target", target)
    assert sentence in refused
    assert "hunter2" not in refused
    assert {one["target"] for one in shell.letters()} == {""}
