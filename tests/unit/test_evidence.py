"""What an exception tells about itself, however hostile it is."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive import Category
from redrive.model.classify import Evidence, classify
from redrive.model.evidence import read

ATTRIBUTES = (
    "status_code", "status", "http_status", "response", "resp", "code", "sqlstate", "pgcode", "sqlite_errorname", "errno",
    "smtp_code", "orig", "reason", "exceptions", "grpc_status_code", "__cause__", "__context__", "__suppress_context__", "__notes__",
    "__class__", "__str__", "args",
)  # fmt: skip


def test_type_bases_message_and_numbers_are_read() -> None:
    error = OSError(28, "full", "/x")
    error.add_note("while writing")
    assert read(error) == Evidence(
        names=("builtins.OSError", "builtins.Exception", "builtins.BaseException"),
        message="[Errno 28] full: '/x'\nwhile writing",
        errno=28,
    )


def test_what_it_came_from_is_read_nearest_first() -> None:
    inner, middle, outer = ConnectionResetError("a"), RuntimeError("b"), RuntimeError("c")
    outer.__cause__, middle.__context__ = middle, inner
    seen = read(outer)
    assert seen.cause is not None
    assert seen.cause.cause is not None
    assert (seen.message, seen.cause.message, seen.cause.cause.message) == ("c", "b", "a")
    middle.__suppress_context__ = True
    seen = read(outer)
    assert seen.cause is not None
    assert seen.cause.cause is None


def test_a_group_came_from_its_first_member() -> None:
    group = ExceptionGroup("two", [ConnectionResetError("first"), ValueError("second")])
    group.__cause__ = ValueError("other")
    assert classify(read(ExceptionGroup("outer", [group]))).category is Category.NETWORK


def test_a_circle_ends_and_a_chain_is_cut() -> None:
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert classify(read(first)).category is Category.PERMANENT
    first.__cause__ = first
    assert read(first).cause is None
    last: BaseException = ConnectionError()
    for _ in range(5_000):
        following = RuntimeError()
        following.__cause__ = last
        last = following
    depth, link = 0, read(last).cause
    while link is not None:
        depth, link = depth + 1, link.cause
    assert depth == 9


class Endless(Exception):
    def __str__(self) -> str:
        return "timeout " + "x" * 10_000_000


def test_ten_megabytes_are_cut() -> None:
    for error in (Endless(), ValueError("y" * 10_000_000)):
        # What it computes: others may have their turns meanwhile.
        began = time.thread_time()
        seen = read(error)
        classify(seen)
        assert time.thread_time() - began < 0.5
        assert len(seen.message) <= 8_192
    error = ValueError("x")
    error.__notes__ = ["z" * 10_000_000] * 1_000
    assert len(read(error).message) <= 8_192


def test_names_and_codes_can_be_written_and_are_not_endless() -> None:
    odd = type("Odd", (Exception,), {"code": "\ud800" * 10_000, "__qualname__": "Odd\udcff"})
    seen = read(odd())
    assert all(name.encode() for name in seen.names)
    assert seen.code is not None
    assert len(seen.code.encode()) < 3_000
    long = type("L" * 10_000_000, (Exception,), {})
    assert len(classify(read(long())).why) < 1_000


class Refuses:
    """Answers nothing without raising."""

    def __init__(self, raised: type[BaseException] = RuntimeError) -> None:
        object.__setattr__(self, "_raised", raised)

    def __getattribute__(self, name: str) -> Any:
        raise object.__getattribute__(self, "_raised")(name)

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]  # hostile on purpose


class LyingText(str):
    __slots__ = ()

    def __getitem__(self, key: Any) -> str:
        raise RuntimeError("no characters")

    def __len__(self) -> int:
        return 10**12

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    def __hash__(self) -> int:
        raise RuntimeError("no hash")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    def startswith(self, *_: Any) -> bool:
        raise RuntimeError("no start")


class LyingNumber(int):
    def __ge__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __le__ = __gt__ = __lt__ = __eq__ = __ge__  # type: ignore[assignment]  # hostile on purpose

    def __hash__(self) -> int:
        raise RuntimeError("no hash")

    def __index__(self) -> int:
        raise RuntimeError("no number")


class LyingDict(dict[str, Any]):
    def get(self, *_: Any) -> Any:
        raise RuntimeError("no entry")

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("no entry")


class Meta(type):
    def __hash__(cls) -> int:
        raise RuntimeError("no hash")

    @property
    def __module__(cls) -> Any:
        raise RuntimeError("no module")

    def __instancecheck__(cls, other: object) -> bool:
        raise RuntimeError("no instances")


values: st.SearchStrategy[Any] = st.deferred(
    lambda: (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=30)
        | st.binary(max_size=9)
        | st.builds(Refuses, st.sampled_from([RuntimeError, AttributeError, RecursionError, GeneratorExit, MemoryError]))
        | st.builds(LyingText, st.text(max_size=9))
        | st.builds(LyingNumber, st.integers(0, 700))
        | st.builds(object)
        | st.sampled_from([int, ValueError, Category.NETWORK, len])
        | st.builds(ValueError, st.text(max_size=9))
        | st.lists(values, max_size=3)
        | st.lists(values, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from(["Error", "Code", "ResponseMetadata", "HTTPStatusCode"]), values, max_size=3)
        | st.dictionaries(st.sampled_from(["Error", "ResponseMetadata"]), values, max_size=2).map(LyingDict)
        | errors
    )
)


def hostile(attributes: dict[str, Any], raising: dict[str, type[BaseException]], base: type[Exception], meta: bool) -> Any:
    """An exception whose class answers with these attributes, and raises at others."""

    def refusing(error: type[BaseException]) -> property:
        def refuse(self: Any, *_: Any) -> Any:
            raise error("refused")

        return property(refuse)

    body = {name: property(lambda self, value=value: value) for name, value in attributes.items()}
    body |= {name: refusing(error) for name, error in raising.items()}
    try:
        kind: Any = (Meta if meta else type)("Hostile", (base,), body)
        return kind("x", [ValueError()]) if base is ExceptionGroup else kind("timeout")
    except Exception:
        # Python itself would not have it.
        return base("x", [ValueError()]) if base is ExceptionGroup else base("x")


errors: st.SearchStrategy[Any] = st.builds(
    hostile,
    st.dictionaries(st.sampled_from(ATTRIBUTES), values, max_size=5),
    st.dictionaries(
        st.sampled_from(ATTRIBUTES), st.sampled_from([RuntimeError, AttributeError, RecursionError, GeneratorExit]), max_size=4
    ),
    st.sampled_from([Exception, ValueError, OSError, RuntimeError, ExceptionGroup]),
    st.booleans(),
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(errors)
def test_no_exception_is_so_hostile_that_it_cannot_be_read_and_classified(error: Any) -> None:
    found = classify(read(error))
    assert isinstance(found.category, Category)
    assert found.why.encode()


class Carries(Exception):
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def test_values_that_lie_are_read_as_what_they_are() -> None:
    assert type(read(Carries(code=LyingText("THROTTLED"))).code) is str
    assert read(Carries(code=LyingText("THROTTLED"))).code == "THROTTLED"
    assert type(read(Carries(status=LyingNumber(503))).http_status) is int
    answer = LyingDict(Error=LyingDict(Code="SlowDown"), ResponseMetadata={"HTTPStatusCode": 503})
    assert (read(Carries(response=answer)).code, read(Carries(response=answer)).http_status) == ("SlowDown", 503)
    assert read(Carries(response=Refuses(), resp=Refuses(), code=Refuses())).code is None


def test_a_code_that_only_names_a_page_of_the_documentation_is_no_code() -> None:
    kind = type("OperationalError", (Exception,), {"__module__": "sqlalchemy.exc", "code": "e3q8"})
    assert read(kind()).code is None


class InStr(Exception):
    def __init__(self, raised: BaseException) -> None:
        self.raised = raised

    def __str__(self) -> str:
        raise self.raised


class Recurses(Exception):
    def __str__(self) -> str:
        return str(self)


@pytest.mark.parametrize("error", [InStr(RuntimeError()), InStr(GeneratorExit()), InStr(MemoryError()), Recurses()])
def test_an_error_that_cannot_say_what_it_is_has_no_message(error: BaseException) -> None:
    assert read(error).message == ""


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_who_ends_the_program_meanwhile_is_heard(raised: type[BaseException]) -> None:
    with pytest.raises(raised):
        read(InStr(raised()))


class RpcError(Exception):
    __module__ = "grpc"

    def code(self) -> Any:
        raise RuntimeError("no code")


def test_a_grpc_status_that_cannot_be_had_is_none() -> None:
    assert read(RpcError("the socket is closed")).grpc_status is None
    assert classify(read(RpcError("the socket is closed"))).category is Category.NETWORK
