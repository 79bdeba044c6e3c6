"""The wheel in an empty environment: bare, and with everything."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from dev import extras


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extras.wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extras.installed(wheel, tmp_path_factory.mktemp("bare") / "venv", "")


def run(programs: Path, folder: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [programs / "redrive", *arguments], cwd=folder, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_bare_install_captures_lists_and_names_the_extra_it_lacks(bare: Path, tmp_path: Path) -> None:
    assert run(bare, tmp_path, "capture", "--source", "orders", stdin="{}").returncode == 0
    assert "1 letter." in run(bare, tmp_path, "ls").stdout
    refused = run(bare, tmp_path, "up")
    assert refused.returncode == 1
    assert "pip install 'redrive[http]'" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not any(extras.works(bare, extra) for extra in extras.extras())


@pytest.mark.parametrize("engine", ["postgres", "redis"])
def test_a_store_whose_extra_is_missing_names_it(bare: Path, tmp_path: Path, engine: str) -> None:
    refused = run(bare, tmp_path, "ls", "--store", f"{engine}://127.0.0.1/1")
    assert f"pip install 'redrive[{engine}]'" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_whole_install_brings_every_surface(wheel: Path, tmp_path: Path) -> None:
    programs = extras.installed(wheel, tmp_path / "all", "all")
    assert [extra for extra in extras.extras() if not extras.works(programs, extra)] == []
    told = re.search(r"extras +installed: (.+)", run(programs, tmp_path, "doctor").stdout)
    assert told is not None
    assert sorted(told[1].split(", ")) == sorted(extras.extras())
