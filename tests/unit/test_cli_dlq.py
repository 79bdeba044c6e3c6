"""`redrive dlq`: the workflow DLQ from the shell."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import Claim
from redrive.model.query import Field, Is
from redrive.workflows import DeadLetterQueue
from tests.unit.shell import Shell, seen_on_a_terminal


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


HANDLER = """
async def again(task, repos):
    if task["type"] == "bad":
        raise ConnectionError("still down")
    return {"done": repos}
def told(task, repos):
    return {"success": False, "error": "not today"}
"""


def use(shell: Shell, work: Callable[[DeadLetterQueue], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with DeadLetterQueue(store=f"sqlite:{shell.folder}/redrive.db") as dlq:
            return await work(dlq)

    return asyncio.run(run())


def filled(shell: Shell) -> None:
    """Three tasks: one waits for its retry, one for that one, one for a person."""

    async def fill(dlq: DeadLetterQueue) -> None:
        await dlq.enqueue("wf_1", {"type": "good"}, ["/a"], "Connection timeout", metadata={"team": "payments"})
        await dlq.enqueue("wf_2", {"type": "bad"}, ["/a", "/b"], "rate limit", "linear", 1, priority="high", depends_on=["wf_1"])
        await dlq.enqueue("wf_3", {"type": "bad"}, None, PermissionError("no"), "never", 0)

    shell.module("shop", HANDLER)
    use(shell, fill)


def test_status_tells_how_full_the_queue_is_and_what_has_happened(shell: Shell) -> None:
    filled(shell)
    shell("dlq", "retry", "wf_1", "--handler", "shop:again")
    status = shell("dlq", "status").out
    assert "2/10000 in the queue (0.02 %)" in status
    assert re.search(r"status +pending 1 +retrying 0 +exhausted 1 +completed 0 +archived 0", status)
    assert re.search(r"lifetime +enqueued_total 3 +retry_success 1 ", status)
    answer = shell("dlq", "status", "--json").json
    assert answer["error_categories"]["permission"] == 1
    assert answer["retry_policies"] == {"never": 1, "linear": 1, "exponential": 0, "immediate": 0}
    assert answer["health"] == {"status": "healthy", "store_error": None, "journaled_tasks": 0}
    assert "is_processor_running" not in answer, "a shell cannot know"


def test_the_size_comes_from_the_settings(shell: Shell) -> None:
    assert shell("dlq", "status", "--json", REDRIVE_DLQ_MAX_SIZE="250").json["max_size"] == 250
    sentence = shell.refused("dlq", "status", REDRIVE_DLQ_MAX_SIZ="250")
    assert sentence == "unknown environment variable REDRIVE_DLQ_MAX_SIZ; did you mean REDRIVE_DLQ_MAX_SIZE?"


def test_tasks_are_listed_by_status_and_category(shell: Shell) -> None:
    assert shell("dlq", "list").out == "No tasks.\n"
    filled(shell)
    listed = shell("dlq", "list").out
    assert re.search(r"^wf_3 +exhausted +permission +0/0 never ", listed, re.MULTILINE)
    assert listed.endswith("3 tasks.\n")
    assert [task["task_id"] for task in shell("dlq", "list", "--json").json["tasks"]] == ["wf_3", "wf_2", "wf_1"]
    for filters, expected in (
        (["--status", "exhausted"], ["wf_3"]),
        (["--category", "network"], ["wf_1"]),
        (["--limit", "1"], ["wf_3"]),
        (["--status", "archived"], []),
        (["--source", "other"], []),
    ):
        assert [task["task_id"] for task in shell("dlq", "list", "--json", *filters).json["tasks"]] == expected, filters


def test_show_tells_what_a_task_waits_for(shell: Shell) -> None:
    filled(shell)
    shown = shell("dlq", "show", "wf_2").out
    for line in (
        r"status +pending",
        r"retries +0/1, linear, next in \dm",
        r"depends on +wf_1",
        r"priority +10",
        r"repos +/a, /b",
    ):
        assert re.search(line, shown), line
    assert shell("dlq", "show", "wf_1", "--json").json["task"]["metadata"] == {"team": "payments"}
    assert shell.refused("dlq", "show", "wf_9", status=1) == "Task wf_9 not found in dead letter queue"


def test_what_is_shown_is_redacted_by_todays_rules(shell: Shell) -> None:
    async def fill(dlq: DeadLetterQueue) -> None:
        await dlq.enqueue("wf_1", {"mail": "ann@example.com"}, [], "no mailbox ann@example.com")

    use(shell, fill)
    shown = shell("dlq", "show", "wf_1", REDRIVE_REDACT="emails").out
    assert "[redacted:" in shown
    assert "ann@example.com" not in shown
    assert "ann@example.com" in shell("dlq", "show", "wf_1").out


def test_retry_says_what_became_of_each_task(shell: Shell) -> None:
    filled(shell)
    refused = shell("dlq", "retry", "wf_2", "--handler", "shop:again", status=1).out
    assert re.fullmatch(r"wf_2: Task retry failed: letter \S+ waits for 'wf_1' \(pending\); retry that first\n", refused)
    answer = shell("dlq", "retry", "wf_1", "wf_2", "wf_9", "--handler", "py:shop:again", "--json", status=1).json
    assert [(one["task_id"], one["success"]) for one in answer["results"]] == [("wf_1", True), ("wf_2", False), ("wf_9", False)]
    assert answer["results"][0]["result"] == {"done": ["/a"]}
    assert answer["results"][1]["error"] == "still down"
    assert answer["results"][2]["error"] == "Task wf_9 not found in dead letter queue"
    told = shell("dlq", "retry", "wf_3", "--handler", "shop:told", status=1).out
    assert told == "wf_3: Task retry failed: not today\n"
    assert shell.refused("dlq", "retry", "wf_3", "--handler", "shop:nothing") == "'shop' has no 'nothing'"


def test_archive_puts_tasks_away_by_id_or_all_that_are_exhausted(shell: Shell) -> None:
    filled(shell)
    done = shell("dlq", "archive", "wf_1", "wf_9", status=1)
    assert done.out == "1 task archived.\n"
    assert done.err == "wf_9 was not: it is not in the queue, or is being retried right now.\n"
    assert shell("dlq", "archive", "--exhausted", "--older", "7d").out == "0 tasks archived.\n"
    assert shell("dlq", "archive", "--exhausted", "--json").json["archived"] == ["wf_3"]
    assert [task["task_id"] for task in shell("dlq", "list", "--json").json["tasks"]] == ["wf_2"]
    assert shell.refused("dlq", "archive") == "Say which tasks: their ids, or --exhausted."
    assert shell.refused("dlq", "archive", "wf_2", "--exhausted") == "Say which tasks: their ids, or --exhausted."
    assert shell.refused("dlq", "archive", "wf_2", "--older", "7d") == "--older goes with --exhausted."


def test_clear_asks_first_and_its_letters_can_be_brought_back(shell: Shell) -> None:
    filled(shell)
    assert shell.refused("dlq", "clear") == "This would clear 3 tasks. Say --yes to do it without being asked."
    seen, status = seen_on_a_terminal(shell, "dlq", "clear", typed=b"n\n")
    assert ("Clear 3 tasks?" in seen, status) == (True, 130)
    assert shell("dlq", "clear", "--yes").out == "Cleared 3 tasks.\n"
    assert shell("dlq", "clear", "--yes", "--json").json == {"schema": 1, "cleared": 0}
    assert {letter["status"] for letter in shell.letters()} == {"discarded"}


def test_a_task_that_somebody_retries_right_now_is_left_alone(shell: Shell) -> None:
    filled(shell)
    with shell.store() as dlq:
        (letter,) = list(dlq.find(Is(Field.SOURCE_ID, "wf_1")))
        dlq.letters.claim(Claim(owner="other", lease=timedelta(hours=1), what=(letter.id,)))
    assert shell("dlq", "retry", "wf_1", "--handler", "shop:again", status=1).out == (
        "wf_1: Task retry failed: Task wf_1 is being retried right now\n"
    )
    assert shell("dlq", "archive", "wf_1", status=1).out == "0 tasks archived.\n"
    assert shell("dlq", "clear", "--yes").out == "Cleared 2 tasks.\n"
