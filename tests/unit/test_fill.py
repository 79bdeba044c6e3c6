"""Made-up letters: the same from the same seed, as uneven as real ones, and quick to make."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from statistics import median

import pytest

from redrive import BadSettings, Status
from redrive.backends.memory import MemoryLetters
from redrive.model.stored import restored, stored
from redrive.testing.fill import END, fill, letters
from tests.unit.shell import Shell, seen_on_a_terminal
from tests.unit.test_bulk import tell

SOME = list(letters(8000, groups=2000, seed=7))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_the_same_seed_and_number_make_the_same_letter() -> None:
    assert list(letters(300, groups=2000, seed=7, of=8000)) == SOME[:300]
    assert list(letters(10, groups=2000, seed=7, start=200, of=8000)) == SOME[200:210]
    assert list(letters(5, groups=2000, seed=8)) != SOME[:5]


def test_another_process_makes_the_same() -> None:
    program = (
        "from redrive.testing.fill import letters; from redrive.model.stored import stored; import hashlib;"
        "print(hashlib.sha256(b''.join(map(stored, letters(200, groups=2000, seed=7, of=8000)))).hexdigest())"
    )
    ours = hashlib.sha256(b"".join(map(stored, SOME[:200]))).hexdigest()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ours


def test_letters_are_made_as_they_are_taken() -> None:
    assert len(list(islice(letters(10**12, groups=10), 3))) == 3


def test_no_two_are_one_and_all_can_be_stored() -> None:
    assert len({one.id for one in SOME}) == len(SOME)
    assert len({attempt.occurrence for one in SOME for attempt in one.history}) == sum(len(one.history) for one in SOME)
    assert all(restored(stored(one)) == one for one in SOME[:500])


def test_few_failures_make_most_letters_and_many_make_few() -> None:
    groups = Counter(one.failure.fingerprint for one in SOME)
    ordered = [count for _, count in groups.most_common()]
    assert len(groups) > 800
    assert sum(ordered[:20]) > len(SOME) * 0.25
    assert ordered.count(1) > 200
    kinds = {(one.failure.fingerprint, one.failure.type, one.source, one.failure.category) for one in SOME}
    assert len(kinds) == len(groups), "a group is one failure of one source"


def test_sources_errors_categories_and_statuses_are_many_and_uneven() -> None:
    assert len({one.source for one in SOME}) in (39, 40)
    assert len({one.failure.type for one in SOME}) == 60
    assert len({one.failure.category for one in SOME}) == 6
    statuses = Counter(one.status for one in SOME)
    assert set(statuses) == set(Status) - {Status.RETRYING, Status.REDRIVEN}
    assert statuses[Status.EXHAUSTED] + statuses[Status.PENDING] > len(SOME) / 2
    assert {len(one.history) for one in SOME} == {1, 2, 3}
    assert {tag for one in SOME for tag in one.tags} >= {"eu", "vip"}


def test_an_error_says_what_such_an_error_says() -> None:
    areas = "|".join({one.source.removesuffix("-events") for one in SOME})
    said = {(one.failure.type, re.sub(rf"\b({areas})\b|\d{{5}}", "…", one.failure.message)) for one in SOME}
    assert len(said) == len({type for type, _ in said}), "one sentence for each"
    assert ("builtins.ConnectionRefusedError", "cannot connect to ….internal:…: connection refused") in said


def test_bodies_are_json_of_all_sizes() -> None:
    assert all(json.loads(one.body)["customer"] for one in SOME)
    sizes = sorted(len(one.body) for one in SOME)
    assert sizes[0] >= 150
    assert 1000 < sizes[len(sizes) // 2] < 2000
    assert 15_000 < sizes[-1] < 21_000


def test_some_words_are_everywhere_some_in_half_some_hardly_anywhere() -> None:
    words = Counter(word for one in SOME for word in set(re.findall(r"\w+", one.body.decode().lower())))
    assert words["order"] > len(SOME) * 0.7
    assert 0.45 < words["web"] / len(SOME) < 0.55
    assert sum(count <= 5 for count in words.values()) > 5000


def test_tracebacks_have_frames() -> None:
    frames = [one.failure.traceback.count("  File ") for one in SOME]
    assert (min(frames), max(frames)) == (5, 20)
    assert all(one.failure.traceback.endswith(f"{one.failure.type}: {one.failure.message}\n") for one in SOME[:200])


def test_they_died_over_the_days_by_the_hours_of_people_and_in_outages() -> None:
    times = [one.dead_lettered_at for one in SOME]
    assert END - timedelta(days=30) <= min(times) < END - timedelta(days=29)
    assert END - timedelta(days=1) < max(times) <= END
    by_day = Counter((at.hour, at.date()) for at in times)
    noon, night = (median(count for (of, _), count in by_day.items() if of == hour) for hour in (11, 3))
    assert noon > 3 * night
    busiest = Counter(at.replace(minute=0, second=0, microsecond=0) for at in times).most_common(1)[0][1]
    assert busiest > 8 * len(SOME) / (30 * 24)
    assert all(one.first_received_at <= one.history[0].at <= one.dead_lettered_at == one.history[-1].at for one in SOME)


def test_they_come_in_the_order_of_their_time_which_goes_on_beyond_the_end() -> None:
    times = [one.dead_lettered_at for one in SOME]
    assert times == sorted(times)
    later = list(letters(100, groups=10, start=8000, of=8000))
    assert END <= later[0].dead_lettered_at < later[-1].dead_lettered_at < END + timedelta(days=1)


def test_days_end_and_namespace_can_be_chosen() -> None:
    end = datetime(2020, 2, 2, tzinfo=UTC)
    few = list(letters(100, groups=3, days=0.5, end=end, namespace="shop"))
    assert all(end - timedelta(hours=12) <= one.dead_lettered_at <= end for one in few)
    assert {one.namespace for one in few} == {"shop"}
    assert len({one.failure.fingerprint for one in few}) <= 3


@pytest.mark.parametrize("wrong", [{"count": -1}, {"count": 1, "groups": 0}, {"count": 1, "days": 0}], ids=str)
def test_what_cannot_be_made_is_told_at_once(wrong: dict[str, int]) -> None:
    with pytest.raises(BadSettings, match="letters are made by count"):
        letters(**wrong)


def test_a_store_is_filled_in_batches_and_twice_is_once() -> None:
    async def story() -> None:
        store, heard = MemoryLetters(), list[int]()
        assert await fill(store, iter(SOME[:250]), batch=100, progress=heard.append) == 250
        assert heard == [100, 200, 250]
        await fill(store, iter(SOME[:250]))
        assert await store.count() == 250
        (one,) = await store.get([SOME[0].id])
        assert one == SOME[0]

    tell(story())


def test_the_command_fills_a_store(shell: Shell) -> None:
    out = shell("testing", "fill", "--count", "700", "--groups", "20", "--seed", "3").out
    assert re.fullmatch(r"Put 700 letters into sqlite:redrive\.db in [\d.]+ s, [\d,]+ a second\.\n", out)
    assert shell("testing", "fill", "--count", "700", "--groups", "20", "--seed", "3", "--json").json["put"] == 700
    with shell.store() as dlq:
        assert dlq.count() == 700
        ages = [datetime.now(UTC) - one.dead_lettered_at for one in dlq.find()]
    assert timedelta() <= min(ages) <= max(ages) < timedelta(days=31)


def test_an_end_makes_it_the_same_whenever_it_is_run(shell: Shell) -> None:
    shell("testing", "fill", "--count", "50", "--groups", "5", "--until", "2025-03-01")
    with shell.store() as dlq:
        found = {one.id: one for one in dlq.find()}
    assert found == {one.id: one for one in letters(50, groups=5, end=datetime(2025, 3, 1, tzinfo=UTC))}


def test_a_terminal_shows_how_far_it_is(shell: Shell) -> None:
    seen, status = seen_on_a_terminal(shell, "testing", "fill", "--count", "1000", "--groups", "10")
    assert status == 0
    assert "filling" in seen
    assert "1,000 of 1,000" in seen


def test_counts_below_one_are_refused(shell: Shell) -> None:
    assert "is not in the range" in shell.refused("testing", "fill", "--count", "0")
