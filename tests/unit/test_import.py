"""Importing redrive is cheap: what is not needed yet is not loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "asyncio",
    "sqlite3",
    "click",
    "rich",
    "httptools",
    "uvloop",
    "google.protobuf",
    "prometheus_client",
    "opentelemetry",
    "yaml",
    "hypothesis",
    "pytest",
)


def loaded_after(statement: str) -> set[str]:
    program = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_importing_redrive_loads_no_driver_and_no_surface() -> None:
    assert loaded_after("import redrive") & set(HEAVY) == set()


def test_a_policy_can_be_made_without_loading_them() -> None:
    statement = "import redrive; redrive.Policy(backoff=redrive.exponential()).judge(ValueError(), 1)"
    assert loaded_after(statement) & set(HEAVY) == set()


def test_a_store_in_memory_needs_no_sqlite_and_no_surface() -> None:
    statement = "import redrive.blocking; redrive.blocking.open('memory:').capture('x', ValueError(), source='s')"
    assert loaded_after(statement) & (set(HEAVY) - {"asyncio", "opentelemetry"}) == set()


def test_every_public_name_is_there() -> None:
    import redrive

    assert [name for name in redrive.__all__ if not hasattr(redrive, name)] == []
    assert len(redrive.__all__) == len(set(redrive.__all__))


def test_every_error_that_redrive_can_raise_is_public_and_says_what_to_do() -> None:
    import redrive
    from redrive.model import errors

    def all_below(kind: type[redrive.RedriveError]) -> set[type[redrive.RedriveError]]:
        return {kind}.union(*(all_below(one) for one in kind.__subclasses__()))

    known = {one for one in all_below(redrive.RedriveError) if one.__module__ == errors.__name__}
    assert {one.__name__ for one in known} - set(redrive.__all__) == set()
    assert len({one.code for one in known}) == len(known)
    assert all(one.__doc__ and "." in one.__doc__ for one in known)


def test_every_error_has_its_exit_and_its_http_status() -> None:
    from redrive.model import errors
    from redrive.serve.errors import exit_status, http_status

    kinds = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.RedriveError)]
    for kind in kinds:
        assert exit_status(kind("x")) in (1, 2)
        assert 400 <= http_status(kind("x")) <= 599
    with pytest.raises(errors.NotHeld):
        raise errors.BodyTooLarge("a large body is not held either")
