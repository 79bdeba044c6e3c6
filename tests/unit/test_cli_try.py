"""`redrive try`: whatever a handler does with a letter is told, and nothing about the letter changes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import Claim, Message, Redaction, blocking
from tests.unit.shell import BAD, PATIENCE, Shell, eventually, seen_on_a_terminal

SHOP = """
import asyncio, ctypes, dataclasses, os, signal, subprocess, sys, threading, time
import redrive, redrive.blocking

@redrive.blocking.open("sqlite:redrive.db").guard(source="orders")
def guarded(order):
    print("charging", order["id"])
    print("be careful", file=sys.stderr)
    return order["customer"]

def works(order): return {"charged": order["id"]}
def elsewhere(order): return order["customer"]
def other(order): return order["id"] / 0
def leaves(order): sys.exit("enough")
def ends(order): print("almost", end=""); os._exit(3)
def killed(order): os.kill(os.getpid(), signal.SIGKILL)
def crashes(order): ctypes.string_at(0)
def chatty(order): print("x" * 1_000_000 + "the end")
def reads(order): return sys.stdin.read()
def evil(order): print("\\x1b[31mred\\x1b]0;title\\x07[bold]markup[/bold]")
def tells(order): print(order["card"]); raise ValueError(order["card"])
def size(body): return len(body)

def rude(order):
    class Rude:
        def __repr__(self): raise RuntimeError
    return Rude()

def started():
    alive = os.open("alive", os.O_WRONLY)
    os.write(alive, b"x")
    return subprocess.Popen(["sleep", "1000"], pass_fds=[alive])

def hangs(order):
    sleeper = started()
    print("waiting")
    time.sleep(1000)

def lingers(order):
    sleeper = started()
    threading.Thread(target=time.sleep, args=[1000], daemon=False).start()
    return "done"

@dataclasses.dataclass
class Order:
    id: int

def typed(order: Order): return order.id + 1
def whole(message: redrive.Message): return message.id, message.redrive_id is not None
async def soon(order): return await asyncio.sleep(0, order["id"])
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.module("shop", SHOP)
    return shell


@pytest.fixture
def id(shell: Shell) -> str:
    """A letter with an order in it."""
    return kept(shell, {"id": 4711})


def kept(shell: Shell, message: Any, error: Exception = BAD, **more: Any) -> str:
    with shell.store() as dlq:
        return str(dlq.capture(message, error, source="orders", **more).letter.id)


def failed_for_real(shell: Shell) -> str:
    """The letter that the guarded handler itself leaves behind."""
    code = "import shop; shop.guarded({'id': 4711})"
    subprocess.run([sys.executable, "-c", code], cwd=shell.folder, env=shell.environment, check=True, capture_output=True)
    return str(shell.letters()[0]["id"])


def tried(shell: Shell, id: str, handler: str, *args: str, status: int = 1) -> dict[str, Any]:
    return shell("try", id, "--handler", f"shop:{handler}", "--json", *args, status=status).json


def test_a_letter_that_is_not_fixed_fails_with_its_own_error_and_stays_as_it_is(shell: Shell) -> None:
    id = failed_for_real(shell)
    before = shell.letters()
    out = shell("try", id[:8], "--handler", "shop:guarded", status=1).out
    verdict, *rest = out.splitlines()
    assert re.fullmatch(r"Failed in \d+ms, with the letter's own error\.", verdict)
    assert "builtins.KeyError (validation)" in out
    assert rest.index("standard output") < rest.index("  charging 4711") < rest.index("standard error")
    assert rest.index("  be careful") < rest.index("traceback") < rest.index("  KeyError: 'customer'")
    assert rest[-1].startswith("The letter is as it was.")
    assert tried(shell, id, "guarded")["likeness"] == "same"
    assert tried(shell, id, "works", status=0)["ending"] == "worked"
    assert shell.letters() == before
    with shell.store() as dlq:
        assert (list(dlq.operations.list()), dlq.desk.audit()) == ([], [])


def test_a_letter_that_somebody_holds_can_be_tried_all_the_same(shell: Shell, id: str) -> None:
    with shell.store() as dlq:
        (claimed,) = dlq.letters.claim(Claim(owner="ann", lease=timedelta(hours=1), limit=1, what=dlq.within()))
        assert tried(shell, id, "works", status=0)["result"] == "{'charged': 4711}"
        assert dlq.letters.extend([claimed.lease], timedelta(hours=1)) != [None]


def test_a_handler_that_works_shows_what_it_returned_and_how_to_send_the_letter(shell: Shell, id: str) -> None:
    out = shell("try", id, "--handler", "shop:works").out
    assert out.startswith("Worked in ")
    assert "returned       {'charged': 4711}" in out
    assert f"redrive replay {id[:8]} --to py:shop:works" in out


@pytest.mark.parametrize(
    ("handler", "likeness", "error"),
    [("elsewhere", "same_type", "KeyError"), ("other", "other", "ZeroDivisionError"), ("leaves", "other", "SystemExit")],
)
def test_another_failure_is_told_from_the_letters_own(shell: Shell, handler: str, likeness: str, error: str) -> None:
    id = kept(shell, {"id": 4711}, KeyError("customer"))
    answer = tried(shell, id, handler)
    assert (answer["ending"], answer["likeness"], answer["failure"]["type"]) == ("raised", likeness, f"builtins.{error}")
    assert answer["letter_failure"]["type"] == "builtins.KeyError"


@pytest.mark.parametrize(
    ("handler", "result"),
    [
        ("typed", "4712"),
        ("whole", "('4711', True)"),
        ("soon", "4711"),
        ("reads", "''"),
        ("rude", "<Rude: repr() raised RuntimeError>"),
    ],
)
def test_a_handler_is_called_as_a_replay_would_call_it(shell: Shell, handler: str, result: str) -> None:
    id = kept(shell, Message(body=b'{"id": 4711}', content_type="application/json", id="4711"))
    assert tried(shell, id, handler, status=0)["result"] == result


def test_a_message_that_makes_no_arguments_does_not_reach_the_handler(shell: Shell) -> None:
    id = kept(shell, Message(body=b"{", content_type="application/json"))
    answer = tried(shell, id, "works")
    assert (answer["was_called"], answer["failure"]["type"]) == (False, "msgspec.DecodeError")
    assert "the handler was not called" in shell("try", id, "--handler", "shop:works", status=1).out


@pytest.mark.parametrize(("handler", "how"), [("ends", "exit status 3"), ("killed", "SIGKILL"), ("crashes", "SIGSEGV")])
def test_a_process_that_dies_is_told_of(shell: Shell, id: str, handler: str, how: str) -> None:
    answer = tried(shell, id, handler)
    assert (answer["ending"], answer["signal"] or f"exit status {answer['exit_status']}") == ("died", how)
    assert answer["stdout"] == ("almost" if handler == "ends" else "")
    assert ("in crashes" in answer["stderr"]) == (handler == "crashes")
    out = shell("try", id, "--handler", f"shop:{handler}", status=1).out
    assert re.match(rf"Failed: its process ended while the handler ran, after \d+ms, with {how}\.", out)


def test_an_import_that_ends_the_process_is_told_of(shell: Shell, id: str) -> None:
    shell.module("polite", "raise SystemExit(4)")
    assert shell("try", id, "--handler", "polite:handle", status=2).err == "Error: cannot import 'polite': SystemExit: 4\n"
    shell.module("hasty", "import os\nos._exit(4)")
    out = shell("try", id, "--handler", "hasty:handle", status=1).out
    assert out.startswith("Failed: its process ended before the handler was called, with exit status 4.")


class Alive:
    """Knows whether anything that a handler started still runs: all of it holds this pipe."""

    def __init__(self, shell: Shell) -> None:
        os.mkfifo(shell.folder / "alive")
        self._reader = os.open(shell.folder / "alive", os.O_RDONLY | os.O_NONBLOCK)

    def has_begun(self) -> bool:
        return self._heard() == b"x"

    def is_over(self) -> bool:
        return self._heard() == b""

    def _heard(self) -> bytes | None:
        try:
            return os.read(self._reader, 1)
        except BlockingIOError:
            return None

    def close(self) -> None:
        os.close(self._reader)


@pytest.fixture
def alive(shell: Shell) -> Iterator[Alive]:
    alive = Alive(shell)
    yield alive
    alive.close()


def test_the_time_limit_ends_the_handler_with_all_that_it_started(shell: Shell, id: str, alive: Alive) -> None:
    answer = tried(shell, id, "hangs", "--timeout", "4s")
    assert alive.has_begun()
    assert eventually(alive.is_over)
    assert (answer["ending"], answer["stdout"], answer["stderr"]) == ("overran", "waiting\n", "")
    assert [re.sub(r":\d+", "", Path(place).name) for place in answer["where"]] == ["shop.py in hangs"]


def test_a_coroutine_that_overran_says_where_it_waits(shell: Shell, id: str) -> None:
    code = "import asyncio\n\nasync def handle(order):\n    await wait()\n\nasync def wait():\n    await asyncio.sleep(1000)\n"
    shell.module("slow", code)
    out = shell("try", id, "--handler", "slow:handle", "--timeout", "4s", status=1).out
    assert out.startswith("Failed: not done within 4.0s; its process was ended.")
    assert re.search(r"innermost call first\n  \S+/slow.py:7 in wait\n  \S+/slow.py:4 in handle\n", out)


def test_nothing_is_left_running_when_the_handler_is_done(shell: Shell, id: str, alive: Alive) -> None:
    assert tried(shell, id, "lingers", status=0)["result"] == "'done'"
    assert alive.has_begun()
    assert eventually(alive.is_over)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_running_when_whoever_tries_is_ended(shell: Shell, id: str, alive: Alive, number: int) -> None:
    trying = shell.start("try", id, "--handler", "shop:hangs", "--timeout", "10m")
    try:
        eventually(alive.has_begun)
        trying.send_signal(number)
        assert eventually(alive.is_over)
        assert trying.wait(PATIENCE) == (130 if number == signal.SIGINT else -number)
    finally:
        trying.kill()
        trying.communicate(timeout=PATIENCE)


def test_the_end_of_a_long_output_is_shown(shell: Shell, id: str) -> None:
    answer = tried(shell, id, "chatty", status=0)
    assert len(answer["stdout"]) == 65_536
    assert answer["stdout"].endswith("xthe end\n")
    assert answer["stdout_dropped_bytes"] == 1_000_008 - 65_536
    assert "the end of it, after 934,472 bytes more" in shell("try", id, "--handler", "shop:chatty").out


def test_a_body_in_a_file_of_its_own_is_there(shell: Shell) -> None:
    id = kept(shell, b"\xff" * 2_000_000)
    assert tried(shell, id, "size", status=0)["result"] == "2000000"


def test_a_redacted_letter_is_refused(shell: Shell) -> None:
    with blocking.open(f"sqlite:{shell.folder}/redrive.db", redact=Redaction(presets=("cards",))) as dlq:
        id = str(dlq.capture({"card": "4111 1111 1111 1111"}, BAD, source="orders").letter.id)
    assert "its body was redacted at capture; repair it first" in shell.refused("try", id, "--handler", "shop:works", status=1)


def test_what_rules_hide_is_hidden_in_all_that_a_handler_says(shell: Shell) -> None:
    id = kept(shell, {"card": "4111 1111 1111 1111"})
    for more in ([], ["--json"]):
        out = shell("try", id, "--handler", "shop:tells", *more, status=1, REDRIVE_REDACT="cards").out
        assert "4111" not in out
        assert out.count("[redacted:") >= 2


def test_what_a_handler_prints_cannot_command_the_terminal(shell: Shell, id: str) -> None:
    out = shell("try", id, "--handler", "shop:evil").out
    assert "[bold]markup[/bold]" in out
    assert "\x1b" not in out


def test_the_verdict_has_a_colour_on_a_terminal(shell: Shell, id: str) -> None:
    for handler, colour, status in (("works", "32", 0), ("other", "31", 1)):
        seen, ended = seen_on_a_terminal(shell, "try", id, "--handler", f"shop:{handler}")
        assert ended == status
        assert re.search(rf"\x1b\[1;{colour}m(Worked|Failed) in", seen), seen


def test_a_mistake_gets_one_clear_sentence(shell: Shell, id: str) -> None:
    shell.module("broken", "def f(:")
    handler = ["--handler", "shop:works"]
    assert shell.refused("try", "ffffffff", *handler, status=1) == "there is no letter ffffffff"
    assert "'zz' is not a letter's id" in shell.refused("try", "zz", *handler, status=1)
    assert "Missing option '--handler'" in shell.refused("try", id)
    assert "write module:function" in shell.refused("try", id, "--handler", "shop")
    assert "cannot import 'nowhere'" in shell.refused("try", id, "--handler", "nowhere:x")
    assert "cannot import 'broken': SyntaxError" in shell.refused("try", id, "--handler", "broken:f")
    assert shell.refused("try", id, "--handler", "shop:none") == "'shop' has no 'none'"
    assert "'soon' is not a duration" in shell.refused("try", id, *handler, "--timeout", "soon")
    assert "must be longer than nothing" in shell.refused("try", id, *handler, "--timeout", "0s")
