"""Policies whose routes lead to mailboxes: written, read, compared, explained; and the shell that looks there."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path

import pytest

import redrive
import redrive.blocking
from redrive import BadSettings, Bury, Held, NotHeld, Policy, Route, StoreUnavailable, mailboxes
from redrive.backends.memory.desk import MemoryDesk
from redrive.backends.memory.letters import MemoryLetters
from redrive.backends.memory.queues import MemoryQueues
from redrive.engine.dead_letters import DeadLetters
from redrive.mailboxes import DeadLetter
from redrive.mailboxes.sink import MailboxSink
from redrive.model.policy_file import policy_of, toml_of
from redrive.queues import Queues
from tests.unit.mailbox_use import SOON, Order
from tests.unit.queue_use import Troubled
from tests.unit.shell import Shell

POLICY = Policy(max_attempts=2, routes=(Route(errors=("ValueError", "category:permission"), to="mailbox:orders-dlq"),))
TOML = """\
max_attempts = 2

[[routes]]
errors = ["ValueError", "category:permission"]
to = "mailbox:orders-dlq"
"""
YAML = """\
max_attempts: 2
routes:
  - errors: [ValueError, "category:permission"]
    to: mailbox:orders-dlq
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "policy.toml").write_text(TOML)
    (tmp_path / "policy.yaml").write_text(YAML)
    return Shell(tmp_path)


def test_a_policy_with_a_route_to_a_mailbox_is_a_value() -> None:
    assert Policy(max_attempts=2, routes=POLICY.routes) == POLICY
    assert Policy(max_attempts=2, routes=(Route(errors=POLICY.routes[0].errors, to="queue:orders-dlq"),)) != POLICY
    assert "mailbox:orders-dlq" in repr(POLICY)
    assert POLICY.judge(ValueError(), 2) == Bury("mailbox:orders-dlq")
    assert POLICY.judge(OSError(), 2) == Bury()
    assert "mailbox:orders-dlq" in str(POLICY.explain(None, ValueError(), attempts=2))


def test_it_is_written_to_files_and_read_again(shell: Shell) -> None:
    assert policy_of(tomllib.loads(toml_of(POLICY))) == POLICY
    assert redrive.load_policy(shell.folder / "policy.toml") == POLICY
    assert redrive.load_policy(shell.folder / "policy.yaml") == POLICY


@pytest.mark.parametrize("file", ["policy.toml", "policy.yaml"])
def test_the_shell_names_the_mailbox_when_it_explains_a_verdict(shell: Shell, file: str) -> None:
    said = shell("policy", "explain", "--error", "ValueError", "--attempts", "2", "--policy", file).out
    assert "give up and hold the letter in mailbox:orders-dlq" in said
    told = shell("policy", "explain", "--error", "ValueError", "--attempts", "2", "--policy", file, "--json").json
    assert (told["verdict"], told["to"]) == ("bury", "mailbox:orders-dlq")


@pytest.mark.parametrize(("to", "why"), [("mailbox:", "cannot be empty"), ("mailbox:two words", "cannot contain whitespace")])
def test_a_route_to_no_mailbox_is_refused_before_anything_fails(to: str, why: str) -> None:
    policy = Policy(routes=(Route(errors=("ValueError",), to=to),))
    with redrive.blocking.open("memory:") as dlq, pytest.raises(BadSettings, match=why):
        dlq.guard(source="orders", policy=policy)


def test_what_a_mailbox_cannot_take_is_not_held() -> None:
    store = Troubled(MemoryQueues())
    dlq = DeadLetters(MemoryLetters(), MemoryDesk())
    sink = MailboxSink(Queues({"store": store}), "orders-dlq", dlq)

    async def whole() -> None:
        letter = (await dlq.capture("x", ValueError("no"), source="shop")).letter
        for verb in ("catalogue", "define", "put"):
            store.fail(verb, StoreUnavailable("gone for lunch"))
            with pytest.raises(NotHeld, match=r"^not held: gone for lunch; do not acknowledge the source$"):
                await sink.keep([letter])
        assert await sink.keep([letter]) == await sink.keep([letter]) == [Held.NEW]
        await sink.close()

    asyncio.run(whole())


def guarded(shell: Shell) -> None:
    """An order fails twice and is buried in a mailbox that nobody has made."""
    with (
        redrive.blocking.open(f"sqlite:{shell.folder}/redrive.db") as dlq,
        mailboxes.open(f"sqlite:{shell.folder}/redrive.db") as place,
    ):
        orders = place.mailbox("orders", Order)

        @dlq.guard(source="mailbox:orders", policy=POLICY, extract=mailboxes.message_of, after="verdict")
        def handle(message: mailboxes.Message[Order, None]) -> None:
            raise ValueError(f"no such price: {message.body.number}")

        orders.send(Order(7))
        for verdict in ("Retry", "Bury"):
            (message,) = orders.receive(wait_time_seconds=SOON)
            assert type(handle(message)).__name__ == verdict
            message.nack() if verdict == "Retry" else message.acknowledge()
        assert dlq.count() == 0


def test_the_shell_lists_what_lies_in_a_mailbox_collects_it_and_sends_it_home(shell: Shell) -> None:
    guarded(shell)
    listed = shell("ls", "mailbox:orders-dlq")
    assert "no such price: 7" in listed.out
    assert "1 letter in mailbox:orders-dlq; `redrive collect mailbox:orders-dlq` moves them into the store." in listed.out
    (letter,) = shell("ls", "mailbox:orders-dlq", "--json").json["letters"]
    assert letter["source"] == "mailbox:orders"
    assert "Say --yes to collect it" in shell.refused("collect", "mailbox:orders-dlq")
    collected = shell("collect", "mailbox:orders-dlq", "--yes").out
    assert collected == "Collected 1 letter from mailbox:orders-dlq into sqlite:redrive.db.\n"
    assert shell("collect", "mailbox:orders-dlq", "--yes").out == "There is nothing to collect in mailbox:orders-dlq.\n"
    replayed = shell("replay", "source:mailbox:orders", "--to", "source", "--yes").out
    assert "mailbox:orders        1  mailbox:orders" in replayed
    assert replayed.endswith("1 sent, outcome open\n")
    with mailboxes.open(f"sqlite:{shell.folder}/redrive.db") as place:
        (message,) = place.mailbox("orders", Order).receive(wait_time_seconds=SOON)
        assert (message.body, message.id) == (Order(7), letter["source_id"])


def test_the_shell_sends_letters_to_a_mailbox(shell: Shell) -> None:
    guarded(shell)
    shell("collect", "mailbox:orders-dlq", "--yes")
    assert "queue does not exist" in shell("replay", "status:pending", "--to", "mailbox:other", "--yes", status=1).out
    with mailboxes.open(f"sqlite:{shell.folder}/redrive.db") as place:
        assert place.mailbox("other", Order).approximate_count() == 0
    assert "1 sent" in shell("replay", "status:pending", "--to", "mailbox:other", "--yes").out
    with mailboxes.open(f"sqlite:{shell.folder}/redrive.db") as place:
        (message,) = place.mailbox("other", Order).receive(wait_time_seconds=SOON)
        assert message.body == Order(7)


def test_a_mailbox_without_a_name_is_no_place_of_letters(shell: Shell) -> None:
    for verb in ("ls", "collect"):
        assert "'mailbox:' is no place of letters" in shell.refused(verb, "mailbox:")


def test_a_dead_letter_tells_how_often_its_message_was_delivered(shell: Shell) -> None:
    guarded(shell)
    with mailboxes.open(f"sqlite:{shell.folder}/redrive.db") as place:
        (message,) = place.mailbox("orders-dlq", DeadLetter[Order]).receive(wait_time_seconds=SOON)
        assert (message.body.delivery_count, message.body.source_mailbox, message.body.body) == (2, "orders", Order(7))
