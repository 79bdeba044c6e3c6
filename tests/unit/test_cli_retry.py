"""`redrive retry`: letters go back to functions, and people are asked before many do."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from redrive import Status
from tests.unit.shell import PATIENCE, Shell, eventually, filled, seen_on_a_terminal


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


HANDLER = """
seen = []
def work(order):
    with open("seen.txt", "a") as file:
        print(order, file=file)
def fail(order):
    raise ConnectionError("still down")
async def work_async(order):
    work(order)
class Shop:
    @staticmethod
    def ship(order):
        work(order)
number = 5
"""


def test_retry_sends_letters_to_a_function_and_says_what_became_of_them(shell: Shell) -> None:
    filled(shell)
    shell.module("shop", HANDLER)
    (letter,) = [letter for letter in shell.letters() if letter["source_id"] == "0"]
    failed = shell("retry", letter["id"][:8], "--to", "py:shop:fail", status=1).out
    assert failed == f"1 failed again\n  {letter['id'][:8]}  still down\n"
    assert shell("retry", letter["id"][:8], "--to", "py:shop:work_async").out == "1 worked\n"
    assert (shell.folder / "seen.txt").read_text() == "b'x'\n"
    again = shell("retry", letter["id"], "--to", "py:shop:work", status=1).out
    assert again == "1 skipped: not open any more, or held by somebody else\n"
    answer = shell("retry", "--source", "mails", "--yes", "--json", "--to", "py:shop:Shop.ship").json
    (operation,) = answer["operations"]
    assert (operation["outcomes"], operation["skipped"], operation["stopped"]) == ({"confirmed": 1}, 0, None)
    assert [row["outcome"] for row in operation["letters"]] == ["confirmed"]
    assert shell("retry", "--all", "--yes", "--to", "py:shop:work").out == "No open letters match; nothing was sent.\n"


def test_retry_asks_before_it_sends_many(shell: Shell) -> None:
    filled(shell)
    shell.module("shop", HANDLER)
    assert (
        shell.refused("retry", "--all", "--to", "py:shop:work")
        == "This would send 2 letters to py:shop:work. Say --yes to do it without being asked."
    )
    seen, status = seen_on_a_terminal(shell, "retry", "--all", "--to", "py:shop:work", typed=b"n\n")
    assert "Send 2 letters to py:shop:work?" in seen
    assert (status, "Stopped." in seen) == (130, True)
    assert not (shell.folder / "seen.txt").exists()
    seen, status = seen_on_a_terminal(shell, "retry", "--all", "--to", "py:shop:work", typed=b"y\n")
    assert ("2 worked" in re.sub(r"\x1b\[[0-9;]*m", "", seen), status) == (True, 0)


def test_an_empty_filter_does_not_choose_everything(shell: Shell) -> None:
    """`redrive retry --source "$SOURCE" --status pending --yes` with a variable that is not set must not send it all."""
    filled(shell)
    shell.module("shop", HANDLER)
    shell.ended("retry", "--source", "", "--status", "pending", "--yes", "--to", "py:shop:work")
    assert not (shell.folder / "seen.txt").exists()


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("py:shop:nothing", "'shop' has no 'nothing'"),
        ("py:shop:number", "is a int, not a function"),
        ("py:nowhere:f", "cannot import 'nowhere'"),
        ("py:broken:f", "cannot import 'broken'"),
        ("py:.shop:f", "cannot import"),
        ("shop:work", "no target answers to 'shop:'; known are py:, command:"),
        ("work", "'work' has no scheme"),
    ],
)
def test_a_target_that_is_not_there_gets_one_clear_sentence(target: str, sentence: str, shell: Shell) -> None:
    filled(shell)
    shell.module("shop", HANDLER)
    shell.module("broken", "def f(:")
    assert sentence in shell.refused("retry", "--all", "--yes", "--to", target)


def test_letters_that_do_not_know_where_to_go_are_not_guessed_at(shell: Shell) -> None:
    filled(shell)
    assert "2 of 2 letters have no command to run again (source 'orders'); say --to py:module:function" in shell.refused(
        "retry", "--all", "--yes"
    )


def test_a_handler_that_exits_does_not_hang_retry(shell: Shell) -> None:
    filled(shell)
    shell.module("shop", "import sys\ndef work(order):\n    sys.exit(7)\n")
    done = shell.ended("retry", "--all", "--yes", "--to", "py:shop:work")
    assert done.status != 0
    assert "Traceback" not in done.err
    with shell.store() as dlq:
        assert {letter.status for letter in dlq.find()} == {Status.PENDING, Status.COMPLETED}


def test_ctrl_c_stops_a_retry_and_gives_the_letters_back(shell: Shell) -> None:
    filled(shell)
    shell.module(
        "shop", "import asyncio\nasync def work(order):\n    open('started', 'w').close()\n    await asyncio.sleep(3600)\n"
    )
    running = shell.start("retry", "--all", "--yes", "--to", "py:shop:work")
    eventually((shell.folder / "started").exists)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=PATIENCE)
    assert (out, err.strip(), running.returncode) == ("", "Stopped.", 130)
    with shell.store() as dlq:
        assert {letter.status for letter in dlq.find()} == {Status.PENDING, Status.COMPLETED}
