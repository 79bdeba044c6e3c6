"""`redrive edit`: a look at the differences first, one letter in an editor or many by a patch, and the way back."""

from __future__ import annotations

import json
import re
import signal
import stat
from datetime import timedelta
from pathlib import Path

import pytest

from redrive import Claim, Field, Message, Order, Status
from redrive.testing import START, letter
from tests.unit.shell import BAD, PATIENCE, Shell, eventually, seen_on_a_terminal

EUROS = '[{"op": "replace", "path": "/currency", "value": "EUR"}]'
HOUR = timedelta(hours=1)

SHOP = """
import dataclasses
def euros(order):
    order["currency"] = "EUR"
def fail(order):
    raise KeyError("customer")
def headers(order, letter):
    from redrive import Amendment
    return Amendment(id=letter.id, headers=(("trace", b"new"),))
@dataclasses.dataclass
class Order:
    id: int
    currency: str
number = 5
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    one = Shell(tmp_path)
    one.module("shop", SHOP)
    return one


def filled(shell: Shell, number: int = 4) -> list[str]:
    """Put orders in a currency that nobody knows into the store; give their ids."""
    with shell.store() as dlq:
        for one in range(number):
            body = json.dumps({"id": one, "currency": "ATS"}).encode()
            message = Message(body=body, content_type="application/json", id=str(one), headers=(("trace", b"old"),))
            dlq.capture(message, BAD, source="orders")
    return [one["id"] for one in shell.letters()]


def bodies(shell: Shell) -> list[str]:
    return [one["body"] for one in shell.letters()]


def editor(shell: Shell, script: str) -> str:
    """An editor that does this to the file it is given, as $1."""
    program = shell.folder / "editor.sh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def test_a_patch_is_shown_on_a_sample_and_then_done(shell: Shell) -> None:
    first, *_ = filled(shell)
    (shell.folder / "euros.json").write_text(EUROS)
    out = shell("edit", "source:orders", "--patch", "euros.json", "--sample", "1", "--dry-run").out
    assert out.splitlines() == [
        "4 letters match: 4 would be changed",
        "",
        f"{first[:8]}  orders / 0",
        "  --- body",
        "  +++ body",
        "  @@ -1,4 +1,4 @@",
        "   {",
        '     "id": 0,',
        '  -  "currency": "ATS"',
        '  +  "currency": "EUR"',
        "   }",
        "and 3 letters more",
        "Would have changed 4 letters.",
    ]
    assert bodies(shell)[0] == '{"id": 0, "currency": "ATS"}'
    assert shell("edit", "source:orders", "--patch", "euros.json", "--yes").out.endswith("\nChanged 4 letters.\n")
    assert bodies(shell) == [f'{{"id":{one},"currency":"EUR"}}' for one in range(4)]
    again = shell("edit", "source:orders", "--patch-inline", EUROS, "--yes").out
    assert again == "4 letters match: 0 would be changed, 4 went through this very repair before\nNothing was changed.\n"


def test_undo_puts_back_what_came_and_keeps_it(shell: Shell) -> None:
    filled(shell)
    before = [(one["body"], one["headers"], one["content_type"], one["metadata"]) for one in shell.letters()]
    shell("edit", "all", "--patch-inline", EUROS, "--yes")
    shell("edit", "all", "--header", "trace=new", "--header", "more=1", "--content-type", "text/x-order", "--yes")
    one = shell.letters()[0]
    assert [header["name"] for header in one["headers"]] == ["trace", "more"]
    assert one["content_type"] == "text/x-order"
    assert shell("edit", "all", "--undo", "--yes").out.endswith("\nPut back 4 letters.\n")
    assert [(one["body"], one["headers"], one["content_type"], one["metadata"]) for one in shell.letters()] == before
    assert {one["original"]["body"] for one in shell.letters()} == {one[0] for one in before}
    assert shell("edit", "all", "--undo", "--yes").out.endswith("4 would stay as they are\nNothing was changed.\n")
    with shell.store() as dlq:
        assert [row.act for row in dlq.desk.audit()] == ["undo"] * 2 + ["edit"] * 4


def test_letters_that_cannot_be_repaired_are_told_with_an_example(shell: Shell) -> None:
    ids = filled(shell)
    with shell.store() as dlq:
        dlq.capture(Message(body=b"hello", id="text"), BAD, source="orders")
        dlq.redrive(lambda order: None, ids=[dlq.get(ids[0]).id])
        dlq.letters.claim(Claim(owner="ann", lease=HOUR, limit=1, what=(dlq.get(ids[1]).id,)))
    out = shell("edit", "source:orders", "--patch-inline", EUROS, "--yes", "--sample", "0", status=1).out.splitlines()
    assert out[0] == "5 letters match: 2 would be changed"
    assert set(out[1:4]) >= {
        f"1 letter is left alone: it is completed ({ids[0][:8]})",
        f"1 letter is left alone: somebody holds it ({ids[1][:8]})",
    }
    assert any("its body is not JSON" in line for line in out)
    assert out[-1] == "Changed 2 letters."
    assert "it is completed" in shell("edit", ids[0], "--patch-inline", EUROS, status=1).out


def test_functions_change_values_and_types_check_them(shell: Shell) -> None:
    ids = filled(shell)
    assert "Changed 1 letter." in shell("edit", ids[0], "--function", "shop:euros", "--type", "shop:Order").out
    assert "Changed 1 letter." in shell("edit", ids[0], "--function", "shop:headers").out
    assert shell.letters()[0]["headers"] == [{"name": "trace", "value": "new"}]
    out = shell("edit", "all", "--function", "shop:fail", "--yes", status=1).out
    assert f"4 letters are left alone: shop:fail raised KeyError: 'customer' ({ids[0][:8]})" in out
    patch = '[{"op": "remove", "path": "/id"}]'
    out = shell("edit", "all", "--patch-inline", patch, "--type", "shop:Order", "--yes", status=1).out
    assert "the new body is no shop:Order: Object missing required field `id`" in out
    assert bodies(shell)[1] == '{"id": 1, "currency": "ATS"}'


def test_in_json_it_is_one_object(shell: Shell) -> None:
    first, *_ = filled(shell)
    answer = shell("edit", "all", "--patch-inline", EUROS, "--json", "--dry-run", "--sample", "1").json
    assert (answer["act"], answer["dry_run"], answer["matched"], answer["to_change"], answer["done"]) == ("edit", True, 4, 4, 0)
    (sample,) = answer["samples"]
    assert (sample["id"], '+  "currency": "EUR"' in sample["difference"]) == (first, True)
    answer = shell("edit", "all", "--patch-inline", EUROS, "--json", "--yes").json
    assert (answer["done"], answer["refused"]) == (4, [])
    assert shell("edit", "all", "--undo", "--json", "--yes").json["done"] == 4


def test_it_asks_before_it_changes_many(shell: Shell) -> None:
    ids = filled(shell)
    sentence = "This would change 4 letters. Say --yes to do it without being asked."
    assert shell.refused("edit", "all", "--patch-inline", EUROS) == sentence
    assert shell.refused("edit", *ids, "--patch-inline", EUROS, "--json") == sentence
    seen, status = seen_on_a_terminal(shell, "edit", "all", "--patch-inline", EUROS, typed=b"n\n")
    assert ("Change 4 letters?" in seen, "Stopped." in seen, status) == (True, True, 130)
    assert bodies(shell)[0] == '{"id": 0, "currency": "ATS"}'
    seen, status = seen_on_a_terminal(shell, "edit", "all", "--patch-inline", EUROS, typed=b"y\n")
    assert re.search(r"\x1b\[32m +\+  \"currency\": \"EUR\"", seen), seen
    assert re.search(r"\x1b\[31m +-  \"currency\": \"ATS\"", seen), seen
    assert ("Changed 4 letters." in seen, status) == (True, 0)


def test_one_letter_is_opened_in_an_editor_as_pretty_json(shell: Shell) -> None:
    first, *_ = filled(shell)
    script = editor(shell, 'cp "$1" seen.txt; echo "$1" > name.txt; sed -i s/ATS/CHF/ "$1"')
    out = shell("edit", first[:8], EDITOR=script).out
    assert out.startswith("1 letter matches: 1 would be changed\n")
    assert out.endswith("\nChanged 1 letter.\n")
    assert (shell.folder / "seen.txt").read_text() == '{\n  "id": 0,\n  "currency": "ATS"\n}\n'
    assert (shell.folder / "name.txt").read_text().strip().endswith(".json")
    assert bodies(shell)[0] == '{"id":0,"currency":"CHF"}'
    assert (
        "the new body is no shop:Order"
        in shell("edit", first, "--type", "shop:Order", status=1, EDITOR=editor(shell, 'echo "{}" > "$1"')).out
    )


def test_a_text_is_opened_as_it_is(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.capture("hello", BAD, source="mails")
    (one,) = shell.letters()
    shell("edit", one["id"], EDITOR=editor(shell, 'echo bye > "$1"'))
    assert bodies(shell) == ["bye"], "the end of a line that editors add is no part of it"


@pytest.mark.parametrize("script", ["exit 0", 'touch "$1"', 'echo \'{"currency": "ATS", "id": 0}\' | cat > /dev/null'])
def test_an_editor_that_changes_nothing_changes_nothing(script: str, shell: Shell) -> None:
    first, *_ = filled(shell)
    assert shell("edit", first, EDITOR=editor(shell, script)).out == "Nothing was changed.\n"
    assert shell.letters()[0]["original"] is None
    assert shell("edit", first, "--json", EDITOR=editor(shell, script)).json["done"] == 0


def test_an_editor_that_fails_gets_one_sentence(shell: Shell) -> None:
    first, *_ = filled(shell)
    failing = editor(shell, "exit 3")
    assert shell.refused("edit", first, status=1, EDITOR=failing) == f"{failing}: Editing failed; nothing was changed"
    assert "nothing was changed" in shell.refused("edit", first, status=1, EDITOR="/no/such/editor")
    assert "No closing quotation" in shell.refused("edit", first, status=1, EDITOR="vi 'x")
    broken = shell.refused("edit", first, EDITOR=editor(shell, 'echo "{" > "$1"'))
    assert broken.startswith("the new body is not JSON: ")
    assert broken.endswith("; nothing was changed")
    assert shell.refused("edit", first).startswith("There is no terminal for an editor")
    assert shell.letters()[0]["original"] is None


def test_what_must_not_be_seen_is_not_opened_nor_shown(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.capture({"mail": "ann@example.org"}, BAD, source="mails", headers={"Authorization": "secret"})
    (one,) = shell.letters()
    settings = {"REDRIVE_REDACT": "emails"}
    refused = shell.refused("edit", one["id"], EDITOR=editor(shell, 'cp "$1" seen.txt'), **settings)
    assert "has what the rules redact, so no editor may show it" in refused
    assert not (shell.folder / "seen.txt").exists()
    out = shell("edit", one["id"], "--header", "Authorization=other").out
    assert "hidden by the rules" in out
    assert "secret" not in out
    assert "other" not in out
    patch = '[{"op": "add", "path": "/cc", "value": "bob@example.org"}]'
    out = shell("edit", one["id"], "--patch-inline", patch, status=1, **settings).out
    assert "would be redacted, and then could not be sent" in out


def test_a_letter_that_is_closed_or_no_text_is_not_opened(shell: Shell) -> None:
    with shell.store() as dlq:
        dlq.hold([letter("done", status=Status.COMPLETED), letter("raw", at=START + HOUR, body=b"\0\xff")])
    done, raw = [one["id"] for one in shell.letters()]
    assert f"letter {done} cannot be edited: it is completed" in shell.refused("edit", done, status=1, EDITOR="true")
    assert "is no text; give a new one with --body FILE" in shell.refused("edit", raw, EDITOR="true")
    assert shell("edit", raw, "--body", "-", "--content-type", "text/plain", stdin=b"new").out.endswith("Changed 1 letter.\n")
    assert bodies(shell)[1] == "new"


MISTAKES: list[tuple[list[str], str]] = [
    ([], "Say which letters: ids, a question such as 'source:orders error:UnknownCurrency', or all."),
    (["all"], "Say what to change: --patch, --function, --header, --body, --target or --undo; or give one id to edit."),
    (["all", "--patch-inline", "[{"], "the patch is not JSON: "),
    (["all", "--patch-inline", ""], "the patch is not JSON: "),
    (["all", "--patch-inline", '[{"op": "set", "path": "/a"}]'], "there is no op 'set'"),
    (["all", "--patch-inline", '[{"op": "remove", "path": "a"}]'], "path 'a' must begin with /"),
    (["all", "--patch", "no.json"], "No such file or directory"),
    (["all", "--patch-inline", "[]", "--undo"], "Give one of --patch-inline and --undo."),
    (
        ["all", "--function", "shop:euros", "--header", "a=b"],
        "Give one of --function and --body, --header, --content-type and --target.",
    ),
    (["all", "--undo", "--type", "shop:Order"], "What is put back is not checked; leave --schema and --type out."),
    (["all", "--function", ""], "'' names nothing; write module:name"),
    (["all", "--function", "shopp:euros"], "cannot import 'shopp': No module named 'shopp'"),
    (["all", "--function", "shop:number"], "'shop:number' is a int, and cannot be called"),
    (["all", "--function", "shop:nothing"], "'shop' has no 'nothing'"),
    (["all", "--header", "no-equals"], "'no-equals' is not a header; write NAME=VALUE"),
    (["all", "--function", "shop:euros", "--type", "shop:fail"], "'shop:fail' is no type to check with"),
    (["all", "--function", "shop:euros", "--schema", "broken.json"], "the JSON Schema is not JSON: "),
    (["stats:x", "--undo"], "there is no field 'stats'"),
]


@pytest.mark.parametrize(("args", "sentence"), MISTAKES, ids=[" ".join(args) for args, _ in MISTAKES])
def test_a_mistake_gets_one_clear_sentence(args: list[str], sentence: str, shell: Shell) -> None:
    (shell.folder / "broken.json").write_text("{")
    done = shell("edit", *args, status=2)
    assert sentence in done.err
    assert done.out == ""


def test_cut_short_in_the_middle_it_goes_on_when_it_is_given_again(shell: Shell) -> None:
    many = 10_000
    append = '[{"op": "add", "path": "/notes/-", "value": 1}]'
    with shell.store() as dlq:
        dlq.hold(
            [
                letter(str(one), at=START + timedelta(seconds=one), body=b'{"notes":[]}', content_type="application/json")
                for one in range(many)
            ]
        )
    process = shell.start("edit", "all", "--patch-inline", append, "--yes")
    with shell.store() as dlq:
        eventually(lambda: dlq.letters.find(order=Order.OLDEST, limit=40).letters[-1].original or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "the same command goes on from there." in err
    reached = changed(shell)
    assert 40 <= reached < many
    again = shell("edit", "all", "--patch-inline", append, "--yes", "--json").json
    assert (again["matched"], again["done"], again["already"]) == (many, many - reached, reached)
    assert set(bodies(shell)) == {'{"notes":[1]}'}


def changed(shell: Shell) -> int:
    with shell.store() as dlq:
        return sum(one.original is not None for one in dlq.find(page=1000))


def test_nothing_is_sent_by_an_edit(shell: Shell) -> None:
    filled(shell)
    shell("edit", "all", "--patch-inline", EUROS, "--yes")
    with shell.store() as dlq:
        assert dlq.letters.tally(Field.STATUS) == {"pending": 4}
        assert {one.redrive.count for one in dlq.find()} == {0}
        assert not dlq.redrive(lambda order: None, source="orders").stopped
    assert shell("edit", "all", "--undo", "--yes", status=1).out.startswith("4 letters match: 0 would be put back\n")
