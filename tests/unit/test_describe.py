"""What went wrong, read off an exception, however hostile the exception is."""

from __future__ import annotations

import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from redrive import Failure, blocking
from redrive.engine.describe import TRACEBACK_LIMIT, describe

MESSAGE_LIMIT = 8_192


def caught(function: Any, *args: Any) -> BaseException:
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("it did not fail")


def fail(message: str = "boom") -> None:
    raise ValueError(message)


def test_a_failure_says_type_message_and_where() -> None:
    failure = describe(caught(fail))
    assert (failure.type, failure.message, failure.category) == ("builtins.ValueError", "boom", "validation")
    assert failure.traceback.startswith("Traceback (most recent call last):\n")
    assert "in fail\n    raise ValueError(message)" in failure.traceback
    assert failure.traceback.endswith("ValueError: boom\n")
    assert len(failure.fingerprint) == 16
    assert failure.fingerprint_version == 2


def test_an_error_that_was_never_raised_has_no_traceback_but_all_the_rest() -> None:
    failure = describe(RuntimeError("made up"))
    assert (failure.type, failure.message, failure.traceback) == ("builtins.RuntimeError", "made up", "RuntimeError: made up\n")
    assert failure.fingerprint


def test_a_nested_type_is_fully_qualified() -> None:
    class Odd(Exception):
        pass

    assert describe(Odd()).type == f"{__name__}.test_a_nested_type_is_fully_qualified.<locals>.Odd"


def test_an_exception_that_knows_better_says_so_itself() -> None:
    told = Failure(type="shop.Refused", message="told")
    error = ValueError("not this")
    error.redrive_failure = told  # type: ignore[attr-defined]  # exactly what the docstring offers
    assert describe(error) is told
    error.redrive_failure = "nonsense"  # type: ignore[attr-defined]  # not a Failure, so it counts for nothing
    assert describe(error).message == "not this"


class RaisesInStr(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class ReturnsNoText(Exception):
    def __str__(self) -> str:
        return 42  # type: ignore[return-value]  # hostile on purpose


class RaisesInRepr(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no repr either")


class RecursesInStr(Exception):
    def __str__(self) -> str:
        return str(self)


class RaisesInGetattr(Exception):
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no attribute {name}")


class RaisesInNotes(Exception):
    @property
    def __notes__(self) -> list[str]:
        raise RuntimeError("no notes")


class NotesAreNoList(Exception):
    __notes__ = 5


class ToldRaises(Exception):
    @property
    def redrive_failure(self) -> Failure:
        raise KeyError("lost")


class HostileGroup(ExceptionGroup):
    @property
    def exceptions(self) -> Any:
        raise RuntimeError("no members")


class HostileCause(Exception):
    @property
    def __cause__(self) -> Any:  # type: ignore[override]  # hostile on purpose
        raise RuntimeError("no cause")


class Unequal(Exception):
    __hash__ = None  # type: ignore[assignment]  # hostile on purpose

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")


@pytest.mark.parametrize(
    "error",
    [
        RaisesInStr("x"), ReturnsNoText("x"), RaisesInRepr("x"), RecursesInStr("x"), RaisesInGetattr("x"), RaisesInNotes("x"),
        NotesAreNoList("x"), ToldRaises("x"), HostileGroup("x", [ValueError()]), HostileCause("x"), Unequal("x"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), KeyError(), SystemExit(3), KeyboardInterrupt(), StopIteration(object()),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_no_exception_is_so_hostile_that_it_cannot_be_described(error: BaseException) -> None:
    failure = describe(error)
    assert failure.type.endswith(type(error).__qualname__)
    assert isinstance(failure.message, str)
    wrapped = RuntimeError("outer")
    wrapped.__cause__ = error
    assert describe(wrapped).causes[0].type == failure.type


def test_odd_notes_do_not_cost_the_message() -> None:
    assert "x" in describe(NotesAreNoList("x")).message


def test_code_without_a_proper_module_name_can_fail_too() -> None:
    for name in (None, 5, SimpleNamespace()):
        error = caught(exec, "def f():\n    raise ValueError('boom')\nf()", {"__name__": name})
        failure = describe(error)
        assert failure.message == "boom"
        assert failure.fingerprint
    assert describe(caught(exec, "raise ValueError('boom')", {})).message == "boom"


def test_notes_belong_to_the_message() -> None:
    error = ValueError("boom")
    error.add_note("order 17")
    error.add_note("second note")
    assert describe(error).message == "boom\norder 17\nsecond note"


def test_the_chain_of_causes_is_kept_nearest_first() -> None:
    def third() -> None:
        try:
            try:
                raise KeyError("first")
            except KeyError as error:
                raise LookupError("second") from error
        except LookupError:
            raise RuntimeError("third")  # noqa: B904 - the implicit context is what is tested

    failure = describe(caught(third))
    assert [(cause.type, cause.message) for cause in failure.causes] == [
        ("builtins.LookupError", "second"),
        ("builtins.KeyError", "'first'"),
    ]
    assert failure.traceback.index("KeyError: 'first'") < failure.traceback.index("LookupError: second")
    assert failure.traceback.count("which led to:") == 2
    assert failure.traceback.endswith("RuntimeError: third\n")


def test_a_context_that_was_suppressed_is_left_out() -> None:
    def quiet() -> None:
        try:
            raise KeyError("hidden")
        except KeyError:
            raise RuntimeError("shown") from None

    failure = describe(caught(quiet))
    assert failure.causes == ()
    assert "hidden" not in failure.traceback


def test_causes_that_run_in_a_circle_are_told_once() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert [cause.message for cause in describe(one).causes] == ["two"]
    alone = ValueError("alone")
    alone.__cause__ = alone
    assert describe(alone).causes == ()


def test_the_members_of_a_group_follow_it() -> None:
    inner = ExceptionGroup("inner", [TypeError("b")])
    failure = describe(caught_group([ValueError("a"), inner]))
    assert failure.type == "builtins.ExceptionGroup"
    assert [cause.message for cause in failure.causes] == ["a", "inner (1 sub-exception)", "b"]
    assert all(f": {text}" in failure.traceback for text in ("a", "b"))


def caught_group(members: list[Exception]) -> BaseException:
    def fail_together() -> None:
        raise ExceptionGroup("outer", members)

    return caught(fail_together)


def test_a_chain_or_a_group_without_end_is_cut_at_a_bound() -> None:
    last = ValueError("0")
    for number in range(1, 5_000):
        following = ValueError(str(number))
        following.__cause__ = last
        last = following
    assert 1 < len(describe(last).causes) <= 50
    assert 1 < len(describe(ExceptionGroup("many", [ValueError(str(number)) for number in range(50_000)])).causes) <= 50


def recurse(depth: int) -> None:
    if depth == 0:
        raise ValueError("at the bottom")
    recurse(depth - 1)


def runaway() -> None:
    runaway()


def test_a_runaway_recursion_is_described_by_its_start_and_its_end() -> None:
    failure = describe(caught(runaway))
    assert failure.type == "builtins.RecursionError"
    assert len(failure.traceback) <= TRACEBACK_LIMIT
    assert "in runaway" in failure.traceback
    assert 2 < failure.traceback.count("in runaway") <= 250


def test_ten_megabytes_of_message_are_cut_in_the_middle_and_say_so() -> None:
    text = "start " + "x" * 10_000_000 + " end"
    failure = describe(caught(fail, text))
    assert len(failure.message) <= MESSAGE_LIMIT
    assert failure.message.startswith("start ")
    assert failure.message.endswith(" end")
    assert len(failure.traceback) <= TRACEBACK_LIMIT


def test_the_mark_of_a_cut_tells_how_much_is_missing() -> None:
    text = "a" * 20_000
    message = describe(ValueError(text)).message
    cut = re.search(r"\n… (\d+) characters cut …\n", message)
    assert cut
    assert len(message) - len(cut[0]) + int(cut[1]) == len(text)


@pytest.mark.parametrize("limit", [0, 1, 10, 40, 100, 1_000])
def test_a_traceback_stays_within_its_limit(limit: int) -> None:
    assert len(describe(caught(recurse, 50), traceback_limit=limit).traceback) <= limit


def test_a_chain_of_giants_stays_within_the_bounds() -> None:
    error = ValueError("y" * 1_000_000)
    for _ in range(30):
        following = ValueError("z" * 1_000_000)
        following.__cause__ = error
        error = following
    failure = describe(error)
    assert len(failure.traceback) <= TRACEBACK_LIMIT
    assert all(len(cause.message) <= MESSAGE_LIMIT for cause in failure.causes)


def test_lone_surrogates_are_escaped_so_that_every_store_can_write_them() -> None:
    error = ValueError("bad \ud800 text")
    error.add_note("note \udcff")
    error.__cause__ = KeyError("cause \udfff")
    failure = describe(error)
    for text in (failure.message, failure.traceback, failure.causes[0].message):
        assert text.encode()
    assert failure.message == "bad \\ud800 text\nnote \\udcff"


def test_a_type_with_an_impossible_name_can_be_written() -> None:
    class Odd(Exception):
        pass

    Odd.__qualname__ = "Odd\udcff"
    failure = describe(Odd("x"))
    assert failure.type.encode()
    assert failure.traceback.encode()


def test_the_same_failure_has_the_same_fingerprint_whatever_its_message_says() -> None:
    assert describe(caught(fail, "order 1")).fingerprint == describe(caught(fail, "order 2")).fingerprint


def other() -> None:
    raise ValueError("boom")


def odd() -> None:
    raise TypeError("boom")


def test_another_place_or_another_type_is_another_failure() -> None:
    prints = {describe(caught(function)).fingerprint for function in (fail, other, odd)}
    assert len(prints) == 3


def test_the_way_to_the_failure_counts_too() -> None:
    def through() -> None:
        fail()

    assert describe(caught(through)).fingerprint != describe(caught(fail)).fingerprint


def test_without_frames_the_message_decides_but_not_its_numbers_names_and_paths() -> None:
    def print_of(message: str) -> str:
        return describe(RuntimeError(message)).fingerprint

    assert print_of("order 17 at /srv/a/b failed") == print_of("order 23455 at /home/c failed")
    assert print_of("no key 'abc'") == print_of("no key 'xyz'")
    assert print_of("object at 0x7fffabcd") == print_of("object at 0x7000abce")
    assert print_of("7c9e6679-7425-40de-944b-e07fc1f90ae7 is gone") == print_of("00000000-0000-4000-8000-000000000000 is gone")
    assert print_of("disk is full") != print_of("disk is gone")


def test_a_recursion_is_the_same_failure_however_deep_it_went() -> None:
    shallow, deep = (describe(caught(recurse, depth)).fingerprint for depth in (300, 345))
    assert shallow == deep
    here = describe(caught(runaway)).fingerprint

    def from_deeper(levels: int) -> BaseException:
        return from_deeper(levels - 1) if levels else caught(runaway)

    assert describe(from_deeper(33)).fingerprint == here


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    program = (
        "from redrive.engine.describe import describe\n"
        "def fail(): raise ValueError('boom')\n"
        "try: fail()\n"
        "except ValueError as error: print(describe(error).fingerprint)\n"
    )
    prints = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(prints) == 1


def test_the_guard_itself_is_not_part_of_the_way() -> None:
    with blocking.open("memory:") as dlq:
        bare = describe(caught(fail)).traceback
        dlq.guard(source="orders")(fail)()
        (letter,) = dlq.find()
    assert "engine" not in letter.failure.traceback
    assert letter.failure.traceback.splitlines()[-2:] == bare.splitlines()[-2:]
