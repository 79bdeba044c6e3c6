"""`redrive receipts`: what is listed, what is forgotten, and what is asked before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from redrive import Message
from redrive.model.receipt import Receipt
from redrive.testing import START
from redrive.testing.kit.samples import occurrence
from tests.unit.shell import Shell, seen_on_a_terminal


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A store in which two deliveries were worked on, one is under way, and one was cut short."""
    shell = Shell(tmp_path)
    with shell.store() as dlq:

        @dlq.once(name="shop.ship")
        def ship(message: Message) -> None: ...

        for id in ("1", "2"):
            ship(Message(body=b"x", id=id))
        dlq.desk.begin([_begun("now", "shop.mail")], dlq.limits.lease)
        dlq.desk.begin([_begun("[red]dead\x1b[0m", "shop.ship")], dlq.limits.lease, now=START)
    return shell


def _begun(key: str, handler: str) -> Receipt:
    return Receipt(namespace="default", handler=handler, key=key, token=occurrence(key), at=START, by="host:1")


def listed(shell: Shell, *args: str) -> list[dict[str, Any]]:
    receipts: list[dict[str, Any]] = shell("receipts", "ls", "--json", *args).json["receipts"]
    return receipts


def test_receipts_are_listed_with_what_time_has_made_of_them(shell: Shell) -> None:
    out = shell("receipts", "ls").out
    assert out.split("\n")[0].split() == ["state", "handler", "key", "begun", "by"]
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [
        ["begun", "shop.mail"],
        ["done", "shop.ship"],
        ["done", "shop.ship"],
        ["unknown", "shop.ship"],
    ]
    assert "[red]dead\\x1b[0m" in out
    assert shell("receipts", "ls", "--unknown").out.count("\n") == 2
    assert shell("receipts", "ls", "--handler", "shop.mail").out.count("\n") == 2
    assert shell("receipts", "ls", "--limit", "3").out.count("\n") == 4


def test_in_json_they_have_a_shape(shell: Shell) -> None:
    (unknown,) = listed(shell, "--unknown")
    assert unknown == {
        "namespace": "default",
        "handler": "shop.ship",
        "key": "[red]dead\x1b[0m",
        "at": "2025-01-01T12:00:00Z",
        "state": "unknown",
        "until": None,
        "by": "host:1",
    }


def test_one_is_forgotten_by_its_handler_and_key(shell: Shell) -> None:
    assert shell("receipts", "forget", "shop.ship", "1", "--yes").out == "Forgot 1 receipt.\n"
    assert "1" not in {one["key"] for one in listed(shell)}
    assert shell("receipts", "forget", "shop.ship", "1", "--yes").out == "There are no such receipts.\n"
    assert shell("receipts", "forget", "shop.mail", "now", "--yes", "--json").json["forgotten"] == 1
    with shell.store() as dlq:
        acts = [(row.act, row.subject, row.detail) for row in dlq.desk.audit()]
    assert acts == [("forget", "shop.mail now", "1 receipt"), ("forget", "shop.ship 1", "1 receipt")]


def test_many_are_forgotten_but_not_what_is_being_worked_on(shell: Shell) -> None:
    assert shell("receipts", "forget", "--unknown", "--yes").out == "Forgot 1 receipt.\n"
    assert shell("receipts", "forget", "--older-than", "1d", "--yes").out == "There are no such receipts.\n"
    assert shell("receipts", "forget", "shop.ship", "--yes").out == "Forgot 2 receipts.\n"
    assert shell("receipts", "forget", "shop.mail", "--yes").out == "There are no such receipts.\n"
    assert [one["state"] for one in listed(shell)] == ["begun"]
    assert shell("receipts", "ls", "--unknown").out == "There are none that are unknown.\n"


def test_nothing_is_forgotten_by_accident(shell: Shell) -> None:
    assert shell.refused("receipts", "forget") == (
        "Say which receipts: a HANDLER, a HANDLER and a KEY, --unknown, or --older-than 30d."
    )
    assert shell.refused("receipts", "forget", "shop.ship") == (
        "This would forget 3 receipts. Say --yes to do it without being asked."
    )
    seen, status = seen_on_a_terminal(shell, "receipts", "forget", "shop.ship", typed=b"n\n")
    assert "Forget 3 receipts?" in seen
    assert status == 130
    assert len(listed(shell)) == 4
    seen, status = seen_on_a_terminal(shell, "receipts", "forget", "shop.ship", typed=b"y\n")
    assert (status, "Forgot 3 receipts." in seen) == (0, True)


def test_a_store_without_receipts_says_so(tmp_path: Path) -> None:
    assert Shell(tmp_path)("receipts", "ls").out == "There are no receipts.\n"
