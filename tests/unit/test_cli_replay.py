"""`redrive replay`: letters go back to functions, and people see a plan and are asked before many do."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from redrive import Status
from tests.unit.shell import PATIENCE, Shell, eventually, filled, heard, seen_on_a_terminal


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


PACE = "up to 100 at a time; pauses when more than 20% fail again"


def test_replay_shows_its_plan_sends_letters_and_says_what_became_of_them(shell: Shell) -> None:
    filled(shell)
    shell.module("shop", HANDLER)
    (letter,) = [letter for letter in shell.letters() if letter["source_id"] == "0"]
    failed = shell("replay", letter["id"][:8], "--to", "py:shop:fail", status=1).out
    assert failed.splitlines() == [
        "1 letter of 1 failure:",
        "source  letters  target",
        "orders        1  py:shop:fail",
        PACE,
        "1 failed again",
        f"  {letter['id'][:8]}  still down",
    ]
    assert shell("replay", letter["id"][:8], "--to", "py:shop:work_async").out.endswith("\n1 worked\n")
    assert (shell.folder / "seen.txt").read_text() == "b'x'\n"
    again = shell("replay", letter["id"], "--to", "py:shop:work", status=1).out
    assert "1 letter will not be sent: it is completed" in again
    assert again.endswith(f"1 skipped\n  {letter['id'][:8]}  it is completed\n")
    answer = shell("replay", "source:mails", "--yes", "--json", "--to", "py:shop:Shop.ship").json
    assert (answer["outcomes"], answer["skipped"], answer["stopped"]) == ({"confirmed": 1}, 0, None)
    assert [row["outcome"] for row in answer["letters"]] == ["confirmed"]
    assert answer["operation"]["status"] == "finished"
    assert answer["plan"]["targets"] == {"mails": "py:shop:Shop.ship"}
    assert shell("replay", "all", "--yes", "--to", "py:shop:work").out == "No open letters match; nothing was sent.\n"


def test_a_dry_run_shows_the_plan_and_leaves_nothing_behind(shell: Shell) -> None:
    filled(shell)
    shell.module("shop", HANDLER)
    out = shell("replay", "all", "--dry-run", "--to", "orders=py:shop:work", "--rate", "30/min", "--canary", "1").out
    still_open = [letter for letter in shell.letters() if letter["status"] in ("pending", "exhausted", "quarantined")]
    first, second = (letter["failure"]["fingerprint"][:8] for letter in still_open)
    assert out.splitlines() == [
        "2 letters of 2 failures:",
        "source  letters  target",
        "orders        1  py:shop:work",
        "mails         1  not known",
        f"by failure: 1 in {first}, 1 in {second}",
        "1 letter will not be sent: no target is given for source 'mails'",
        "1 first, then the others if they work; at most 0.5 a second; about 4s; pauses when more than 20% fail again",
        "Nothing was sent.",
    ]
    plan = shell("replay", "--source", "orders", "--dry-run", "--json", "--to", "py:shop:work").json
    assert (plan["dry_run"], plan["plan"]["sources"]) == (True, {"orders": 1})
    assert {one["status"] for one in shell("ops", "ls", "--json").json["operations"]} <= {"finished"}
    assert not (shell.folder / "seen.txt").exists()


def test_replay_asks_before_it_sends_many(shell: Shell) -> None:
    filled(shell)
    shell.module("shop", HANDLER)
    assert (
        shell.refused("replay", "all", "--to", "py:shop:work")
        == "This would send 2 letters to py:shop:work. Say --yes to do it without being asked."
    )
    seen, status = seen_on_a_terminal(shell, "replay", "all", "--to", "py:shop:work", typed=b"n\n")
    assert "Send 2 letters?" in seen
    assert (status, "Stopped." in seen) == (130, True)
    assert not (shell.folder / "seen.txt").exists()
    assert {one["status"] for one in shell("ops", "ls", "--json").json["operations"]} <= {"finished"}
    seen, status = seen_on_a_terminal(shell, "replay", "all", "--to", "py:shop:work", typed=b"y\n")
    assert ("2 worked" in re.sub(r"\x1b\[[0-9;]*m", "", seen), status) == (True, 0)


def test_an_operation_that_pauses_by_itself_is_shown_and_gone_on_with(shell: Shell) -> None:
    filled(shell)
    shell.module("shop", HANDLER)
    out = shell("replay", "all", "--yes", "--to", "py:shop:fail", "--canary", "1", status=1).out
    assert "Paused: 1 of the first 1 failed again; the others were not sent" in out
    listed, *_ = shell("ops", "ls", "--json").json["operations"]
    short = listed["id"][:8]
    assert f"Go on with: redrive ops resume {short}" in out
    assert (listed["status"], listed["entries"], listed["is_silent"]) == ("paused", {"chosen": 1, "failed": 1}, False)
    assert "paused" in shell("ops", "ls").out
    shown = shell("ops", "show", short).out
    assert f"operation {listed['id']}" in shown
    assert "still down" in shown
    (row,) = shell("ops", "show", short, "--only", "failed", "--json").json["letters"]
    assert (row["outcome"], row["detail"]) == ("failed", "still down")
    shell.module("shop", HANDLER.replace('raise ConnectionError("still down")', "work(order)"))
    assert shell("ops", "resume", short, status=1).out.splitlines()[:2] == ["1 worked", "1 failed again"]
    assert shell("ops", "show", short, "--json").json["operation"]["status"] == "finished"
    assert "is finished; it cannot become paused" in shell("ops", "pause", short, status=1).err
    assert "there is no operation 00000000" in shell("ops", "show", "00000000", status=1).err


def test_without_operations_there_is_nothing_to_list(shell: Shell) -> None:
    assert shell("ops", "ls").out == "There are no operations yet; redrive replay makes one.\n"


def test_what_was_cancelled_stays_where_it_is(shell: Shell) -> None:
    filled(shell)
    shell.module("shop", HANDLER)
    shell("replay", "all", "--yes", "--to", "py:shop:fail", "--canary", "1", status=1)
    listed, *_ = shell("ops", "ls", "--json").json["operations"]
    assert shell("ops", "cancel", listed["id"]).out == "Cancelled; 1 were not sent and stay where they are.\n"
    assert "is cancelled; it cannot become running" in shell("ops", "resume", listed["id"], status=1).err
    with shell.store() as dlq:
        assert {letter.status for letter in dlq.find()} == {Status.PENDING, Status.COMPLETED}


def test_an_empty_filter_does_not_choose_everything(shell: Shell) -> None:
    """`redrive replay --source "$SOURCE" --status pending --yes` with a variable that is not set must not send it all."""
    filled(shell)
    shell.module("shop", HANDLER)
    shell.ended("replay", "--source", "", "--status", "pending", "--yes", "--to", "py:shop:work")
    assert not (shell.folder / "seen.txt").exists()


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("py:shop:nothing", "'shop' has no 'nothing'"),
        ("py:shop:number", "is a int, and cannot be called"),
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
    assert sentence in shell.refused("replay", "all", "--yes", "--to", target)


def test_letters_that_do_not_know_where_to_go_are_not_guessed_at(shell: Shell) -> None:
    filled(shell)
    out = shell("replay", "all", "--yes", status=1).out
    assert "1 letter will not be sent: no target is known for source 'orders': name it under [targets] in the settings" in out
    assert "2 skipped" in out


def test_letters_go_back_to_the_targets_that_the_settings_name(shell: Shell) -> None:
    filled(shell)
    shell.module("shop", HANDLER)
    (shell.folder / "redrive.toml").write_text('[targets]\norders = "py:shop:work"\n"*" = "py:shop:fail"\n')
    out = shell("replay", "all", "--yes", status=1).out
    assert "orders        1  py:shop:work" in out
    assert "mails         1  py:shop:fail" in out
    assert "1 worked\n1 failed again\n" in out


def test_a_handler_that_exits_does_not_hang_replay(shell: Shell) -> None:
    filled(shell)
    shell.module("shop", "import sys\ndef work(order):\n    sys.exit(7)\n")
    done = shell.ended("replay", "all", "--yes", "--to", "py:shop:work")
    assert done.status != 0
    assert "Traceback" not in done.err
    with shell.store() as dlq:
        assert {letter.status for letter in dlq.find()} == {Status.PENDING, Status.COMPLETED}


def test_ctrl_c_pauses_a_replay_and_gives_the_letters_back(shell: Shell) -> None:
    filled(shell)
    shell.module(
        "shop", "import asyncio\nasync def work(order):\n    open('started', 'w').close()\n    await asyncio.sleep(3600)\n"
    )
    running = shell.start("replay", "all", "--yes", "--to", "py:shop:work")
    eventually((shell.folder / "started").exists)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=PATIENCE)
    assert err.startswith("Paused; what was not sent is where it was. Go on with: redrive ops resume ")
    assert running.returncode == 130
    with shell.store() as dlq:
        assert {letter.status for letter in dlq.find()} == {Status.PENDING, Status.COMPLETED}


def test_targets_of_the_environment_are_pairs_and_their_logins_are_shown_nowhere(shell: Shell) -> None:
    filled(shell)
    shell.module("shop", HANDLER)
    environ = {"REDRIVE_TARGETS": "orders=py:shop:work *=http://ann:p4ss@127.0.0.1:9/x"}
    out = shell("replay", "all", "--dry-run", **environ).out
    assert "orders        1  py:shop:work" in out
    assert "http://***@127.0.0.1:9/x" in out
    assert "p4ss" not in out + shell("config", **environ).out
    wrong = shell.refused("config", REDRIVE_TARGETS="orders py:shop:work")
    assert "must be a target for each source, such as orders=py:shop.orders:handle" in wrong


def test_a_replay_is_scheduled_and_begun_by_redrive_up(shell: Shell) -> None:
    filled(shell)
    shell.module("shop", HANDLER)
    out = shell("replay", "all", "--yes", "--to", "py:shop:work", "--at", "1ms").out
    assert "it begins then where redrive up runs" in out
    listed, *_ = shell("ops", "ls", "--json").json["operations"]
    assert listed["status"] == "scheduled"
    assert "scheduled" in shell("ops", "show", listed["id"]).out
    running = shell.start("up", "--listen", "127.0.0.1:0")
    # It is told of after it was written down.
    heard(running, f"operation {listed['id'][:8]}: 2 confirmed")
    assert shell("ops", "show", listed["id"], "--json").json["operation"]["status"] == "finished"
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=PATIENCE)
    assert len((shell.folder / "seen.txt").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("soon", "'soon' is not a time"), ("25:00", "'25:00' is not a time"), ("2020-01-01T00:00", "is over; say a time")],
)
def test_a_time_that_is_none_or_over_is_refused(shell: Shell, text: str, sentence: str) -> None:
    filled(shell)
    assert sentence in shell.refused("replay", "all", "--to", "py:json:loads", "--at", text)
