"""`redrive.testing` as others use it: a foreign backend, a forgotten opener, a missing extra."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import redrive.testing

STORE = """
from redrive.backends.sqlite import Database, SqliteLetters

def MyLetters(path):
    return SqliteLetters(Database(f"{path}.db"))
"""
FORGETFUL = """
from redrive.testing import DeskContract, LetterStoreContract

class TestMyLetters(LetterStoreContract):
    pass

class TestMyDesk(DeskContract):
    pass
"""


def pytest_says(folder: Path, text: str, chosen: str) -> subprocess.CompletedProcess[str]:
    """What pytest says in a project of its own."""
    (folder / "test_mine.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "-k", chosen]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_the_example_of_a_foreign_backend_works_as_it_stands(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", redrive.testing.__doc__ or "", re.DOTALL)
    done = pytest_says(tmp_path, STORE + example, "test_a_new_letter_is_new_and_comes_back_as_it_was")
    assert done.returncode == 0, done.stdout
    assert re.search(r"^1 passed", done.stdout, re.MULTILINE)


def test_who_forgets_to_say_how_a_backend_is_opened_is_told_what_to_do(tmp_path: Path) -> None:
    done = pytest_says(tmp_path, FORGETFUL, "comes_back_as_it_was")
    assert done.returncode == 1
    assert "override the fixture `opener` with one that gives the function to open your store" in done.stdout
    assert "override the fixture `opener` with one that says how to open your desk" in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.parametrize("missing", ["pytest", "hypothesis"])
@pytest.mark.parametrize("module", ["redrive.testing", "redrive.testing.kit.letters", "redrive.testing.faults"])
def test_a_missing_extra_is_named(missing: str, module: str) -> None:
    program = f"""
import sys
sys.modules["{missing}"] = None
from redrive import MissingExtra
try:
    import {module}
except MissingExtra as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"redrive.testing needs {missing}; install it with: pip install 'redrive[testing]'\n"


def test_every_published_name_is_there_and_hides_no_module() -> None:
    published = {name: getattr(redrive.testing, name) for name in redrive.testing.__all__}
    assert {"DeskContract", "Faulty", "Harness", "LawBroken", "LetterStoreContract", "Outage", "letter"} <= published.keys()
    assert [name for name, value in published.items() if isinstance(value, ModuleType)] == []
    for name in ("faults", "kill", "kit"):
        assert getattr(redrive.testing, name) is sys.modules[f"redrive.testing.{name}"]
