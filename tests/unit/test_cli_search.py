"""`redrive search` and `--where`: questions from the shell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import json
from msgspec.structs import replace

from redrive import blocking, wiring
from redrive.backends.memory.letters import MemoryLetters
from redrive.engine.dead_letters import DeadLetters
from redrive.model.census import Backlog
from redrive.model.errors import StoreNotWritable
from redrive.serve.cli import options
from redrive.serve.cli.search import command
from redrive.testing import failure, letter
from tests.unit.shell import Shell


@pytest.fixture
def filled(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    with shell.store() as dlq:
        dlq.hold(
            [
                letter(
                    "slow",
                    failure=failure("builtins.TimeoutError", "gateway did not answer"),
                    tags=("eu",),
                    body=b'{"total": 250}',
                ),
                letter(
                    "odd",
                    failure=failure("builtins.KeyError", "'address'", traceback='File "client.py", line 1'),
                    body=b'{"total": 50, "customer": "Acme Corp."}',
                ),
            ]
        )
    return shell


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["error:TimeoutError"], ["slow"]),
        (["gateway", "tag:eu"], ["slow"]),
        (["body.total<100 or none"], ["odd"]),
        (["not", "tag:eu"], ["odd"]),
        (["age>1d", "status:pending"], ["odd", "slow"]),
        (["age<1d"], []),
        (["acme"], []),
        (['body~"acme corp"'], ["odd"]),
        (["body~total"], ["odd", "slow"]),
        (["traceback~client.py"], ["odd"]),
        (["anywhere~acme", "or", "anywhere~gateway"], ["odd", "slow"]),
        (["message~address"], ["odd"]),
        (["not anywhere~acme"], ["slow"]),
    ],
)
def test_letters_are_found_by_words_and_conditions(filled: Shell, words: list[str], expected: list[str]) -> None:
    found = filled("search", *words, "--json").json["letters"]
    assert sorted(one["source_id"] for one in found) == expected


def test_a_question_joins_the_other_filters(filled: Shell) -> None:
    found = filled("ls", "--tag", "eu", "--where", "body.total>100", "--json").json["letters"]
    assert [one["source_id"] for one in found] == ["slow"]
    assert "No letters match" in filled("ls", "--tag", "eu", "--where", "body.total<100").out


def test_a_mistake_is_pointed_at_under_the_question(filled: Shell) -> None:
    said = filled("search", "status:pendin tag:eu", status=2).err
    assert said == (
        "Error: status cannot be 'pendin'; did you mean pending? (column 8)\n  status:pendin tag:eu\n         ^^^^^^\n"
    )


def test_a_question_without_words_is_a_mistake(filled: Shell) -> None:
    assert "QUERY" in filled("search", status=2).err


def test_what_was_captured_a_moment_ago_is_found_in_its_body(filled: Shell) -> None:
    for number in range(5):
        filled("capture", "--source", "s", stdin=f"invoice nr{number}".encode())
        found = filled("search", f"body~nr{number}")
        assert "1 letter." in found.out
        assert found.err == ""


def test_the_nearest_come_first(filled: Shell) -> None:
    with filled.store() as dlq:
        dlq.hold([letter("near", failure=failure("builtins.OSError", "gateway"))])
    found = filled("search", "gateway", "--order", "nearest", "--json").json["letters"]
    assert [one["source_id"] for one in found] == ["near", "slow"]
    found = filled("ls", "--where", "gateway", "--order", "nearest", "--json").json["letters"]
    assert [one["source_id"] for one in found] == ["near", "slow"]


@pytest.mark.parametrize("args", [["search", "status:pending"], ["search", "not gateway"], ["ls"]], ids=str)
def test_without_words_nothing_is_near(filled: Shell, args: list[str]) -> None:
    said = filled.refused(*args, "--order", "nearest")
    assert said == "--order nearest needs words that letters can be near to, such as: redrive search refused"


def test_words_that_are_not_found_in_messages_may_be_elsewhere(filled: Shell) -> None:
    nothing = "No letters match in sqlite:redrive.db."
    hint = "Words are looked for in messages; anywhere~{} also looks into bodies and tracebacks."
    assert filled("search", "acme").out == f"{nothing} {hint.format('acme')}\n"
    assert filled("search", '"acme corp"').out == f"{nothing} {hint.format(chr(34) + 'acme corp' + chr(34))}\n"
    assert filled("search", "anywhere~nobody").out == f"{nothing}\n"
    assert filled("search", "tag:nowhere").out == f"{nothing}\n"
    assert filled("search", "acme", "--json").json["letters"] == []


def test_a_store_that_is_not_there_is_not_made_by_looking(filled: Shell) -> None:
    assert filled("search", "anywhere~acme", "--store", "sqlite:new.db").out == "No letters match in sqlite:new.db.\n"
    assert not (filled.folder / "new.db").exists()


class Behind(MemoryLetters):
    """A store that indexes bodies later, ten at a time."""

    capabilities = replace(MemoryLetters.capabilities, nearest=True)

    def __init__(self, texts: int, refusal: Exception | None = None) -> None:
        super().__init__()
        self.texts = texts
        self.refusal = refusal

    async def tidy(self, most: int = 200) -> Backlog:
        if most and self.refusal:
            raise self.refusal
        self.texts = max(0, self.texts - min(most, 10))
        return Backlog(texts=self.texts)


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[Behind]:
    store = Behind(1234)
    with blocking.open("memory:") as other:
        monkeypatch.setattr(wiring, "connect", lambda settings: DeadLetters(store, other._dlq.desk))
        yield store


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a search says on standard error; JSON has the same number."""
    command.main([*words, "--json"], standalone_mode=False)
    out, err = capsys.readouterr()
    told = json.decode(out).get("unsearched")
    assert err.split(" letter")[0] == (f"{told:,}" if told else "")
    return err


def test_a_search_in_bodies_indexes_what_it_can_in_a_second(behind: Behind, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, "anywhere~acme") == ""
    assert behind.texts == 0


def test_what_is_not_searched_yet_is_told(
    behind: Behind, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "_INDEXING_SECONDS", 0.0)
    assert asked(capsys, "body~acme") == (
        "1,234 letters are not searched in body and traceback yet; `redrive tidy` indexes them.\n"
    )
    behind.texts = 1
    assert asked(capsys, "not", "traceback~acme").startswith("1 letter is not searched in body and traceback yet;")


def test_a_search_in_messages_waits_for_nothing(behind: Behind, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, "acme", "body.total>5") == ""
    assert behind.texts == 1234


def test_a_store_that_cannot_be_written_to_is_searched_as_it_is(behind: Behind, capsys: pytest.CaptureFixture[str]) -> None:
    behind.refusal = StoreNotWritable("the disk is read-only")
    assert asked(capsys, "anywhere~acme").startswith("1,234 letters are not searched")
