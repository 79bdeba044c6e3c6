"""What letters would have met under another policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from redrive import Letter, Policy, load_policy
from redrive.engine.backtest import Backtest, Fate, backtest, judged
from redrive.model.category import Category
from redrive.model.policy import Discard, Route
from redrive.testing import START, attempt, failure, letter
from tests.unit.shell import Shell

HOUR = timedelta(hours=1)


def tried(name: str, *errors: str, category: Category = Category.NETWORK, every: timedelta = HOUR) -> Letter:
    """A letter that failed with these errors in turn."""
    history = tuple(attempt(f"{name}/{number}", error=error, at=START + number * every) for number, error in enumerate(errors))
    told = failure(errors[-1], f"{name} failed", category=category, fingerprint=errors[-1])
    return letter(name, history=history, failure=told, first_received_at=START, at=START + len(errors) * every)


THREE = tried("three", "builtins.TimeoutError", "builtins.TimeoutError", "builtins.TimeoutError")
MIXED = tried("mixed", "builtins.TimeoutError", "builtins.KeyError", category=Category.VALIDATION)


@pytest.mark.parametrize(
    ("policy", "fate", "attempts", "rule"),
    [
        (Policy(max_attempts=3), Fate.SAME, 3, "max_attempts"),
        (Policy(max_attempts=2), Fate.SOONER, 2, "max_attempts"),
        (Policy(max_attempts=4), Fate.GOING_ON, 3, "backoff"),
        (Policy(max_attempts=9, include_errors=("OSError",)), Fate.SOONER, 1, "include_errors"),
        (Policy(max_attempts=1, exclude_errors=("TimeoutError",)), Fate.GOING_ON, 3, "exclude_errors"),
        (Policy(max_attempts=9, max_age=HOUR / 2), Fate.SOONER, 2, "max_age"),
        (Policy(max_attempts=9, include_errors=("category:network",)), Fate.SOONER, 1, "include_errors"),
        (Policy(max_attempts=1, custom=lambda case: Discard("old")), Fate.DISCARDED, 1, "custom"),
        (Policy(max_attempts=1, routes=(Route(errors=("TimeoutError",), to="sqlite:x.db"),)), Fate.ELSEWHERE, 1, "max_attempts"),
    ],
)
def test_a_letter_meets_what_the_policy_would_have_decided_at_each_try(
    policy: Policy, fate: Fate, attempts: int, rule: str
) -> None:
    met = judged(THREE, policy)
    assert (met.fate, met.attempts, met.rule) == (fate, attempts, rule)


def test_each_try_is_judged_by_its_own_error_and_the_last_by_its_category() -> None:
    assert judged(MIXED, Policy(max_attempts=9, include_errors=("LookupError",))).attempts == 2
    odd = tried("odd", "shop.Odd", category=Category.RESOURCE)
    assert judged(odd, Policy(max_attempts=9, include_errors=("category:resource",))).fate is Fate.SAME


def test_a_letter_without_a_history_is_judged_by_its_failure() -> None:
    bare = letter(history=(), failure=failure("builtins.ValueError", category=Category.VALIDATION))
    assert judged(bare, Policy(max_attempts=9, include_errors=("ValueError",))).fate is Fate.SAME


def test_all_letters_are_counted_by_fate_rule_and_group() -> None:
    async def some() -> AsyncIterator[Letter]:
        for one in (THREE, MIXED, tried("four", *["builtins.TimeoutError"] * 4)):
            yield one

    report: Backtest = asyncio.run(backtest(some(), Policy(max_attempts=2)))
    assert (report.letters, report.attempts, report.saved) == (3, 9, 3)
    assert report.fates == {Fate.SOONER: 2, Fate.SAME: 1}
    assert report.rules == {"max_attempts": 3}
    assert {group: (row.letters, row.saved) for group, row in report.groups.items()} == {
        "builtins.TimeoutError": (2, 3),
        "builtins.KeyError": (1, 0),
    }


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    with shell.store() as dlq:
        dlq.hold([THREE, MIXED])
    (tmp_path / "policy.toml").write_text('max_attempts = 2\n[[routes]]\nerrors = ["KeyError"]\nto = "sqlite:odd.db"\n')
    return shell


def test_the_shell_shows_what_would_have_been(shell: Shell) -> None:
    said = shell("policy", "test", "policy.toml").out
    assert "2 letters after 5 tries, under policy.toml:" in said
    assert "1 given up on sooner" in said
    assert "1 of 5 tries would not have been made" in said
    assert "1 letter would be held in sqlite:odd.db" in said
    assert "TimeoutError: three failed" in said
    told = shell("policy", "test", "policy.toml", "--error", "KeyError", "--json").json
    assert (told["letters"], told["fates"], told["routes"]) == (1, {"elsewhere": 1}, {"sqlite:odd.db": 1})
    assert "nothing to test against" in shell("policy", "test", "policy.toml", "--source", "none").out


def test_the_shell_explains_a_verdict(shell: Shell) -> None:
    said = shell("policy", "explain", "--error", "KeyError", "--attempts", "2", "--policy", "policy.toml").out
    assert "give up and hold the letter in sqlite:odd.db" in said
    assert "max_attempts: tried 2 of 2 times" in said
    assert "validation (type builtins.KeyError is a builtins.LookupError)" in said
    told = shell("policy", "explain", "--error", "shop.Busy", "--status", "503", "--template", "http-api", "--json").json
    assert (told["verdict"], told["category"], told["rule"], told["delay_seconds"]) == ("retry", "transient", "backoff", 1.0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["explain"], "Missing option '--error'"),
        (["explain", "--error", "X", "--policy", "none.toml"], "cannot read none.toml: No such file or directory"),
        (["explain", "--error", "X", "--policy", "policy.toml", "--template", "llm"], "give one of them"),
        (["explain", "--error", "X", "--template", "lmm"], "there is no template 'lmm'; did you mean llm?"),
        (["templates", "databse"], "there is no template 'databse'; did you mean database?"),
        (["test", "policy.json"], "its name must end in .toml, .yaml or .yml"),
    ],
)
def test_mistakes_get_one_sentence(shell: Shell, arguments: list[str], sentence: str) -> None:
    (shell.folder / "policy.json").write_text("{}")
    said = shell("policy", *arguments, status=2).err
    assert sentence in said
    assert "Traceback" not in said


def test_templates_are_listed_and_printed_to_be_kept(shell: Shell) -> None:
    assert "Calls to a language model" in shell("policy", "templates").out
    (shell.folder / "llm.toml").write_text(shell("policy", "templates", "llm").out)
    assert "retry after" in shell("policy", "explain", "--error", "TimeoutError", "--policy", "llm.toml").out


def test_a_program_is_run_under_a_policy_from_a_file(shell: Shell) -> None:
    (shell.folder / "two.toml").write_text("max_attempts = 2\n")
    done = shell.ended("run", "--source", "job", "--policy", "two.toml", "--", "sh", "-c", "echo tried; exit 3")
    assert (done.status, done.out) == (3, "tried\ntried\n")
    refused = shell.ended("run", "--source", "job", "--policy", "none.toml", "--", "true")
    assert (refused.status, "cannot read none.toml" in refused.err) == (2, True)
    assert load_policy(shell.folder / "two.toml") == Policy(max_attempts=2)
