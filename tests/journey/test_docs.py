"""Every example in README and docs is executed, in the order in which it is read, in a folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<language>[\w+-]*)[^\n`]*$")
NOT_RUN = re.compile(r"<!--\s*not run:\s*(?P<reason>\S.*?)\s*-->")
RUN = {"python": "python", "py": "python", "console": "console", "sh": "sh", "shell": "sh", "bash": "sh"}


class Block(Struct, frozen=True, kw_only=True):
    """A fenced block of a page that can be run."""

    line: int
    kind: str
    text: str
    not_run: str | None = None


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a page in their order; `<!-- not run: reason -->` right above one says that it is left out, and why."""
    lines = text.splitlines()
    number = 0
    above = ""
    while number < len(lines):
        opening = FENCE.match(lines[number])
        if opening is None:
            above = lines[number]
            number += 1
            continue
        start, indent = number, len(opening["indent"])
        number += 1
        body = []
        while number < len(lines) and lines[number].strip() != opening["fence"]:
            body.append(lines[number][indent:] if lines[number][:indent].isspace() or not indent else lines[number].lstrip())
            number += 1
        number += 1
        if kind := RUN.get(opening["language"].lower()):
            reason = NOT_RUN.search(above)
            yield Block(line=start + 1, kind=kind, text="\n".join(body) + "\n", not_run=reason["reason"] if reason else None)
        above = ""


def command(block: Block) -> list[str]:
    """How a block is run: what stands after `$ ` in a console, the whole of a script; the first failure ends it."""
    if block.kind == "python":
        return [sys.executable, "-X", "dev", "-c", block.text]
    if block.kind == "sh":
        return ["bash", "-euo", "pipefail", "-c", block.text]
    typed: list[str] = []
    is_continued = False
    for line in block.text.splitlines():
        if line.startswith("$ "):
            typed.append(line[2:])
        elif is_continued or (typed and line.startswith("> ")):
            typed.append(line.removeprefix("> "))
        is_continued = bool(typed) and typed[-1].endswith("\\") and (line.startswith(("$ ", "> ")) or is_continued)
    assert typed, f"line {block.line}: a console block without a line that starts with '$ ' runs nothing"
    return ["bash", "-euo", "pipefail", "-c", "\n".join(typed)]


def environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
    }


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_example_on_a_page_runs(page: Path, tmp_path: Path) -> None:
    for block in blocks(page.read_text("utf-8")):
        if block.not_run is not None:
            continue
        done = subprocess.run(
            command(block),
            cwd=tmp_path,
            env=environment(tmp_path),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        where = f"{page.relative_to(ROOT)}, line {block.line}"
        assert done.returncode == 0, f"{where} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, f"{where}:\n{done.stderr}"


def test_the_readme_has_examples_to_run() -> None:
    kinds = [block.kind for block in blocks((ROOT / "README.md").read_text("utf-8")) if block.not_run is None]
    assert kinds.count("python") >= 1
    assert kinds.count("console") >= 1


def test_every_link_to_a_page_of_ours_leads_somewhere() -> None:
    missing = [
        f"{page.relative_to(ROOT)} → {target}"
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", page.read_text("utf-8"))
        if not (page.parent / target).exists()
    ]
    assert missing == []


PAGE = """
# A page

```python
print("one")
```

Text.

<!-- not run: needs a network -->
```console
$ curl example.org
```

- in a list:

  ```console
  $ echo two \\
  >   three
  two three
  $ false || echo four
  ```

```text
$ rm -rf nothing
```

<!-- not run: this note is not directly above -->

Words between.

~~~sh
exit 3
~~~
"""


def test_the_runner_finds_what_is_to_be_run_and_why_the_rest_is_not() -> None:
    found = list(blocks(PAGE))
    assert [(block.kind, block.not_run) for block in found] == [
        ("python", None),
        ("console", "needs a network"),
        ("console", None),
        ("sh", None),
    ]
    assert found[0].text == 'print("one")\n'
    assert found[2].text.splitlines()[0] == "$ echo two \\"


def test_the_runner_runs_what_was_typed_and_sees_a_failure(tmp_path: Path) -> None:
    _, _, console, script = blocks(PAGE)
    done = subprocess.run(command(console), cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("two three\nfour\n", 0)
    assert subprocess.run(command(script), cwd=tmp_path, check=False).returncode == 3
    (failing,) = blocks("```console\n$ false\n$ echo never\n```\n")
    assert subprocess.run(command(failing), cwd=tmp_path, check=False).returncode == 1
    (silent,) = blocks("```console\necho nothing typed\n```\n")
    with pytest.raises(AssertionError, match="runs nothing"):
        command(silent)
