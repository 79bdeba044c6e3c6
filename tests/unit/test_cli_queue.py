"""`redrive queue`: queues from the shell, in a store that the command opens itself and behind a server that is up."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.shell import PATIENCE, Done, Shell, eventually, is_at_rest, seen_on_a_terminal


class Desk:
    """`redrive queue` on one place of queues."""

    def __init__(self, shell: Shell, *where: str) -> None:
        self.shell = shell
        self.where = where

    def __call__(self, *args: str | bytes, status: int = 0, stdin: bytes = b"") -> Done:
        return self.shell("queue", *args, *self.where, status=status, stdin=stdin)

    def refused(self, *args: str | bytes, status: int = 2) -> str:
        return self.shell.refused("queue", *args, *self.where, status=status)

    def queue(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self("info", name, "--json").json["queue"]
        return found

    def leased(self, name: str, *args: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self("lease", name, *args, "--json").json["items"]
        return items

    def stored(self, name: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self("peek", name, "--json").json["items"]
        return items


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def here(shell: Shell) -> Desk:
    """Queues in the folder's store, opened by each command itself."""
    return Desk(shell)


@pytest.fixture
def server(shell: Shell) -> Iterator[str]:
    """A server with nothing on disk, so that whatever a command sees came through it."""
    running = shell.start("up", "--store", "memory:", "--listen", "127.0.0.1:0", "--json")
    assert running.stdout is not None
    try:
        yield json.loads(running.stdout.readline())["listening"]
    finally:
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=PATIENCE)


@pytest.fixture(params=["store", "endpoint"])
def desk(request: pytest.FixtureRequest, shell: Shell) -> Desk:
    """The same commands, wherever the queues are."""
    return Desk(shell) if request.param == "store" else Desk(shell, "--endpoint", request.getfixturevalue("server"))


def test_a_queue_is_created_shown_changed_listed_and_deleted(desk: Desk) -> None:
    assert desk("ls").out == "There are no queues yet; redrive queue create NAME makes one.\n"
    out = desk("create", "mails").out
    assert out.splitlines()[:2] == ["mails  empty", "  a lease lasts    1m"]
    assert "  dead queue       none\n" in out
    assert out.endswith(
        "\nItems that are given up on or expire will be deleted. To keep them, give it a dead queue:\n"
        "  redrive queue create mails-dead\n  redrive queue update mails --dead-queue mails-dead\n"
    )
    desk("create", "mails-dead", "--expire-timeout", "48h")
    out = desk("update", "mails", "--dead-queue", "mails-dead", "--max-attempts", "3", "--lease-timeout", "90s").out
    assert "  max attempts     3\n  dead queue       mails-dead\n" in out
    assert "will be deleted" not in out
    assert "  dead queue of    mails\n" in desk("info", "mails-dead").out
    header, *rows = [line.split() for line in desk("ls").out.splitlines()]
    assert header == ["name", "dead", "queue", "partitions", "ready", "leased", "scheduled", "dying", "lease", "expires"]
    assert rows == [
        ["mails", "mails-dead", "1", "0", "0", "0", "0", "1m30s", "1d"],
        ["mails-dead", "—", "1", "0", "0", "0", "0", "1m", "never"],
    ]
    assert "  dead queue       none\n" in desk("update", "mails", "--no-dead-queue").out
    assert desk("rm", "mails-dead", "--yes").out == "Deleted the queue 'mails-dead' with 0 items.\n"
    assert desk("rm", "mails", "--yes", "--json").json == {"schema": 1, "queue": "mails", "deleted": 0}
    assert desk("ls", "--json").json == {"schema": 1, "queues": []}


def test_all_that_can_be_said_of_a_queue_is_kept(desk: Desk) -> None:
    desk("create", "dead")
    settings = ["--dead-queue", "dead", "--partitions", "3", "--ordered", "--dedupe", "10m", "--rate", "2.5"]
    made = desk("create", "q", "--reference", "the [b]q", "--max-attempts", "5", *settings, "--json").json["queue"]
    assert datetime.fromisoformat(made.pop("created_at")).tzinfo == UTC
    assert made.pop("updated_at")
    assert made == {
        "name": "q",
        "lease_timeout_seconds": 60,
        "expire_timeout_seconds": 86400,
        "max_attempts": 5,
        "dead_queue": "dead",
        "dead_queue_of": [],
        "partitions": 3,
        "stores": ["store"] * 3,
        "ordered": True,
        "dedupe_seconds": 600,
        "rate": 2.5,
        "reference": "the [b]q",
        "items": {"ready": 0, "leased": 0, "scheduled": 0, "behind": 0, "dying": 0},
    }
    assert desk.queue("dead")["dead_queue_of"] == ["q"]
    out = desk("info", "q").out
    for line in ("reference        the [b]q", "rate             at most 2.5 items leased a second", "partitions       3"):
        assert f"  {line}\n" in out


def test_an_item_goes_its_way(desk: Desk) -> None:
    desk("create", "mails")
    said = desk(
        "produce", "mails", "to ann", "to bob", "--reference", "r", "--header", "trace=7", "--kind", "k", "--encoding", "e"
    )
    assert said.out == "Produced 2 items.\n"
    header, first, second, _, told, complete, retry = desk("lease", "mails", "--limit", "2").out.splitlines()
    assert header.split()[:2] == ["item", "attempts"]
    handle = first.split()[0]
    assert handle.startswith("0:")
    assert (first.split()[1], first.endswith("r          to ann"), second.endswith("r          to bob")) == ("1", True, True)
    assert told.startswith("2 items, yours until ")
    assert (complete, handle in retry) == (f"  redrive queue complete mails {handle}", True)
    assert desk("extend", "mails", handle, "--by", "5m").out.startswith("Extended 1 item: yours until ")
    assert desk("extend", "mails", handle, "--by", "5m", "--json").json["extended"] == 1
    assert desk("complete", "mails", handle, handle).out == "Completed 1 item.\n"
    assert desk("retry", "mails", second.split()[0], "--json").json == {"schema": 1, "queue": "mails", "retried": 1}
    (again,) = desk.leased("mails")
    assert (again["attempts"], again["payload"], again["place"]) == (2, "to bob", "leased")
    assert (again["reference"], again["kind"], again["encoding"]) == ("r", "k", "e")
    assert again["headers"] == [{"name": "trace", "value": "7"}]
    assert again["handle"] == f"0:{again['id']}"
    assert datetime.fromisoformat(again["leased_until"]) > datetime.now(UTC)
    assert (
        desk("retry", "mails", again["handle"], "--at", "10m").out == "Gave 1 item back to 'mails'; to be leased again in 10m.\n"
    )
    assert desk.queue("mails")["items"] == {"ready": 0, "leased": 0, "scheduled": 1, "behind": 0, "dying": 0}
    assert desk.refused("complete", "mails", handle, status=1) == f"invalid storage id; '{handle[2:]}' does not exist"


def test_what_was_given_up_is_found_in_the_dead_queue_with_its_story(desk: Desk) -> None:
    desk("create", "dead")
    desk("create", "mails", "--dead-queue", "dead")
    desk("produce", "mails", "to ann", "--header", "trace=7")
    (item,) = desk.leased("mails")
    said = desk("retry", "mails", item["handle"], "--dead", "--error", "TimeoutError: no answer").out
    assert said == "Gave up 1 item: it is in 'dead' now.\n"
    (dead,) = desk.stored("dead")
    assert (dead["payload"], dead["message_id"], dead["source_id"]) == ("to ann", item["message_id"], item["id"])
    assert dead["headers"] == [{"name": "trace", "value": "7"}]
    assert dead["death"] | {"queue": "mails", "partition": 0, "why": "dead", "attempts": 1} == dead["death"]
    header, line = desk("peek", "dead").out.splitlines()
    assert header.split()[:5] == ["item", "place", "died", "in", "of"]
    assert line.split()[:5] == [dead["handle"], "ready", "mails:0", "given", "up"]
    assert line.endswith("to ann")


def test_a_dead_queue_tells_how_its_items_failed(desk: Desk) -> None:
    desk("create", "dead")
    desk("create", "q", "--dead-queue", "dead")
    desk("produce", "q", "a", "b")
    for item, error in zip(desk.leased("q"), ("TimeoutError: no answer", "[red]odd \x1b[0m"), strict=True):
        desk("retry", "q", item["handle"], "--dead", "--error", error)
    first, second = (item["failure"] for item in desk.stored("dead"))
    assert (first["type"], first["message"]) == ("TimeoutError", "no answer")
    assert (second["type"], second["message"]) == ("Error", "[red]odd \x1b[0m")
    out = desk("peek", "dead").out
    assert "TimeoutError: no answer  a\n" in out
    assert "Error: [red]odd \\x1b[0m  " in out


def test_lines_are_produced_as_they_come(desk: Desk) -> None:
    desk("create", "q")
    lines = b"".join(b"%d\n" % number for number in range(2_500))
    assert desk("produce", "q", stdin=lines + b"\n\nlast").out == "Produced 2,501 items.\n"
    assert desk.queue("q")["items"]["ready"] == 2_501
    assert [item["payload"] for item in desk.leased("q", "--limit", "3")] == ["0", "1", "2"]
    assert desk("peek", "q", "--limit", "2").out.endswith("\n2,499 more; --limit 2501 shows all.\n")
    assert desk("produce", "q", "--json").json == {"schema": 1, "queue": "q", "produced": 0}
    assert desk("produce", "q").out == "There was nothing to produce.\n"


def test_large_items_go_in_requests_that_a_server_takes(shell: Shell, server: str) -> None:
    desk = Desk(shell, "--endpoint", server)
    desk("create", "q")
    assert (
        desk("produce", "q", stdin=b"".join(b"%d" % number * 1_000_000 + b"\n" for number in range(8))).out
        == "Produced 8 items.\n"
    )
    assert desk.queue("q")["items"]["ready"] == 8


def test_what_has_come_is_produced_while_the_input_is_open(here: Desk) -> None:
    here("create", "q")
    shell = here.shell
    running = subprocess.Popen(
        [sys.executable, "-m", "redrive", "queue", "produce", "q"],
        cwd=shell.folder,
        env=shell.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdin is not None
    running.stdin.write(b"one\ntwo\nthr")
    running.stdin.flush()
    eventually(lambda: here.queue("q")["items"]["ready"] == 2)
    # They are counted after they are there.
    eventually(lambda: is_at_rest(running))
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=PATIENCE)
    assert (running.returncode, err) == (130, b"Stopped after 2 items.\n")


def test_payloads_are_any_bytes(desk: Desk) -> None:
    desk("create", "q")
    desk("produce", "q", b"\xff\xfe", stdin=b"not read\n")
    desk("produce", "q", stdin="grüße \x1b[0m".encode() + b"x" * 500)
    header, raw, text, *_ = desk("lease", "q").out.splitlines()
    assert raw.endswith(r"  \xff\xfe  (2 bytes)")
    assert r"grüße \x1b[0mxxx" in text
    assert text.endswith("x…")
    assert all(line == line.rstrip() for line in (header, raw, text))
    first, second = desk.stored("q")
    assert (first["payload_base64"], "payload" in first) == (b64encode(b"\xff\xfe").decode(), False)
    assert second["payload"] == "grüße \x1b[0m" + "x" * 500


def test_items_wait_until_their_time_and_by_priority(desk: Desk) -> None:
    desk("create", "q")
    assert desk("produce", "q", "later", "--at", "2h").out == "Produced 1 item; to be leased in 2h.\n"
    desk("produce", "q", "some day", "--at", "2999-01-31T14:00Z")
    desk("produce", "q", "plain")
    desk("produce", "q", "first", "--priority", "9")
    assert [item["payload"] for item in desk.leased("q")] == ["first", "plain"]
    rows = [line.split("  ")[1] for line in desk("peek", "q").out.splitlines()[1:]]
    assert [row.split(",")[0] for row in rows] == ["leased", "leased", "scheduled", "scheduled"]
    assert (rows[0].endswith(" left"), rows[2]) == (True, "scheduled, in 2h")
    sentence = desk.refused("lease", "q", "--timeout", "50ms", status=1)
    assert sentence == "no item of 'q' came within 50ms; there are 2 leased, 2 scheduled"


def test_a_lease_is_as_long_as_was_asked(desk: Desk) -> None:
    desk("create", "q")
    desk("produce", "q", "a")
    (item,) = desk.leased("q", "--lease", "1h", "--client", "me")
    assert 3500 < (datetime.fromisoformat(item["leased_until"]) - datetime.now(UTC)).total_seconds() <= 3600
    assert desk.refused("lease", "q", "--timeout", "50ms", status=1) == "no item of 'q' came within 50ms; there are 1 leased"


def test_partitions_are_counted_and_settled_apart(desk: Desk) -> None:
    desk("create", "q", "--partitions", "2")
    for text in "ab":
        desk("produce", "q", text)
    out = desk("stats", "q").out
    assert out.splitlines()[0].split()[:6] == ["partition", "ready", "leased", "scheduled", "behind", "dying"]
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [["0", "1", "0"], ["1", "1", "0"]]
    handles = [item["handle"] for _ in range(2) for item in desk.leased("q", "--limit", "1")]
    assert sorted(handle[:2] for handle in handles) == ["0:", "1:"]
    stats = desk("stats", "q", "--json").json
    assert [(one["partition"], one["ready"], one["leased"]) for one in stats["partitions"]] == [(0, 0, 1), (1, 0, 1)]
    assert desk("peek", "q", "--partition", "1", "--json").json["total"] == 1
    done = desk("complete", "q", handles[0], f"{handles[1][:2]}{'0' * 27}", status=1)
    assert done.err == f"1 item was completed; then it broke off.\nError: invalid storage id; '{'0' * 27}' does not exist\n"
    assert desk("complete", "q", handles[1]).out == "Completed 1 item.\n"
    assert desk("peek", "q").out == "'q' is empty.\n"
    assert desk("peek", "q", "--partition", "1").out == "Partition 1 of 'q' is empty.\n"


def test_nothing_is_deleted_by_accident(desk: Desk) -> None:
    desk("create", "q")
    desk("produce", "q", "a", "b", "c")
    (item,) = desk.leased("q", "--limit", "1", "--lease", "1h")
    desk("produce", "q", "later", "--at", "1h")
    ask = "Say --yes to do it without being asked."
    assert desk.refused("clear", "q") == (
        "Say what to delete: --queue (what waits), --scheduled, both, or --destructive (everything)."
    )
    assert desk.refused("clear", "q", "--queue") == f"This would delete 2 items of 'q' (waiting) for good. {ask}"
    both = f"This would delete 3 items of 'q' (waiting or scheduled) for good. {ask}"
    assert desk.refused("clear", "q", "--queue", "--scheduled", "--json") == both
    assert desk.refused("clear", "q", "--destructive") == (f"This would delete 4 items of 'q' (1 of them leased) for good. {ask}")
    assert desk.refused("rm", "q") == f"This would delete the queue 'q' with 4 items (1 of them leased). {ask}"
    assert desk.refused("retry", "q", item["handle"], "--dead") == (
        f"This would delete 1 item for good, as 'q' has no dead queue. {ask}"
    )
    assert desk("clear", "q", "--scheduled", "--yes").out == "Deleted 1 item of 'q'.\n"
    assert desk("clear", "q", "--queue", "--yes", "--json").json == {"schema": 1, "queue": "q", "deleted": 2}
    assert desk("clear", "q", "--queue", "--yes").out == "There are no such items in 'q'.\n"
    assert desk("retry", "q", item["handle"], "--dead", "--yes").out == (
        "Gave up 1 item: it is deleted, as 'q' has no dead queue.\n"
    )
    desk("produce", "q", "d")
    assert desk("clear", "q", "--destructive", "--yes").out == "Deleted 1 item of 'q'.\n"


def test_a_person_is_asked_first(here: Desk) -> None:
    here("create", "q")
    here("produce", "q", "a", "b")
    seen, status = seen_on_a_terminal(here.shell, "queue", "clear", "q", "--queue", typed=b"n\n")
    assert ("Delete 2 items of 'q' (waiting) for good?" in seen, status) == (True, 130)
    seen, status = seen_on_a_terminal(here.shell, "queue", "rm", "q", typed=b"n\n")
    assert ("Delete the queue 'q' with 2 items?" in seen, status) == (True, 130)
    assert here.queue("q")["items"]["ready"] == 2
    seen, status = seen_on_a_terminal(here.shell, "queue", "rm", "q", typed=b"y\n")
    assert ("Deleted the queue 'q' with 2 items." in seen, status) == (True, 0)


def test_a_dead_queue_in_use_is_deleted_by_force_only(desk: Desk) -> None:
    desk("create", "dead")
    desk("create", "q", "--dead-queue", "dead")
    assert desk.refused("rm", "dead", "--yes") == "'dead' is the dead queue of 'q'; give it another, or say --force"
    out = desk("rm", "dead", "--yes", "--force").out
    assert out.splitlines() == [
        "Deleted the queue 'dead' with 0 items.",
        "What is given up on in 'q' waits there until it has another: redrive queue update q --dead-queue NAME",
    ]


def test_a_queue_that_is_not_there_is_told_by_every_command(desk: Desk) -> None:
    assert desk.refused("info", "q") == "there is no queue 'q', nor any other; redrive queue create q makes it"
    desk("create", "mails")
    id = f"0:{'0' * 27}"
    for args in (["info"], ["stats"], ["peek"], ["lease"], ["produce"], ["rm"], ["clear"], ["complete", id], ["retry", id]):
        verb, *rest = args
        more = {"rm": ["--yes"], "clear": ["--queue", "--yes"]}.get(verb, [])
        assert desk.refused(verb, "mial", *rest, *more) == "there is no queue 'mial'; did you mean 'mails'?", verb
    assert desk.refused("update", "zzz", "--rate", "1") == "there is no queue 'zzz'; redrive queue ls lists those there are"


def test_mistakes_get_one_sentence(desk: Desk) -> None:
    desk("create", "q")
    for args, sentence in (
        (["create", "q"], "invalid queue; 'q' already exists"),
        (["create", "a b"], "queue name is invalid; 'a b' cannot contain whitespace"),
        (["create", "x", "--dead-queue", "x"], "dead_queue cannot reference itself"),
        (["create", "x", "--dead-queue", "y"], "dead_queue 'y' does not exist; create it first"),
        (["update", "q"], "Say what to change, e.g. --max-attempts 5; redrive queue update --help lists all."),
        (["update", "q", "--dead-queue", "x", "--no-dead-queue"], "Say --dead-queue or --no-dead-queue, not both."),
        (
            ["update", "q", "--lease-timeout", "2d"],
            "lease timeout is too long; 48h0m0s cannot be greater than the expire timeout 24h0m0s",
        ),
        (["produce", "q", "x", "--header", "odd"], "'odd' is not a header; write NAME=VALUE"),
        (
            ["produce", "q", "x", "--at", "noon"],
            "Invalid value for '--at': 'noon' is not a time; write how long from now (10m, 2h) or an ISO time (2026-01-31T14:00)",
        ),
        (
            ["complete", "q", "odd"],
            "Invalid value for 'PARTITION:ID...': 'odd' names no leased item; write PARTITION:ID, as redrive queue lease prints it",
        ),
        (["complete", "q", f"7:{'0' * 27}"], "partition is invalid; '7' is not a valid partition"),
        (
            ["retry", "q", "0:x", "--dead", "--at", "5m"],
            "Say --at or --dead, not both: what is given up is not tried again.",
        ),
    ):
        assert desk.refused(*args) == sentence


def test_limits_are_lifted_where_the_queues_are(here: Desk) -> None:
    here("create", "q", "--rate", "5", "--max-attempts", "2", "--dedupe", "1m")
    here("update", "q", "--rate", "0", "--max-attempts", "0", "--dedupe", "0s")
    found = here.queue("q")
    assert (found["rate"], found["max_attempts"], found["dedupe_seconds"]) == (None, None, None)


def test_the_place_of_queues_is_named_once(shell: Shell, server: str) -> None:
    Desk(shell, "--endpoint", server)("create", "there")
    assert "there" in shell("queue", "ls", REDRIVE_ENDPOINT=server).out
    assert shell("queue", "ls").out.startswith("There are no queues yet")
    assert shell.refused("queue", "ls", "--endpoint", server, "--store", "sqlite:x.db") == (
        "Say --endpoint or --store, not both: queues are behind a server, or in a store opened here."
    )
    assert shell.refused("queue", "ls", "--store", "memory:") == (
        "Queues in memory: are gone when this command ends; name a store that stays, or with --endpoint a server that is up."
    )
    assert "is no address of a server of queues" in shell.refused("queue", "ls", "--endpoint", "nowhere")
    assert "cannot be reached" in shell.refused("queue", "ls", "--endpoint", "http://127.0.0.1:1", status=1)


def test_the_shell_completes_names_of_queues(here: Desk) -> None:
    here("create", "mails")
    words = "redrive queue info ma"
    assert "mails" in here.shell(_REDRIVE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD="3").out


def test_the_commands_are_in_the_order_in_which_one_needs_them(shell: Shell) -> None:
    out = shell("queue", "--help").out
    listed = [line.split()[0] for line in out.partition("Commands:\n")[2].splitlines()]
    assert listed == [
        "create",
        "ls",
        "info",
        "update",
        "produce",
        "lease",
        "complete",
        "retry",
        "extend",
        "peek",
        "stats",
        "clear",
        "rm",
    ]
    assert "..." not in out.partition("Commands:\n")[2]
    for verb in listed:
        assert "--endpoint URL" in shell("queue", verb, "--help").out
