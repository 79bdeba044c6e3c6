"""What makes two failures the same failure: on two machines, in two runs, at two addresses; and what makes them two."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import linecache
import zipfile
import zipimport
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from redrive import Failure, blocking
from redrive.engine.describe import describe
from redrive.engine.frames import FRAMES_LIMIT
from redrive.model.fingerprint import VERSION
from redrive.serve.cli.paper import letter_story


def caught(function: Callable[..., Any], *args: Any) -> BaseException:
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("it did not fail")


def group_of(function: Callable[..., Any], *args: Any) -> str:
    return describe(caught(function, *args)).fingerprint


def imported(folder: Path, source: str, name: str = "orders") -> Any:
    """A module of that name in that folder, as on a machine of its own."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def frame_of(function: Callable[..., Any]) -> BaseException:
    """The error with the function's own frames only, as if it had been caught right there."""
    error = caught(function)
    assert error.__traceback__ is not None
    return error.with_traceback(error.__traceback__.tb_next)


ORDERS = """
def handle(order=1):
    reserve(order)

def reserve(order):
    raise ValueError(f"no stock for {order}")
"""


def test_the_same_failure_on_two_machines_is_one_group(tmp_path: Path) -> None:
    here, there = (imported(tmp_path / name, ORDERS) for name in ("srv", "home"))
    one, other = describe(frame_of(here.handle)), describe(frame_of(there.handle))
    assert one.traceback != other.traceback
    assert (one.fingerprint, one.fingerprint_version) == (other.fingerprint, VERSION)
    assert one.fingerprint_reason == "in orders:reserve"


EDITED = """
import os

def handle(order=1):
    # Reserved first, paid later.
    reserve(order)

def reserve(order):
    order += 1
    if order:
        raise ValueError(f"no stock for {order}")
"""


def test_an_edit_elsewhere_splits_no_group(tmp_path: Path) -> None:
    before, after = imported(tmp_path / "before", ORDERS), imported(tmp_path / "after", EDITED)
    assert group_of(before.handle) == group_of(after.handle)


def test_a_file_that_was_edited_and_loaded_again_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.engine.frames._STALE_SECONDS", 0.0)
    describe(caught(imported(tmp_path, ORDERS).handle))
    edited = imported(tmp_path, "\n\n\n" + ORDERS.replace("no stock", "nothing left"))
    assert "nothing left for {order}" in describe(caught(edited.handle)).traceback


def raise_here_or_there(here: bool) -> None:
    if here:
        raise ValueError("one place")
    raise ValueError("another place")


def call_here_or_there(here: bool) -> None:
    if here:
        raise_here_or_there(True)
    else:
        (raise_here_or_there)(True)


def call_alike(here: bool) -> None:
    if here:
        raise_here_or_there(True)
    if not here:
        raise_here_or_there(True)


@pytest.mark.parametrize("function", [raise_here_or_there, call_here_or_there, call_alike])
def test_two_call_sites_in_one_function_are_two_groups(function: Callable[[bool], None]) -> None:
    assert group_of(function, True) == group_of(function, True)
    assert group_of(function, True) != group_of(function, False)


def test_without_the_source_functions_count_and_where_in_them(tmp_path: Path) -> None:
    def sourceless(folder: str, above: str) -> Any:
        module = imported(tmp_path / folder, above + ORDERS, "sourceless")
        (tmp_path / folder / "sourceless.py").unlink()
        return module

    one, other = sourceless("one", ""), sourceless("other", "import os\n\n")
    failure = describe(frame_of(one.handle))
    assert "in reserve\nValueError" in failure.traceback
    assert failure.fingerprint_reason == "in sourceless:reserve"
    assert failure.fingerprint == describe(frame_of(other.handle)).fingerprint
    here_or_there = "def run(here):\n    if here:\n        raise ValueError\n    raise ValueError\n"
    run = made(here_or_there, "<string>", __name__="shop")
    assert group_of(run, True) != group_of(run, False)


def test_code_in_an_archive_is_the_applications_too(tmp_path: Path) -> None:
    archive = tmp_path / "app.pyz"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("orders.py", ORDERS)
    importer = zipimport.zipimporter(str(archive))
    spec = importer.find_spec("orders")
    assert spec is not None
    zipped = importlib.util.module_from_spec(spec)
    importer.exec_module(zipped)
    assert "raise ValueError" in describe(frame_of(zipped.handle)).traceback
    assert describe(frame_of(zipped.handle)).fingerprint == describe(frame_of(imported(tmp_path, ORDERS).handle)).fingerprint


def made(source: str, filename: str, **names: Any) -> Callable[..., Any]:
    space = dict(names)
    exec(compile(source, filename, "exec"), space)
    function: Callable[..., Any] = space["run"]
    return function


FAILS = "def run():\n    raise ValueError('order 17 is gone')\n"


@pytest.mark.parametrize(
    ("filename", "names", "is_own"),
    [
        ("/srv/shop/orders.py", {"__name__": "shop.orders"}, True),
        ("<string>", {"__name__": "shop.orders"}, True),
        ("<ipython-input-3-0123>", {"__name__": "__main__"}, True),
        ("shop/orders.pyx", {"__name__": "shop.orders", "__file__": "/srv/shop/orders.so"}, True),
        ("C:\\shop\\orders.py", {"__name__": "shop.orders"}, True),
        ("driver/protocol.pyx", {"__name__": "driver", "__file__": "/venv/lib/python3.11/site-packages/driver.so"}, False),
        ("/venv/lib/python3.11/site-packages/httpx/_client.py", {"__name__": "httpx._client"}, False),
        ("/usr/lib/python3/dist-packages/six.py", {"__name__": "six"}, False),
        ("C:\\venv\\Lib\\site-packages\\six.py", {"__name__": "six"}, False),
        (linecache.__file__, {"__name__": "linecache"}, False),
        ("<frozen runpy>", {"__name__": "runpy"}, False),
        ("/srv/redrive/model/letter.py", {"__name__": "redrive.model.letter"}, False),
        ("/srv/redrive_shop/orders.py", {"__name__": "redrive_shop.orders"}, True),
        ("<string>", {}, False),
        ("", {"__name__": "shop"}, True),
        ("/srv/x.py", {"__name__": 5}, False),
    ],
)
def test_only_the_applications_own_frames_count(filename: str, names: dict[str, Any], is_own: bool) -> None:
    failure = describe(frame_of(made(FAILS, filename, **names)))
    if is_own:
        assert failure.fingerprint_reason == f"in {names['__name__']}:run"
    else:
        assert failure.fingerprint_reason == "by its message: order * is gone"


def test_a_file_name_that_cannot_be_one_is_told_as_it_is() -> None:
    def run() -> None:
        raise ValueError("x")

    run.__code__ = run.__code__.replace(co_filename="/bad\0name\udcff")
    failure = describe(frame_of(run))
    assert 'File "/bad\0name\\udcff"' in failure.traceback
    assert failure.fingerprint_reason.endswith("run")


def test_lambdas_decorators_dataclasses_and_comprehensions_have_places() -> None:
    @dataclass
    class Order:
        total: int

        def __post_init__(self) -> None:
            raise ValueError("no total")

    @functools.wraps(test_two_call_sites_in_one_function_are_two_groups)
    def decorated() -> None:
        (lambda: [fail(True) for fail in (raise_here_or_there,)])()

    assert describe(caught(Order, 1)).fingerprint_reason.endswith("Order.__post_init__")
    assert describe(caught(decorated)).fingerprint_reason == f"in {__name__}:raise_here_or_there"


def test_a_program_is_known_by_the_name_of_its_module() -> None:
    spec = importlib.util.spec_from_loader("shop.worker", None)
    run = made(FAILS, "/srv/shop/worker.py", __name__="__main__", __spec__=spec)
    assert describe(frame_of(run)).fingerprint_reason == "in shop.worker:run"


class OrderFailed(Exception):
    pass


def wrap(cause: BaseException | None, message: str = "failed") -> None:
    raise OrderFailed(message) from cause


def test_a_wrapper_around_another_cause_is_another_failure() -> None:
    groups = {group_of(wrap, cause) for cause in (None, TimeoutError("a"), KeyError("b"), caught(raise_here_or_there, True))}
    assert len(groups) == 4
    assert group_of(wrap, TimeoutError("10.0.0.1")) == group_of(wrap, TimeoutError("10.0.0.2"))
    assert describe(caught(wrap, TimeoutError())).fingerprint_reason == f"in {__name__}:wrap, caused by TimeoutError"


def test_how_often_it_was_tried_before_does_not_count() -> None:
    def tried(times: int) -> BaseException:
        error: BaseException = TimeoutError("no answer")
        for _ in range(times):
            following = TimeoutError("no answer")
            following.__context__ = error
            error = following
        return error

    assert describe(tried(2)).fingerprint == describe(tried(5)).fingerprint


def test_a_hidden_context_does_not_count() -> None:
    def hide(error: BaseException) -> None:
        try:
            raise error
        except BaseException:
            raise OrderFailed("x") from None

    assert group_of(hide, KeyError(1)) == group_of(hide, TypeError(2))


def test_notes_split_no_group() -> None:
    noted = caught(raise_here_or_there, True)
    noted.add_note("order 17")
    assert describe(noted).fingerprint == group_of(raise_here_or_there, True)
    unraised = RuntimeError("gone")
    unraised.add_note("order")
    assert describe(unraised).fingerprint == describe(RuntimeError("gone")).fingerprint


def together(*members: Exception) -> None:
    raise ExceptionGroup("several", members)


def test_a_group_is_known_by_its_members_in_any_order_and_number() -> None:
    one, two = caught(raise_here_or_there, True), caught(raise_here_or_there, False)
    assert group_of(together, one, two) == group_of(together, two, one, caught(raise_here_or_there, True))
    assert group_of(together, one) != group_of(together, two)
    assert group_of(together, one) != group_of(together, one, two)
    reason = describe(caught(together, ValueError("a"), KeyError("b"))).fingerprint_reason
    assert reason == f"in {__name__}:together, a group of KeyError, ValueError"
    assert describe(ExceptionGroup("x", [KeyError(1)])).fingerprint_reason == "by its members, a group of KeyError"
    assert group_of(wrap, ExceptionGroup("x", [KeyError()])) != group_of(wrap, ExceptionGroup("x", [TypeError()]))


def test_tasks_that_fail_together_are_one_failure_whichever_is_first() -> None:
    async def fail(kind: type[Exception]) -> None:
        raise kind("x")

    async def race(*kinds: type[Exception]) -> None:
        async with asyncio.TaskGroup() as group:
            for kind in kinds:
                group.create_task(fail(kind))

    def run(*kinds: type[Exception]) -> None:
        asyncio.run(race(*kinds))

    assert group_of(run, KeyError, TypeError) == group_of(run, TypeError, KeyError)
    assert group_of(run, KeyError, TypeError) != group_of(run, TypeError, ValueError)


class CardDeclined(Exception):
    redrive_fingerprint: Any = "card declined"


def test_an_application_says_itself_what_belongs_together() -> None:
    def elsewhere() -> None:
        raise CardDeclined("other")

    plain = describe(CardDeclined("one"))
    assert plain.fingerprint_reason == "custom: card declined"
    assert plain.fingerprint == group_of(elsewhere)
    several = CardDeclined()
    several.redrive_fingerprint = ("card declined", "visa")
    assert describe(several).fingerprint_reason == "custom: card declined, visa"
    assert describe(several).fingerprint != plain.fingerprint
    assert group_of(wrap, several) != group_of(wrap, CardDeclined())


@pytest.mark.parametrize("value", [None, "", (), [], 5, object(), (5, None), b"x", {"a": "b"}, ("",)])
def test_an_own_word_that_is_none_counts_for_nothing(value: Any) -> None:
    error = caught(raise_here_or_there, True)
    error.redrive_fingerprint = value  # type: ignore[attr-defined]  # exactly what the docs offer
    assert describe(error).fingerprint == group_of(raise_here_or_there, True)


def test_a_stack_is_never_taken_for_another_whose_code_is_gone() -> None:
    for number in range(1_500):
        run = made(f"def run():\n    {'pass;' * (number % 3)} raise ValueError", f"/srv/app{number}.py", __name__=f"app{number}")
        failure = describe(frame_of(run))
        assert failure.fingerprint_reason == f"in app{number}:run"
        assert f"/srv/app{number}.py" in failure.traceback


def test_threads_do_not_mix_up_their_stacks() -> None:
    def work(thread: int) -> None:
        for number in range(300):
            name = f"app{thread}_{number % 40}"
            failure = describe(frame_of(made(FAILS, f"/srv/{name}.py", __name__=name)))
            assert failure.fingerprint_reason == f"in {name}:run"

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_the_frames_left_out_are_counted_for_each_depth() -> None:
    def recurse(depth: int) -> None:
        if depth == 0:
            raise ValueError("at the bottom")
        recurse(depth - 1)

    one, other = (describe(caught(recurse, depth)) for depth in (FRAMES_LIMIT + 10, FRAMES_LIMIT + 50))
    assert "… 12 frames cut …" in one.traceback
    assert "… 52 frames cut …" in other.traceback
    assert one.fingerprint == other.fingerprint


def test_a_recursion_without_end_is_one_failure_wherever_it_stops() -> None:
    def runs(levels: int) -> BaseException:
        def even() -> None:
            len("something that can reach the limit as well")
            odd()

        def odd() -> None:
            helper()
            even()

        def helper() -> None:
            str(len(repr(5)))

        return runs(levels - 1) if levels else caught(even)

    failures = [describe(runs(levels)) for levels in range(8)]
    assert len({one.fingerprint for one in failures}) == 1
    assert all(" frames cut …" in one.traceback for one in failures)


def test_the_reason_is_kept_and_shown() -> None:
    with blocking.open("memory:") as dlq:
        dlq.guard(source="orders")(raise_here_or_there)(True)
        (letter,) = dlq.find()
    reason = f"in {__name__}:raise_here_or_there"
    assert letter.failure.fingerprint_reason == reason
    console = Console(file=StringIO(), width=200)
    console.print(letter_story(letter, b""))
    assert f"{letter.failure.fingerprint} ({reason})" in console.file.getvalue()  # type: ignore[attr-defined]  # it is a StringIO


def test_the_guard_adds_nothing_to_the_group() -> None:
    def handle() -> None:
        raise ValueError("x")

    with blocking.open("memory:") as dlq:
        dlq.guard(source="orders")(handle)()
        (letter,) = dlq.find()
    assert letter.failure.fingerprint == describe(frame_of(handle)).fingerprint


def test_letters_of_the_past_have_no_reason() -> None:
    assert Failure(type="x", fingerprint="f1", fingerprint_version=1).fingerprint_reason == ""
