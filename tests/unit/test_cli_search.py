"""`redrive search` and `--where`: questions from the shell."""

from __future__ import annotations

from pathlib import Path

import pytest

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
                letter("odd", failure=failure("builtins.KeyError", "'address'"), body=b'{"total": 50}'),
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
